package rig_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"testing"

	"cxkit/device/wire/capture"
	"cxkit/dma"
	"cxkit/driver"
	"cxkit/internal/rig"
	"cxkit/transport/inproc"
)

// stream is a capture of numbered 64-byte frames that nobody holds: it is made as it is read.
type stream struct {
	left   int
	record [16 + 64]byte
	unread []byte
	seq    uint32
}

func newStream(frames int) *stream {
	s := &stream{left: frames}
	r := pcap([]record{{data: make([]byte, 64)}})
	s.unread = r[:24]
	copy(s.record[:], r[24:])
	copy(s.record[16:], own[:])
	copy(s.record[22:], other[:])
	s.record[28], s.record[29] = 0x88, 0xb5
	return s
}

// Read makes the next bytes.
func (s *stream) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(s.unread) == 0 {
			if s.left == 0 {
				if n == 0 {
					err = io.EOF
				}
				return n, err
			}
			s.left--
			binary.BigEndian.PutUint32(s.record[30:], s.seq)
			s.seq++
			s.unread = s.record[:]
		}
		k := copy(p[n:], s.unread)
		s.unread = s.unread[k:]
		n += k
	}
	return n, nil
}

const (
	// residentLimit is what the process may have in memory while it plays, in bytes: the NIC, the card and
	// the test itself. It does not depend on how many frames there are. The race detector's own memory
	// goes beyond it.
	residentLimit = 200 << 20
	// growthLimit is how much that may grow after the first frames.
	growthLimit = 32 << 20
)

// TestFiveMillionFramesInConstantMemory plays a long capture through card and driver.
func TestFiveMillionFramesInConstantMemory(t *testing.T) {
	total := 5_000_000
	if raceDetector {
		total = 200_000
	}
	debug.FreeOSMemory() // what the tests before have left is not this one's
	r, nic := openUnchecked(t, rig.Config{Transport: inproc.Config{Kind: dma.Private}}, driver.Config{MAC: own})
	p, err := capture.NewPlayer("endless", newStream(total), 0, capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := r.Card.Plug(0, p); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), playTime)
	defer cancel()
	if err := playStream(ctx, nic, total); err != nil {
		t.Fatal(err)
	}
	if err := p.Err(); err != nil {
		t.Error(err)
	}
	if n := nic.RxQueue(0).Stats().Packets; n != uint64(total) {
		t.Errorf("%d frames counted, want %d", n, total)
	}
}

// playStream receives the whole stream and checks every frame's number.
func playStream(ctx context.Context, nic *driver.NIC, total int) error {
	rx := nic.RxQueue(0)
	pkts := make([]driver.Packet, 64)
	first, peak := 0, 0
	for seq := uint32(0); int(seq) < total; {
		n := rx.Poll(pkts)
		if n == 0 {
			if err := rx.Wait(ctx); err != nil {
				return fmt.Errorf("after %d frames: %w", seq, err)
			}
			continue
		}
		for i := range pkts[:n] {
			if d := pkts[i].Data; len(d) != 64 || binary.BigEndian.Uint32(d[14:]) != seq {
				return fmt.Errorf("frame %d came as %x", seq, d)
			}
			seq++
		}
		rx.Release(pkts[:n])
		if seq>>14 != (seq-uint32(n))>>14 {
			peak = max(peak, resident())
			if first == 0 {
				first = peak
			}
		}
	}
	if peak > residentLimit && !raceDetector {
		return fmt.Errorf("%d MB resident, the limit is %d", peak>>20, residentLimit>>20)
	}
	if peak-first > growthLimit {
		return fmt.Errorf("memory grew from %d MB to %d", first>>20, peak>>20)
	}
	return nil
}

// resident is the process's memory in bytes: what the kernel says, or what the runtime has taken where
// the kernel does not say.
func resident() int {
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		for line := range bytes.Lines(status) {
			var kb int
			if n, _ := fmt.Sscanf(string(line), "VmRSS: %d kB", &kb); n == 1 {
				return kb << 10
			}
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.Sys - m.HeapReleased)
}
