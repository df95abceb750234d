package capture

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"cxkit/device/wire"
)

// fakeClock stands still.
type fakeClock struct{ now time.Time }

func (c fakeClock) Now() time.Time             { return c.now }
func (c fakeClock) NewTimer(func()) wire.Timer { return nil }

func TestRecordedFramesPlayBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.pcapng")
	r, err := Create(path, "p0", "p1")
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(7, 8))
	start := time.Unix(1_700_000_000, 123_456_789)
	var want []Frame
	for i := range 500 {
		f := Frame{Data: data(rnd.IntN(2000), i), Interface: i % 2, Nanos: start.Add(time.Duration(i)).UnixNano()}
		if err := r.Write(f.Interface, f.Data, f.Time()); err != nil {
			t.Fatal(err)
		}
		want = append(want, f)
	}
	if r.Frames() != 500 {
		t.Errorf("counted %d frames", r.Frames())
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := readAll(t, file)
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d frames, %v", len(got), err)
	}
	for i := range want {
		if !bytes.Equal(got[i].Data, want[i].Data) || got[i].Nanos != want[i].Nanos || got[i].Interface != want[i].Interface {
			t.Fatalf("frame %d: interface %d, %d ns, %d bytes; want %d, %d, %d", i, got[i].Interface, got[i].Nanos,
				len(got[i].Data), want[i].Interface, want[i].Nanos, len(want[i].Data))
		}
	}
	ng, err := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, _, err = ng.ReadPacketData()
	}
	if err != io.EOF {
		t.Fatalf("gopacket: %v", err)
	}
	for i, name := range []string{"p0", "p1"} {
		if in, err := ng.Interface(i); err != nil || in.Name != name || in.TimestampResolution != 9 {
			t.Errorf("interface %d: %+v, %v", i, in, err)
		}
	}
}

// fullDisk takes room bytes into a file.
type fullDisk struct {
	room int
	file io.Writer
}

var errFull = errors.New("no space left on device")

func (d *fullDisk) Write(p []byte) (int, error) {
	n := min(len(p), d.room)
	d.room -= n
	if _, err := d.file.Write(p[:n]); err != nil {
		return 0, err
	}
	if n < len(p) {
		return n, errFull
	}
	return n, nil
}

// framesIn counts the whole frames of a file that may be cut off.
func framesIn(t *testing.T, file []byte) uint64 {
	t.Helper()
	if len(file) < 200 {
		return 0 // not even the headers
	}
	r, err := NewReader("full.pcapng", bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	for n := uint64(0); ; n++ {
		if _, err := r.Next(); err != nil {
			return n
		}
	}
}

func TestFullDiskIsReportedOnce(t *testing.T) {
	for _, room := range []int{0, 100, 300 << 10, 1 << 20} {
		var file bytes.Buffer
		r, err := NewRecorder("full.pcapng", &fullDisk{room, &file}, "p0")
		if err != nil {
			t.Fatalf("room %d: the header is not buffered: %v", room, err)
		}
		reported := 0
		see := func(err error) {
			if err == nil {
				return
			}
			reported++
			if !errors.Is(err, errFull) || !strings.Contains(err.Error(), "full.pcapng: after ") {
				t.Errorf("room %d: %v", room, err)
			}
		}
		for i := range 2000 {
			see(r.Write(0, data(1000, i), time.Now()))
		}
		see(r.Flush())
		see(r.Close())
		see(r.Close())
		if reported != 1 {
			t.Errorf("room %d: reported %d times", room, reported)
		}
		if n := framesIn(t, file.Bytes()); n != r.Frames() {
			t.Errorf("room %d: %d whole frames are in the file, %d were counted", room, n, r.Frames())
		}
	}
	// A disk that fills up only at the end is reported by Close.
	r, err := NewRecorder("late.pcapng", &fullDisk{100, io.Discard}, "p0")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Write(0, data(60, 1), time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); !errors.Is(err, errFull) {
		t.Errorf("Close: %v", err)
	}
}

func TestRecorderRefusesWhatItCannotWrite(t *testing.T) {
	var out bytes.Buffer
	if _, err := NewRecorder("x", &out); err == nil {
		t.Error("a recorder without interfaces")
	}
	if _, err := NewRecorder("x", &out, strings.Repeat("n", 256)); err == nil {
		t.Error("a name of 256 bytes")
	}
	if _, err := Create(filepath.Join(t.TempDir(), "none", "x.pcapng"), "p0"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that does not exist: %v", err)
	}
	r, err := NewRecorder("x", &out, "p0")
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []int{-1, 1} {
		if err := r.Write(in, nil, time.Now()); err == nil {
			t.Errorf("interface %d is accepted", in)
		}
	}
	if err := r.Write(0, make([]byte, maxFrame+1), time.Now()); err == nil {
		t.Error("a frame that no reader takes")
	}
	if err := r.Write(0, data(60, 1), time.Now()); err != nil {
		t.Errorf("a refused frame ended the recording: %v", err)
	}
	r.Close()
	if err := r.Write(0, data(60, 1), time.Now()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Write after Close: %v", err)
	}
}

func TestManyGoroutinesRecord(t *testing.T) {
	var out bytes.Buffer
	r, err := NewRecorder("x", &out, "p0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for range 200 {
				if err := r.Write(0, data(100, g), time.Now()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := readAll(t, out.Bytes()); err != nil || len(got) != 800 {
		t.Errorf("%d frames of 800, %v", len(got), err)
	}
}

func TestTeeRecordsBothDirections(t *testing.T) {
	var out bytes.Buffer
	r, err := NewRecorder("tee", &out, "to card", "from card")
	if err != nil {
		t.Fatal(err)
	}
	near, far := wire.NewCable(wire.CableOptions{Ring: 4096})
	clock := fakeClock{time.Unix(1_700_000_000, 5)}
	tee := NewTee(near, r, 0, 1, clock, func(err error) { t.Error(err) })
	far.Send(data(60, 1), data(61, 2))
	frames := make([][]byte, 8)
	if n := tee.Receive(frames); n != 2 {
		t.Fatalf("received %d", n)
	}
	// The cable takes some and holds the rest back: only the ones it took are recorded.
	batch := make([][]byte, 8)
	for i := range batch {
		batch[i] = data(1000, i)
	}
	took := tee.Transmit(batch)
	if took == 0 || took == len(batch) {
		t.Fatalf("the cable took %d of %d", took, len(batch))
	}
	if err := errors.Join(tee.Close(), r.Close()); err != nil {
		t.Fatal(err)
	}
	got, err := readAll(t, out.Bytes())
	if err != nil || len(got) != 2+took {
		t.Fatalf("recorded %d frames, %v; want %d", len(got), err, 2+took)
	}
	for i, f := range got {
		in := 1
		if i < 2 {
			in = 0
		}
		if f.Interface != in || f.Nanos != clock.now.UnixNano() {
			t.Errorf("frame %d: interface %d, %d ns", i, f.Interface, f.Nanos)
		}
	}
	if tee.Done() != nil || tee.Err() != nil {
		t.Error("a tee of a cable comes to an end")
	}
}

func TestTeeOfAPlayerEndsWithIt(t *testing.T) {
	p := newPlayer(t, pcap(le, 0xa1b2c3d4, 1).record(0, 0, 60, data(60, 1)).bytes(1).b, Options{})
	r, err := NewRecorder("tee", &fullDisk{0, io.Discard}, "p0")
	if err != nil {
		t.Fatal(err)
	}
	var tee wire.Ender = NewTee(p, r, 0, 0, fakeClock{}, nil)
	frames := make([][]byte, 8)
	for tee.Receive(frames) > 0 {
	}
	<-tee.Done()
	if tee.Err() == nil {
		t.Error("the player's error is lost")
	}
	if err := r.Close(); !errors.Is(err, errFull) {
		t.Errorf("Close: %v", err)
	}
}

func TestRecorderDoesNotAllocate(t *testing.T) {
	r, err := NewRecorder("x", io.Discard, "p0")
	if err != nil {
		t.Fatal(err)
	}
	f, now := data(1514, 1), time.Now()
	if n := testing.AllocsPerRun(1000, func() {
		if err := r.Write(0, f, now); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations for a frame", n)
	}
}

func BenchmarkRecorder(b *testing.B) {
	r, err := NewRecorder("x", io.Discard, "p0")
	if err != nil {
		b.Fatal(err)
	}
	f, now := data(64, 1), time.Now()
	for b.Loop() {
		if err := r.Write(0, f, now); err != nil {
			b.Fatal(err)
		}
	}
}
