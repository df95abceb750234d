package capture

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// Recorder writes frames to a pcapng file, with times in ns. Any goroutine may call its methods.
type Recorder struct {
	name string
	dst  *blocks

	mu         sync.Mutex
	w          *pcapgo.NgWriter
	interfaces int
	frames     uint64
	err        error // what ended the recording
	reported   bool  // err was returned once
	closed     bool
}

// Create makes or truncates the file at path and records into it. Each name becomes an interface,
// numbered from 0; there is at least one.
func Create(path string, interfaces ...string) (*Recorder, error) {
	// Not os.Create: with a FIFO open for reading too, nobody would notice that its reader has gone.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return nil, fmt.Errorf("record a capture: %w", err)
	}
	return NewRecorder(path, f, interfaces...)
}

// NewRecorder records into dst. name stands in errors. Close closes dst if it is an io.Closer; so does
// an error.
func NewRecorder(name string, dst io.Writer, interfaces ...string) (*Recorder, error) {
	r := &Recorder{name: name, dst: &blocks{to: dst}, interfaces: len(interfaces)}
	if err := r.begin(interfaces); err != nil {
		r.closeDestination()
		return nil, err
	}
	return r, nil
}

func (r *Recorder) begin(interfaces []string) error {
	if len(interfaces) == 0 {
		return fmt.Errorf("record capture %s: no interface named", r.name)
	}
	for i, name := range interfaces {
		if len(name) > 255 {
			return fmt.Errorf("record capture %s: the name of interface %d has %d bytes, at most 255", r.name, i, len(name))
		}
		in := pcapgo.NgInterface{Name: name, LinkType: layers.LinkTypeEthernet, OS: runtime.GOOS, SnapLength: maxFrame}
		var err error
		if i == 0 {
			section := pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{
				Hardware: runtime.GOARCH, OS: runtime.GOOS, Application: "cxkit",
			}}
			r.w, err = pcapgo.NewNgWriterInterface(bufio.NewWriterSize(r.dst, 256<<10), in, section)
		} else {
			_, err = r.w.AddInterface(in)
		}
		if err != nil {
			return r.failed(err)
		}
	}
	return nil
}

// failed says what was kept: frames that were still in the buffer are lost.
func (r *Recorder) failed(err error) error {
	r.frames = r.dst.frames
	return fmt.Errorf("record capture %s: after %d frames: %w", r.name, r.frames, err)
}

// Write records a frame of interface number in, at time t. The first failure ends the recording, is
// returned once, and later calls do nothing.
func (r *Recorder) Write(in int, frame []byte, t time.Time) error {
	return r.WriteFirst(in, frame, len(frame), t)
}

// WriteFirst is Write that keeps only the first n bytes of the frame, and how long it was.
func (r *Recorder) WriteFirst(in int, frame []byte, n int, t time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil && in >= 0 && in < r.interfaces && len(frame) <= maxFrame && !r.closed {
		return r.write(in, frame, min(max(n, 0), len(frame)), t)
	}
	switch {
	case r.err != nil && r.reported:
		return nil
	case r.err != nil:
		r.reported = true
		return r.err
	case r.closed:
		return fmt.Errorf("record capture %s: %w", r.name, os.ErrClosed)
	case len(frame) > maxFrame:
		return fmt.Errorf("record capture %s: a frame of %d bytes, at most %d", r.name, len(frame), maxFrame)
	}
	return fmt.Errorf("record capture %s: interface %d, there are %d", r.name, in, r.interfaces)
}

func (r *Recorder) write(in int, frame []byte, n int, t time.Time) error {
	err := r.w.WritePacket(gopacket.CaptureInfo{
		Timestamp: t, CaptureLength: n, Length: len(frame), InterfaceIndex: in,
	}, frame[:n])
	if err != nil {
		r.err, r.reported = r.failed(err), true
		return r.err
	}
	r.frames++
	return nil
}

// Frames is how many frames were recorded: those that Write took, and after a failure those that are
// whole in the file.
func (r *Recorder) Frames() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.frames
}

// Flush writes what is buffered, so that another program can read the file so far.
func (r *Recorder) Flush() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.flush()
	return r.report()
}

func (r *Recorder) flush() {
	if r.err != nil {
		return
	}
	if err := r.w.Flush(); err != nil {
		r.err = r.failed(err)
	}
}

// report returns the error that ended the recording if nobody saw it yet.
func (r *Recorder) report() error {
	if r.err == nil || r.reported {
		return nil
	}
	r.reported = true
	return r.err
}

// Close flushes and closes the file. It returns the error that ended the recording unless Write or
// Flush did before.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.flush()
	r.closed = true
	err := r.closeDestination()
	if err != nil && r.err == nil {
		r.err = r.failed(err)
	}
	return r.report()
}

func (r *Recorder) closeDestination() error {
	c, ok := r.dst.to.(io.Closer)
	if !ok {
		return nil
	}
	if err := c.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
