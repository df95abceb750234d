package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// screen is what is printed while a run goes on: the first frames, lines every --stats-period, and one
// live line at the bottom of a terminal. Any goroutine may print.
type screen struct {
	out, err io.Writer
	terminal bool
	width    func() int
	json     bool

	left atomic.Int64 // frames still to be shown

	mu   sync.Mutex // guards the terminal: what is written, and line
	line int        // columns of the live line that is there
}

func newScreen(w *world, c *runCommand) *screen {
	s := &screen{out: w.out, err: w.err, terminal: w.errIsATerminal, width: w.errWidth, json: c.JSON}
	if !c.JSON {
		s.left.Store(int64(c.Show))
	}
	return s
}

// wants tells whether a frame is to be shown.
func (s *screen) wants() bool { return s.left.Load() > 0 }

// show prints a line about a frame.
func (s *screen) show(queue int, at time.Duration, frame []byte) {
	left := s.left.Add(-1)
	if left < 0 {
		return
	}
	s.print(s.out, fmt.Sprintf("%12.6f  queue %d  %5d bytes  %s", at.Seconds(), queue, len(frame), describe(frame)))
	if left == 0 {
		s.print(s.out, "              ... (--show N shows more)")
	}
}

// print writes a line and leaves the live line below it.
func (s *screen) print(to io.Writer, line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	fmt.Fprintln(to, line)
}

// warn prints a line on standard error.
func (s *screen) warn(line string) { s.print(s.err, line) }

// clear takes the live line away. s.mu is held.
func (s *screen) clear() {
	if s.line > 0 {
		fmt.Fprint(s.err, "\r", strings.Repeat(" ", s.line), "\r")
		s.line = 0
	}
}

// live replaces the live line; "" takes it away.
func (s *screen) live(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if most := s.width() - 1; len(text) > most {
		text = text[:max(most, 0)]
	}
	pad := strings.Repeat(" ", max(s.line-len(text), 0))
	if text == "" {
		s.clear()
		return
	}
	fmt.Fprint(s.err, "\r", text, pad)
	s.line = len(text)
}

// errors is standard error for a logger.
func (s *screen) errors() io.Writer { return screenWriter{s} }

type screenWriter struct{ s *screen }

func (w screenWriter) Write(p []byte) (int, error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.s.clear()
	return w.s.err.Write(p)
}

// livePeriod is how often the live line changes.
const livePeriod = 100 * time.Millisecond

// startLive prints what moves until the function it returns is called.
func (s *session) startLive() (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	if s.c.StatsPeriod > 0 {
		wg.Go(func() {
			line := s.printPeriod()
			s.every(s.c.StatsPeriod, done, line)
			line() // the last period, which was shorter
		})
	}
	if s.screen.terminal {
		wg.Go(func() {
			s.every(livePeriod, done, func() { s.screen.live(s.liveLine()) })
			s.screen.live("")
		})
	}
	return func() {
		close(done)
		wg.Wait()
	}
}

func (s *session) every(period time.Duration, done <-chan struct{}, f func()) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f()
		case <-done:
			return
		}
	}
}

// moved is what all queues have received and sent so far.
func (s *session) moved() (rx, tx tally) {
	for i := range s.nic.Queues() {
		r, t := s.nic.RxQueue(i).Stats(), s.nic.TxQueue(i).Stats()
		rx.Frames += r.Packets
		rx.Bytes += r.Bytes
		tx.Frames += t.Packets
		tx.Bytes += t.Bytes
	}
	return rx, tx
}

// printPeriod prints what moved since its last call. With --json it goes to standard error.
func (s *session) printPeriod() func() {
	to := s.screen.out
	if s.c.JSON {
		to = s.screen.err
	}
	var before tally
	at := s.began
	return func() {
		now := time.Now()
		rx, tx := s.moved()
		seconds := max(now.Sub(at).Seconds(), 1e-9)
		line := fmt.Sprintf("%8.1f s  received %s, %s, %s frames/s", now.Sub(s.began).Seconds(),
			counted(rx.Frames, "frame"), counted(rx.Bytes, "byte"), grouped(uint64(float64(rx.Frames-before.Frames)/seconds)))
		if s.c.Mode == "reflect" {
			line += ", sent " + counted(tx.Frames, "frame")
		}
		before, at = rx, now
		s.screen.print(to, line)
	}
}

// liveLine is a progress bar when the end of what comes is known.
func (s *session) liveLine() string {
	rx, _ := s.moved()
	elapsed := time.Since(s.began)
	text := counted(rx.Frames, "frame") + ", " + counted(rx.Bytes, "byte")
	if seconds := elapsed.Seconds(); seconds > 0 {
		text += fmt.Sprintf(", %s frames/s", grouped(uint64(float64(rx.Frames)/seconds)))
	}
	if s.player == nil {
		return fmt.Sprintf("%6.1f s  %s", elapsed.Seconds(), text)
	}
	p := s.player.Progress()
	if p.Size <= 0 {
		return text
	}
	const columns = 30
	full := min(int(columns*p.Offset/p.Size), columns)
	return fmt.Sprintf("[%s%s] %3d %%  %s", strings.Repeat("=", full), strings.Repeat(" ", columns-full), 100*p.Offset/p.Size, text)
}
