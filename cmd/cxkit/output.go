package main

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// output is standard output. It keeps the first error of a write, and when nobody reads any more, as
// behind `| head`, it ends the command as Ctrl-C would: in order, with its files written to the end.
type output struct {
	to     io.Writer
	nobody func() // called once when the reader has gone

	mu  sync.Mutex
	err error
}

// Write writes. Any goroutine may call it.
func (o *output) Write(p []byte) (int, error) {
	n, err := o.to.Write(p)
	if err == nil {
		return n, nil
	}
	o.mu.Lock()
	first := o.err == nil
	if first {
		o.err = err
	}
	o.mu.Unlock()
	if first && errors.Is(err, syscall.EPIPE) {
		o.nobody()
	}
	return n, err
}

// failed is the first error of a write.
func (o *output) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// unread tells whether the reader of standard output has gone.
func (o *output) unread() bool { return errors.Is(o.failed(), syscall.EPIPE) }

// endings are the signals that end a command in order. A terminal that is closed sends SIGHUP, which
// nohup has the process ignore.
func endings() []os.Signal {
	s := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		s = append(s, syscall.SIGHUP)
	}
	return s
}

// survivePipes makes a write to a pipe that nobody reads an error. By default it ends a Go process at
// once when the pipe is standard output, and frames that wait to be recorded would be lost. The signal is
// taken, not ignored: programs that this process starts would inherit that.
func survivePipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
