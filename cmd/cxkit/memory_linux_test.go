package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// writeCapture writes a capture of n frames of 60 bytes.
func writeCapture(to io.Writer, n int) error {
	w := bufio.NewWriterSize(to, 1<<20)
	le := binary.LittleEndian
	b := le.AppendUint32(nil, 0xa1b23c4d)
	b = le.AppendUint32(b, 4<<16|2)
	b = append(b, make([]byte, 8)...)
	b = le.AppendUint32(b, 1<<18)
	b = le.AppendUint32(b, 1)
	w.Write(b)
	record := make([]byte, 16+60)
	le.PutUint32(record[8:], 60)
	le.PutUint32(record[12:], 60)
	copy(record[16:], "\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x09\x88\xb5")
	for i := range n {
		le.PutUint32(record, uint32(i))
		le.PutUint32(record[16+14:], uint32(i))
		w.Write(record)
	}
	return w.Flush() // with the first error of all writes
}

func TestLongCapturePlaysInConstantMemory(t *testing.T) {
	frames, text := 5_000_000, "received 5,000,000 frames, 300,000,000 bytes of 5,000,000 played"
	if raceEnabled {
		// Five million take minutes under the race detector, which also needs memory of its own.
		frames, text = 100_000, "received 100,000 frames, 6,000,000 bytes of 100,000 played"
	}
	path, err := copyOfCxkit()
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(filepath.Dir(path))
	cmd := exec.CommandContext(t.Context(), path, "run", "--play", "-", "--show", "0")
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+filepath.Dir(path))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	werr := writeCapture(in, frames)
	in.Close()
	if err := cmd.Wait(); err != nil || werr != nil {
		t.Fatalf("%v, %v\n%s", err, werr, errs.String())
	}
	if !strings.Contains(out.String(), text) {
		t.Errorf("want %q, got:\n%s", text, out.String())
	}
	used := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss / 1024
	t.Logf("%d MB", used)
	if used > 200 && !raceEnabled {
		t.Errorf("%d MB resident, want 200 at most", used)
	}
}
