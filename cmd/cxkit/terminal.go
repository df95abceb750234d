package main

import (
	"io"
	"log/slog"
	"os"
	"runtime/debug"

	"golang.org/x/term"
)

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// width is the number of columns of a terminal, 80 if it does not say.
func width(f *os.File) int {
	if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
		return w
	}
	return 80
}

// terminal is a terminal that a command may draw on.
type terminal struct{ in, out *os.File }

// terminalOf returns the terminal that standard output is; nil if it is none.
func terminalOf(in, out *os.File) *terminal {
	if !isTerminal(out) {
		return nil
	}
	return &terminal{in, out}
}

// size is the terminal's, 80 by 24 if it does not say.
func (t *terminal) size() (columns, lines int) {
	if w, h, err := term.GetSize(int(t.out.Fd())); err == nil && w > 0 && h > 0 {
		return w, h
	}
	return 80, 24
}

// version is the module's, with the commit if the build knows it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "cxkit (unknown version)"
	}
	v := "cxkit " + info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v += " " + s.Value
		}
	}
	return v + " " + info.GoVersion
}

// logger logs at the level that a number of -v asks for; -1 is nothing.
func logger(to io.Writer, verbose int) *slog.Logger {
	level := slog.LevelError
	switch {
	case verbose < 0:
		return slog.New(slog.DiscardHandler)
	case verbose > 1:
		level = slog.LevelDebug
	case verbose == 1:
		level = slog.LevelInfo
	}
	return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: level}))
}
