package main

import (
	"fmt"
	"strings"
	"time"

	"cxkit/internal/control"
)

// print shows the latest reading: as lines, or on a terminal in place of what was there.
func (v *watcher) print(w *world, info *control.Info) error {
	if w.tty == nil {
		return v.printLines(w)
	}
	columns, lines := w.tty.size()
	text := v.screen(info, columns, lines)
	home := "\x1b[H"
	if !v.drawn {
		v.drawn = true
		home = "\x1b[?1049h\x1b[?25l\x1b[H" // a screen of its own, without cursor
	}
	var b strings.Builder
	b.WriteString(home)
	for i, line := range text {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(line + "\x1b[K")
	}
	b.WriteString("\x1b[J")
	_, err := fmt.Fprint(w.out, b.String())
	return err
}

// leave gives the terminal back.
func (v *watcher) leave(w *world) {
	if v.drawn {
		fmt.Fprint(w.out, "\x1b[?25h\x1b[?1049l")
	}
}

// printLines is what a file or a pipe gets.
func (v *watcher) printLines(w *world) error {
	if v.readings < 2 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %d counters changed in %.1f s\n", v.last.Time.Format(time.TimeOnly), len(v.changed), v.seconds)
	for _, c := range v.changed {
		b.WriteString(changeLine(c) + "\n")
	}
	_, err := fmt.Fprint(w.out, b.String())
	return err
}

func changeLine(c change) string {
	return fmt.Sprintf("  %-32s %18s %14s/s", c.Name, grouped(c.Value), rate(c.Rate))
}

// rate writes 12345.6 as 12,345, and small rates with a decimal.
func rate(r float64) string {
	if r > 0 && r < 100 {
		return fmt.Sprintf("%.1f", r)
	}
	return grouped(uint64(r))
}

// screen is the terminal's text: at most lines lines of at most columns columns.
func (v *watcher) screen(info *control.Info, columns, lines int) []string {
	text := []string{fmt.Sprintf("%s at %s  %s  %d counters changed in %.1f s  (Ctrl-C ends)",
		info.Model, info.Address, v.last.Time.Format(time.TimeOnly), len(v.changed), v.seconds)}
	switch {
	case v.readings < 2:
		text = append(text, "", "  ...")
	case len(v.changed) == 0:
		text = append(text, "", "  nothing changes")
	default:
		text = append(text, fmt.Sprintf("  %-32s %18s %16s", "counter", "value", "rate"))
	}
	for i, c := range v.changed {
		if left := len(v.changed) - i; len(text) == lines-1 && left > 1 {
			text = append(text, fmt.Sprintf("  ... %d more: a larger terminal, or a pipe, shows them", left))
			break
		}
		text = append(text, changeLine(c))
	}
	return fit(text, columns, lines)
}

// fit cuts text to a terminal.
func fit(text []string, columns, lines int) []string {
	text = text[:min(len(text), max(lines, 0))]
	for i, line := range text {
		if r := []rune(line); len(r) > columns {
			text[i] = string(r[:max(columns, 0)])
		}
	}
	return text
}
