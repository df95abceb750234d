package capture

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A named pipe is read ahead without being asked: Receive does not wait for the writer, and Close does
// not either.
func TestOpenReadsAheadFromANamedPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(path, os.O_RDWR, 0) // so that opening it to read does not wait
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.Write(pcapng(le).iface(1).enhanced(0, 0, 60, data(60, 1)).b); err != nil {
		t.Fatal(err)
	}
	p, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	wake := make(chan struct{}, 1)
	p.Attach(func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	frames := make([][]byte, 4)
	n := p.Receive(frames)
	for n == 0 {
		<-wake
		n = p.Receive(frames)
	}
	if n != 1 || len(frames[0]) != 60 || p.Receive(frames) != 0 || p.Progress().Size != 0 {
		t.Errorf("%d frames, progress %+v", n, p.Progress())
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
