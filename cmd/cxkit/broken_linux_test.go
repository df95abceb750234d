package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cxkit/device/wire/capture"
)

// executeIn runs a command line whose user has, or has not, pressed Ctrl-C before it began.
func executeIn(t *testing.T, interrupted bool, in io.Reader, out io.Writer, args ...string) (code int, errors string) {
	t.Helper()
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if interrupted {
		cancel()
	}
	var err bytes.Buffer
	code = execute(&world{ctx: ctx, in: in, out: out, err: &err, args: args, errWidth: func() int { return 80 }})
	return code, err.String()
}

func TestInterruptEndsTheWaitForAFileThatBlocks(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	defer func() { // ends the open calls that were left alone
		f, err := os.OpenFile(fifo, os.O_RDWR, 0)
		if err != nil {
			t.Error(err)
		}
		f.Close()
	}()
	silent, writer := io.Pipe()
	defer writer.Close()
	ping := "../../testdata/captures/ping.pcap"
	for _, args := range [][]string{
		{"run", "--play", fifo},
		{"run", "--play", "-"},
		{"run", "--play", ping, "--record", fifo},
		{"run", "--play", ping, "--trace", fifo},
	} {
		code, errors := executeIn(t, true, silent, io.Discard, args...)
		if code != exitInterrupted || errors != "cxkit: interrupted\n" {
			t.Errorf("%v: exit code %d\n%s", args, code, errors)
		}
	}
}

// A FIFO whose reader does not read: one Ctrl-C ends the run, which says what it could not write.
func TestInterruptEndsTheWaitForAReaderThatDoesNotRead(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	reader.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := reader.Write(make([]byte, 8<<20)); err == nil { // now it is full
		t.Fatalf("the FIFO took %d bytes", n)
	}
	t.Setenv("XDG_RUNTIME_DIR", dir)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	moving := &notice{text: "received", seen: make(chan struct{})}
	done := make(chan int, 1)
	var complaint bytes.Buffer
	go func() {
		done <- execute(&world{
			ctx: ctx, in: nil, out: moving, err: &complaint, errWidth: func() int { return 80 },
			args: []string{"run", "--play", "../../testdata/captures/iperf.pcapng", "--record", fifo, "--show", "0", "--stats-period", "10ms"},
		})
	}()
	<-moving.seen
	interrupt()
	select {
	case code := <-done:
		if code != exitInterrupted || !strings.Contains(complaint.String(), "record capture "+fifo) {
			t.Errorf("exit code %d\n%s", code, complaint.String())
		}
	case <-time.After(time.Minute):
		t.Fatal("the run does not end")
	}
}

// brokenOutput takes room bytes and then fails.
type brokenOutput struct {
	room int
	err  error
}

func (b *brokenOutput) Write(p []byte) (int, error) {
	if b.room -= len(p); b.room < 0 {
		return 0, b.err
	}
	return len(p), nil
}

func TestFramesAreRecordedWhenNobodyReadsTheOutput(t *testing.T) {
	file := filepath.Join(t.TempDir(), "g.pcapng")
	code, errors := executeIn(t, false, nil, &brokenOutput{500, syscall.EPIPE},
		"run", "--play", "../../testdata/captures/web.pcapng", "--record", file, "--show", "1000")
	if code != exitUnread || errors != "" {
		t.Errorf("exit code %d\n%s", code, errors)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := capture.NewReader(file, f)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; err == nil; n++ {
		_, err = r.Next()
	}
	if err != io.EOF || n < 2 {
		t.Errorf("after %d frames: %v", n-1, err)
	}
}

func TestOutputThatCanNotBeWrittenIsNoMistakeOfUsage(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"run", "--play", "../../testdata/captures/ping.pcap"}, {"completion", "bash"}} {
		code, errors := executeIn(t, false, nil, &brokenOutput{0, syscall.ENOSPC}, args...)
		if code != exitFailed || !strings.Contains(errors, syscall.ENOSPC.Error()) || strings.Contains(errors, "Try") {
			t.Errorf("%v: exit code %d\n%s", args, code, errors)
		}
	}
}
