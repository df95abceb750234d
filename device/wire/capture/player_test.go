package capture

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"cxkit/device/wire"
)

func newPlayer(tb testing.TB, capture []byte, o Options) *Player {
	tb.Helper()
	p, err := NewPlayer("test", bytes.NewReader(capture), int64(len(capture)), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { p.Close() })
	return p
}

// playAll receives until the player is done.
func playAll(tb testing.TB, p *Player, burst int) [][]byte {
	tb.Helper()
	var all [][]byte
	frames := make([][]byte, burst)
	for {
		n := p.Receive(frames)
		for _, f := range frames[:n] {
			all = append(all, bytes.Clone(f))
		}
		if n > 0 {
			continue
		}
		select {
		case <-p.Done():
			return all
		default:
		}
	}
}

// generated writes a capture with gopacket and returns it with its frames.
func generated(tb testing.TB, rnd *rand.Rand, ng bool, frames int) (capture []byte, want [][]byte) {
	tb.Helper()
	var out bytes.Buffer
	var write func(gopacket.CaptureInfo, []byte) error
	interfaces := 1
	flush := func() error { return nil }
	if ng {
		w, err := pcapgo.NewNgWriter(&out, layers.LinkTypeEthernet)
		if err != nil {
			tb.Fatal(err)
		}
		for ; interfaces < 1+rnd.IntN(3); interfaces++ {
			if _, err := w.AddInterface(pcapgo.NgInterface{Name: "more", Comment: "xyz", LinkType: layers.LinkTypeEthernet}); err != nil {
				tb.Fatal(err)
			}
		}
		write, flush = w.WritePacket, w.Flush
	} else {
		w := pcapgo.NewWriterNanos(&out)
		if rnd.IntN(2) == 0 {
			w = pcapgo.NewWriter(&out)
		}
		if err := w.WriteFileHeader(maxFrame, layers.LinkTypeEthernet); err != nil {
			tb.Fatal(err)
		}
		write = w.WritePacket
	}
	for i := range frames {
		f := data(rnd.IntN(1<<(4+rnd.IntN(13))), i)
		ci := gopacket.CaptureInfo{
			Timestamp: time.Unix(1_700_000_000+int64(i), rnd.Int64N(1e9)), CaptureLength: len(f),
			Length: len(f) + rnd.IntN(2)*rnd.IntN(2000), InterfaceIndex: rnd.IntN(interfaces),
		}
		if err := write(ci, f); err != nil {
			tb.Fatal(err)
		}
		want = append(want, f)
	}
	if err := flush(); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes(), want
}

func TestPlayerGivesOutWhatGopacketWrote(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for i := range 60 {
		capture, want := generated(t, rnd, i%2 == 0, rnd.IntN(300))
		p := newPlayer(t, capture, Options{})
		got := playAll(t, p, 1+rnd.IntN(64))
		if err := p.Err(); err != nil {
			t.Fatalf("capture %d: %v", i, err)
		}
		if len(got) != len(want) {
			t.Fatalf("capture %d: %d frames, want %d", i, len(got), len(want))
		}
		total := 0
		for j := range want {
			if !bytes.Equal(got[j], want[j]) {
				t.Fatalf("capture %d: frame %d differs", i, j)
			}
			total += len(want[j])
		}
		at := p.Progress()
		if at.Frames != uint64(len(want)) || at.Bytes != uint64(total) || at.Offset != at.Size || at.Size != int64(len(capture)) {
			t.Errorf("capture %d: progress %+v at the end of %d frames, %d bytes", i, at, len(want), total)
		}
	}
}

// gopacketRead reads a capture with gopacket.
func gopacketRead(capture []byte) ([]Frame, error) {
	var src interface {
		ReadPacketData() ([]byte, gopacket.CaptureInfo, error)
	}
	var err error
	if bytes.HasPrefix(capture, []byte{0x0a, 0x0d, 0x0d, 0x0a}) {
		src, err = pcapgo.NewNgReader(bytes.NewReader(capture), pcapgo.NgReaderOptions{WantMixedLinkType: true})
	} else {
		src, err = pcapgo.NewReader(bytes.NewReader(capture))
	}
	if err != nil {
		return nil, err
	}
	var all []Frame
	for {
		b, ci, err := src.ReadPacketData()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, Frame{Data: b, Length: ci.Length, Nanos: ci.Timestamp.UnixNano(), Interface: ci.InterfaceIndex})
	}
}

func TestReaderAgreesWithGopacket(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for i := range 40 {
		capture, _ := generated(t, rnd, i%2 == 0, rnd.IntN(100))
		want, err := gopacketRead(capture)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readAll(t, capture)
		if err != nil || len(got) != len(want) {
			t.Fatalf("capture %d: %d frames, %v; gopacket reads %d", i, len(got), err, len(want))
		}
		for j := range want {
			g, w := got[j], want[j]
			if !bytes.Equal(g.Data, w.Data) || g.Length != w.Length || g.Nanos != w.Nanos || g.Interface != w.Interface {
				t.Fatalf("capture %d, frame %d: %d/%d bytes %d ns interface %d; gopacket: %d/%d %d %d", i, j,
					len(g.Data), g.Length, g.Nanos, g.Interface, len(w.Data), w.Length, w.Nanos, w.Interface)
			}
		}
	}
}

func TestPlayerPlaysTheFramesBeforeDamage(t *testing.T) {
	for _, c := range bad {
		p, err := NewPlayer("test", bytes.NewReader(c.make()), 0, Options{})
		if err != nil {
			if c.frames != 0 {
				t.Errorf("%s: refused at once: %v", c.name, err)
			}
			continue
		}
		got := playAll(t, p, 8)
		var damage *Error
		if len(got) != c.frames || !errors.As(p.Err(), &damage) || damage.Offset != c.offset {
			t.Errorf("%s: %d frames of %d, error %v", c.name, len(got), c.frames, p.Err())
		}
		if err := p.Close(); err != nil || !errors.As(p.Err(), &damage) {
			t.Errorf("%s: Close: %v, and Err is now %v", c.name, err, p.Err())
		}
	}
}

func TestForeignFirstFrameIsRefusedAtOnce(t *testing.T) {
	ng := pcapng(le).iface(113).enhanced(0, 0, 60, data(60, 1)).b
	_, err := NewPlayer("any.pcapng", bytes.NewReader(ng), 0, Options{})
	if err == nil || !strings.Contains(err.Error(), "LINUX_SLL") || !strings.Contains(err.Error(), "any.pcapng") {
		t.Errorf("error %v, want one that names the file and LINUX_SLL", err)
	}
}

func TestFramesCutShortAreCounted(t *testing.T) {
	w := pcap(le, 0xa1b2c3d4, 1)
	for i := range 10 {
		w.record(0, 0, 60+i%2, data(60, i))
	}
	p := newPlayer(t, w.b, Options{})
	if got := playAll(t, p, 3); len(got) != 10 {
		t.Fatalf("%d frames", len(got))
	}
	if cut := p.Progress().Cut; cut != 5 {
		t.Errorf("%d frames cut short, want 5", cut)
	}
}

func TestPlayerDiscardsAndCountsWhatIsSent(t *testing.T) {
	p := newPlayer(t, pcap(le, 0xa1b2c3d4, 1).b, Options{})
	if n := p.Transmit([][]byte{data(60, 1), data(100, 2)}); n != 2 {
		t.Errorf("took %d of 2", n)
	}
	if c := p.Counters(); c.TxFrames != 2 || c.TxBytes != 160 {
		t.Errorf("counters %+v", c)
	}
	if !p.Link() || !p.Lossless() {
		t.Error("want a lossless port with its link up")
	}
	p.Close()
	if p.Link() || !errors.Is(p.Err(), wire.ErrClosed) || p.Receive(make([][]byte, 1)) != 0 {
		t.Errorf("after Close: link %v, error %v", p.Link(), p.Err())
	}
	if err := p.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func TestClosingAFinishedPlayerIsNoError(t *testing.T) {
	p := newPlayer(t, pcap(le, 0xa1b2c3d4, 1).record(0, 0, 60, data(60, 1)).b, Options{})
	playAll(t, p, 1)
	p.Close()
	if err := p.Err(); err != nil {
		t.Errorf("Err after a complete run and Close: %v", err)
	}
}

// A frame that was given out keeps its bytes until the next Receive, across the buffer's ends.
func TestPlayedFramesStayValidUntilTheNextReceive(t *testing.T) {
	w := pcap(le, 0xa1b2c3d4, 1)
	const total = 3000
	for i := range total {
		w.record(0, 0, 1000, data(1000, i))
	}
	p := newPlayer(t, w.b, Options{})
	frames := make([][]byte, 64)
	seen := 0
	for n := p.Receive(frames); n > 0; n = p.Receive(frames) {
		for _, f := range frames[:n] {
			if !bytes.Equal(f, data(1000, seen)) {
				t.Fatalf("frame %d has other bytes", seen)
			}
			seen++
		}
	}
	if seen != total {
		t.Errorf("%d frames of %d", seen, total)
	}
}

func TestRecordedGapsAreKept(t *testing.T) {
	second := uint32(1_700_000_000)
	w := pcap(le, 0xa1b2c3d4, 1).
		record(second, 0, 60, data(60, 0)).
		record(second, 500_000, 60, data(60, 1)).
		record(second, 400_000, 60, data(60, 2)). // out of order: at once
		record(second+2, 0, 60, data(60, 3)).
		record(second+50_000, 0, 60, data(60, 4)). // a gap over MaxGap
		record(second+50_001, 0, 60, data(60, 5)).
		record(second, 0, 60, data(60, 6)). // the clock was set back: at once
		record(second+1, 0, 60, data(60, 7))
	want := []time.Duration{0, 500, 500, 2000, 12_000, 13_000, 13_000, 14_000}
	for _, speed := range []float64{0, 1, 4} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			p := newPlayer(t, w.b, Options{Recorded: true, Speed: speed, MaxGap: 10 * time.Second})
			wake := make(chan struct{}, 1)
			p.Attach(func() {
				select {
				case wake <- struct{}{}:
				default:
				}
			})
			frames := make([][]byte, 4)
			for seen := 0; seen < len(want); {
				n := p.Receive(frames)
				for range n {
					at := time.Duration(float64(want[seen]*time.Millisecond) / max(speed, 1))
					if got := time.Since(start); got != at {
						t.Errorf("speed %v: frame %d after %v, want %v", speed, seen, got, at)
					}
					seen++
				}
				if n == 0 {
					<-wake
				}
			}
			if p.Receive(frames) != 0 || p.Err() != nil {
				t.Errorf("at the end: %v", p.Err())
			}
			<-p.Done()
		})
	}
}

func TestPlayerReadsAPipeWithoutBlocking(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	capture := pcapng(le).iface(1)
	head := len(capture.b)
	for i := range 1000 {
		capture.enhanced(0, 0, 200, data(200, i))
	}
	if _, err := w.Write(capture.b[:head]); err != nil {
		t.Fatal(err)
	}
	p, err := NewPlayer("pipe", r, 0, Options{ReadAhead: true})
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
	frames := make([][]byte, 32)
	if n := p.Receive(frames); n != 0 {
		t.Fatalf("%d frames before any were written", n)
	}
	wrote := make(chan error, 1)
	go func() {
		_, err := w.Write(capture.b[head:])
		wrote <- errors.Join(err, w.Close())
	}()
	seen := 0
	for over := false; !over; {
		n := p.Receive(frames)
		for _, f := range frames[:n] {
			if !bytes.Equal(f, data(200, seen)) {
				t.Fatalf("frame %d differs", seen)
			}
			seen++
		}
		if n == 0 {
			select {
			case <-p.Done():
				over = true
			case <-wake:
			}
		}
	}
	if err := <-wrote; err != nil || p.Err() != nil || seen != 1000 {
		t.Errorf("%d frames of 1000, write %v, player %v", seen, err, p.Err())
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestCloseEndsAPlayerThatWaitsForAPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.Write(pcapng(le).iface(1).b); err != nil {
		t.Fatal(err)
	}
	p, err := NewPlayer("pipe", r, 0, Options{ReadAhead: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	<-p.Done()
}

// One Receive does a bounded amount of work whatever the file holds, and asks to be called again.
func TestReceiveIsBoundedInAFileWithoutFrames(t *testing.T) {
	w := pcapng(le).iface(1).
		block(0x99, func(w *builder) { w.b = append(w.b, make([]byte, 20<<20)...) }).
		enhanced(0, 0, 60, data(60, 1))
	// A frame in front, so that opening the player does not read on.
	first := pcapng(le).iface(1).enhanced(0, 0, 60, data(60, 0)).b
	p := newPlayer(t, append(first, w.b...), Options{})
	var woken atomic.Int32
	p.Attach(func() { woken.Add(1) })
	frames := make([][]byte, 8)
	calls, seen := 0, 0
	for ; seen < 2; calls++ {
		before := p.Progress().Offset
		woken.Store(0)
		n := p.Receive(frames)
		seen += n
		if step := p.Progress().Offset - before; step > 2<<20 {
			t.Fatalf("one Receive read %d bytes", step)
		}
		if n == 0 && woken.Load() == 0 {
			t.Fatal("a Receive that gave up did not ask to be called again")
		}
	}
	if calls < 10 {
		t.Errorf("20 MiB without a frame took %d calls", calls)
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.pcap")
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		filepath.Join(dir, "none.pcap"): "no such file",
		empty:                           "empty.pcap: at byte 0, after 0 frames: the file is empty",
		dir:                             "is a directory",
	} {
		if _, err := Open(path, Options{}); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v, want %q", path, err, text)
		}
	}
	if _, err := NewPlayer("x", bytes.NewReader(pcap(le, 0xa1b2c3d4, 1).b), 0, Options{Speed: -1}); err == nil {
		t.Error("a negative speed is accepted")
	}
}
