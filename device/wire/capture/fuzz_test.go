package capture

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
)

// FuzzPlayer: whatever the file holds, the player ends after a bounded number of calls, gives out no
// more than the file has, and says where it stopped. A pcap file that gopacket reads to its end too gives
// the same frames.
func FuzzPlayer(f *testing.F) {
	for _, c := range bad {
		if b := c.make(); len(b) < 10_000 {
			f.Add(b)
		}
	}
	rnd := rand.New(rand.NewPCG(9, 10))
	for i := range 4 {
		capture, _ := generated(f, rnd, i%2 == 0, 5)
		f.Add(capture)
	}
	f.Add(pcapng(be).iface(1, []byte{9, 0x8a}).enhanced(0, 77, 80, data(70, 1)).b)
	f.Fuzz(func(t *testing.T, capture []byte) {
		p, err := NewPlayer("fuzz", bytes.NewReader(capture), int64(len(capture)), Options{})
		var damage *Error
		if err != nil {
			if !errors.As(err, &damage) || damage.Offset < 0 || damage.Offset > int64(len(capture)) {
				t.Fatalf("error without a place in the file: %v", err)
			}
			return
		}
		defer p.Close()
		frames := make([][]byte, 5)
		var got [][]byte
		var total int
		over := false
		for calls := 0; !over; calls++ {
			if calls > len(capture) {
				t.Fatalf("%d calls for %d bytes", calls, len(capture))
			}
			n := p.Receive(frames)
			for _, f := range frames[:n] {
				got = append(got, bytes.Clone(f))
				total += len(f)
			}
			select {
			case <-p.Done():
				over = n == 0
			default:
			}
		}
		if total > len(capture) {
			t.Fatalf("%d bytes of frames from a file of %d", total, len(capture))
		}
		at := p.Progress()
		if at.Frames != uint64(len(got)) || at.Bytes != uint64(total) || at.Offset > at.Size {
			t.Fatalf("progress %+v after %d frames, %d bytes", at, len(got), total)
		}
		if err := p.Err(); err != nil {
			if !errors.As(err, &damage) || damage.Frames != at.Frames || damage.Offset > int64(len(capture)) {
				t.Fatalf("after %d frames: %v", at.Frames, err)
			}
			return
		}
		if at.Offset != at.Size {
			t.Fatalf("ended without an error at byte %d of %d", at.Offset, at.Size)
		}
		comparePlayed(t, capture, got)
	})
}

// comparePlayed compares with the reader, and for pcap with gopacket. gopacket trusts the lengths in a
// pcapng block and may go on in its middle; generated captures compare that format.
func comparePlayed(t *testing.T, capture []byte, got [][]byte) {
	d, err := NewReader("fuzz", bytes.NewReader(capture))
	if err != nil {
		t.Fatal(err)
	}
	want, err := gopacketRead(capture)
	second := err == nil && !d.isNG && d.pcap.fcs == 0
	if second && len(want) != len(got) {
		t.Fatalf("%d frames, gopacket reads %d", len(got), len(want))
	}
	for i := range got {
		f, err := d.Next()
		if err != nil || !bytes.Equal(f.Data, got[i]) {
			t.Fatalf("frame %d: the reader has other bytes than the player: %v", i, err)
		}
		if second && (!bytes.Equal(f.Data, want[i].Data) || f.Length != want[i].Length) {
			t.Fatalf("frame %d: %d of %d bytes, gopacket %d of %d, or other content", i, len(f.Data), f.Length, len(want[i].Data), want[i].Length)
		}
	}
	if _, err := d.Next(); err != io.EOF {
		t.Fatalf("the reader goes on where the player ended: %v", err)
	}
}
