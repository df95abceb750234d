package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
)

var orders = []binary.ByteOrder{binary.LittleEndian, binary.BigEndian}

func TestPcapOfEitherOrderAndResolution(t *testing.T) {
	for _, order := range orders {
		for magic, nanos := range map[uint32]int64{0xa1b2c3d4: 1000, 0xa1b23c4d: 1} {
			t.Run(fmt.Sprintf("%v/%#x", order, magic), func(t *testing.T) {
				w := pcap(order, magic, 1).
					record(1_700_000_000, 5, 60, data(60, 1)).
					record(1_700_000_001, 999_999, 1514, data(100, 2)). // cut short
					record(1_700_000_002, 0, 0, nil)
				got, err := readAll(t, w.b)
				if err != nil || len(got) != 3 {
					t.Fatalf("%d frames, %v", len(got), err)
				}
				if !bytes.Equal(got[0].Data, data(60, 1)) || got[0].Nanos != 1_700_000_000e9+5*nanos {
					t.Errorf("first frame: %+v", got[0])
				}
				if len(got[1].Data) != 100 || got[1].Length != 1514 {
					t.Errorf("cut frame: %d of %d bytes", len(got[1].Data), got[1].Length)
				}
				if len(got[2].Data) != 0 {
					t.Errorf("empty frame: %d bytes", len(got[2].Data))
				}
			})
		}
	}
}

func TestPcapngSectionsInterfacesAndBlocks(t *testing.T) {
	big := uint64(1_700_000_000_000_000)
	w := pcapng(binary.LittleEndian).
		block(0x0bad, func(w *builder) { w.bytes(data(3_000_000, 9)...) }). // unknown and large
		iface(1).
		iface(101). // never sees a packet
		iface(1, []byte{2, 'e', 't', 'h', '1'}, []byte{9, 9}, []byte{14, 10, 0, 0, 0, 0, 0, 0, 0}).
		enhanced(0, big, 60, data(60, 1)).
		enhanced(2, 7, 1514, data(61, 2)).
		block(5, func(w *builder) { w.u32(0, 0, 0) }). // statistics
		block(3, func(w *builder) { w.u32(62).bytes(data(62, 3)...) }).
		block(2, func(w *builder) { w.u16(0, 0).u32(0, 8, 63, 63).bytes(data(63, 4)...) })
	// A second section in the other order, with interfaces of its own.
	w2 := pcapng(binary.BigEndian).iface(1, []byte{9, 0x80 | 10}).enhanced(0, 3<<10|512, 64, data(64, 5))
	got, err := readAll(t, append(w.b, w2.b...))
	if err != nil || len(got) != 5 {
		t.Fatalf("%d frames, %v", len(got), err)
	}
	for i, want := range []struct {
		length, in int
		nanos      int64
	}{
		{60, 0, int64(big) * 1000}, {1514, 2, 10e9 + 7}, {62, 0, 10e9 + 7}, {63, 0, 8000}, {64, 0, 3_500_000_000},
	} {
		g := got[i]
		if !bytes.Equal(g.Data, data(60+i, i+1)) || g.Length != want.length || g.Interface != want.in || g.Nanos != want.nanos {
			t.Errorf("frame %d: %d of %d bytes, interface %d, %d ns; want %+v", i, len(g.Data), g.Length, g.Interface, g.Nanos, want)
		}
	}
}

func TestSimplePacketsEndAtTheSnapshotLength(t *testing.T) {
	w := pcapng(binary.LittleEndian).
		block(1, func(w *builder) { w.u16(1, 0).u32(50) }).
		block(3, func(w *builder) { w.u32(1514).bytes(data(52, 1)...) })
	got, err := readAll(t, w.b)
	if err != nil || len(got) != 1 || len(got[0].Data) != 50 || got[0].Length != 1514 {
		t.Errorf("%+v, %v; want 50 of 1514 bytes", got, err)
	}
}

func TestFrameCheckSequencesAreTakenOff(t *testing.T) {
	with := pcap(binary.LittleEndian, 0xa1b2c3d4, 2<<28|1<<26|1).
		record(0, 0, 64, data(64, 1)).record(0, 0, 64, data(62, 2)).record(0, 0, 64, data(50, 3)).b
	ng := pcapng(binary.BigEndian).iface(1, []byte{13, 4}).
		enhanced(0, 0, 64, data(64, 1)).enhanced(0, 0, 64, data(62, 2)).enhanced(0, 0, 64, data(50, 3)).b
	for i, capture := range [][]byte{with, ng} {
		got, err := readAll(t, capture)
		if err != nil || len(got) != 3 {
			t.Fatalf("capture %d: %d frames, %v", i, len(got), err)
		}
		for j, want := range []int{60, 60, 50} {
			if len(got[j].Data) != want || got[j].Length != 60 {
				t.Errorf("capture %d, frame %d: %d of %d bytes, want %d of 60", i, j, len(got[j].Data), got[j].Length, want)
			}
		}
	}
}

func TestTimesOfAnyResolution(t *testing.T) {
	for _, c := range []struct {
		resolution byte
		offset     int64
		t          uint64
		want       int64
	}{
		{6, 0, 1_500_000, 1_500_000_000},
		{0, 0, 3, 3e9},
		{9, 0, 42, 42},
		{12, 0, 42_999, 42},
		{127, 0, math.MaxUint64, 1},
		{6, 0, math.MaxUint64, math.MaxInt64},
		{0x80, 0, 2, 2e9},
		{0x80 | 20, 0, 1<<20 + 1<<19, 1_500_000_000},
		{0x80 | 127, 0, math.MaxUint64, 0},
		{0x80 | 63, 0, 3 << 62, 1_500_000_000},
		{9, 5, 7, 5e9 + 7},
		{9, -5, 7, -5e9 + 7},
		{9, math.MaxInt64, math.MaxUint64, math.MaxInt64},
		{9, math.MinInt64, 0, -9_223_372_036e9},
	} {
		i := ngInterface{offset: c.offset}
		i.resolution(c.resolution)
		if got := i.nanos(c.t); got != c.want {
			t.Errorf("resolution %#x, offset %d: time %d is %d ns, want %d", c.resolution, c.offset, c.t, got, c.want)
		}
	}
}

func TestHeaderWithoutPacketsIsAnEmptyCapture(t *testing.T) {
	for name, capture := range map[string][]byte{
		"pcap":                   pcap(binary.LittleEndian, 0xa1b2c3d4, 1).b,
		"pcapng":                 pcapng(binary.BigEndian).iface(1).b,
		"pcapng, no interface":   pcapng(binary.BigEndian).b,
		"pcapng, other networks": pcapng(binary.BigEndian).iface(101).b,
	} {
		if got, err := readAll(t, capture); err != nil || len(got) != 0 {
			t.Errorf("%s: %d frames, %v; want none and no error", name, len(got), err)
		}
	}
}

// bad are captures with a fault. Each keeps the frames before it and names the byte.
var bad = []struct {
	name   string
	frames int
	offset int64
	text   string
	make   func() []byte
}{
	{"empty file", 0, 0, "the file is empty", func() []byte { return nil }},
	{"two bytes", 0, 0, "cut off", func() []byte { return []byte("hi") }},
	{"text", 0, 0, "neither pcap nor pcapng: it starts with 68 65 6c 6c", func() []byte { return []byte("hello world") }},
	{"gzip", 0, 0, "gunzip", func() []byte { return []byte("\x1f\x8b\x08\x00\x00\x00") }},
	{"zstd", 0, 0, "unzstd", func() []byte { return []byte("\x28\xb5\x2f\xfd\x00\x00") }},
	{"snoop", 0, 0, "snoop", func() []byte { return []byte("snoop\x00\x00\x00") }},
	{"pcap: header cut off", 0, 0, "pcap header of 24 bytes, 20 are there", func() []byte { return pcap(le, 0xa1b2c3d4, 1).b[:20] }},
	{"pcap: version", 0, 4, "version 2.9", func() []byte {
		b := pcap(le, 0xa1b2c3d4, 1).b
		b[6] = 9
		return b
	}},
	{"pcap: bare IP", 0, 20, "link type 101, RAW (bare IP): only Ethernet", func() []byte { return pcap(be, 0xa1b2c3d4, 101).b }},
	{"pcap: unknown network", 0, 20, "link type 65000, unknown", func() []byte { return pcap(be, 0xa1b2c3d4, 65000).b }},
	{"pcap: record cut off", 1, 24 + 76, "record of 76 bytes, 66 are there", func() []byte {
		return pcap(le, 0xa1b2c3d4, 1).record(0, 0, 60, data(60, 1)).record(0, 0, 60, data(60, 1)).b[:24+76+66]
	}},
	{"pcap: record header cut off", 1, 24 + 76, "record header of 16 bytes, 3 are there", func() []byte {
		return pcap(le, 0xa1b2c3d4, 1).record(0, 0, 60, data(60, 1)).bytes(1, 2, 3).b
	}},
	{"pcap: frame of 2 GiB", 1, 24 + 76 + 8, "2147483647 captured bytes", func() []byte {
		return pcap(le, 0xa1b2c3d4, 1).record(0, 0, 60, data(60, 1)).u32(0, 0, 1<<31-1, 1<<31-1).b
	}},
	{"pcap: more captured than sent", 0, 24 + 8, "60 bytes captured of a frame of 59", func() []byte {
		return pcap(be, 0xa1b23c4d, 1).record(0, 0, 59, data(60, 1)).b
	}},
	{"pcapng: byte order", 0, 8, "byte-order magic 01 02 03 04", func() []byte {
		b := pcapng(le).b
		copy(b[8:], "\x01\x02\x03\x04")
		return b
	}},
	{"pcapng: version", 0, 12, "pcapng version 2.0", func() []byte {
		b := pcapng(le).b
		b[12] = 2
		return b
	}},
	{"pcapng: short section", 0, 4, "a section header of 12 bytes", func() []byte {
		b := pcapng(le).b
		b[4] = 12
		return b
	}},
	{"pcapng: huge section", 0, 4, "a block of 4026531840 bytes", func() []byte {
		b := pcapng(le).b
		le.PutUint32(b[4:], 0xf0000000)
		return b
	}},
	{"pcapng: lengths differ", 1, 28 + 20 + 92 + 92 - 4, "92 bytes at its start and 91 at its end", func() []byte {
		b := pcapng(le).iface(1).enhanced(0, 0, 60, data(60, 1)).enhanced(0, 0, 60, data(60, 2)).b
		b[len(b)-4]--
		return b
	}},
	{"pcapng: block of 0 bytes", 1, 28 + 20 + 92 + 4, "of 0 bytes", func() []byte {
		return pcapng(be).iface(1).enhanced(0, 0, 60, data(60, 1)).u32(6, 0).b
	}},
	{"pcapng: block of 4 GiB", 1, 28 + 20 + 92 + 4, "a block of 4294967292 bytes", func() []byte {
		return pcapng(be).iface(1).enhanced(0, 0, 60, data(60, 1)).u32(6, 0xfffffffc, 0, 0, 0).b
	}},
	{"pcapng: unknown block of 4 GiB", 1, 28 + 20 + 92 + 20, "4294967272 bytes of a block are missing", func() []byte {
		return pcapng(be).iface(1).enhanced(0, 0, 60, data(60, 1)).u32(0x77, 0xfffffffc, 0, 0, 0).b
	}},
	{"pcapng: odd block", 0, 28 + 4, "of 13 bytes", func() []byte { return pcapng(be).u32(0x77, 13, 0, 0).b }},
	{"pcapng: captured over the block", 0, 28 + 20 + 20, "70 captured bytes in a block of 92", func() []byte {
		b := pcapng(le).iface(1).enhanced(0, 0, 70, data(60, 1)).b
		b[28+20+20] = 70
		return b
	}},
	{"pcapng: no such interface", 1, 28 + 20 + 92 + 8, "interface 7, the section has 1", func() []byte {
		return pcapng(le).iface(1).enhanced(0, 0, 60, data(60, 1)).enhanced(7, 0, 60, data(60, 1)).b
	}},
	{"pcapng: interfaces end with their section", 0, 28 + 20 + 28 + 8, "interface 0, the section has 0", func() []byte {
		return pcapng(le).iface(1).section().enhanced(0, 0, 60, data(60, 1)).b
	}},
	{"pcapng: bare IP behind Ethernet", 1, 28 + 40 + 92, "interface 1: link type 101, RAW (bare IP)", func() []byte {
		return pcapng(le).iface(1).iface(101).enhanced(0, 0, 60, data(60, 1)).enhanced(1, 0, 60, data(60, 1)).b
	}},
	{"pcapng: option out of its block", 0, 28 + 16, "option (code 2) of 200 bytes", func() []byte {
		return pcapng(le).block(1, func(w *builder) { w.u16(1, 0).u32(0).u16(2, 200).u32(0) }).b
	}},
	{"pcapng: short interface", 0, 28 + 4, "an interface block of 12 bytes", func() []byte {
		return pcapng(le).block(1, func(*builder) {}).b
	}},
	{"pcapng: short packet", 0, 28 + 20 + 4, "a packet block of 16 bytes", func() []byte {
		return pcapng(le).iface(1).block(6, func(w *builder) { w.u32(0) }).b
	}},
	{"pcapng: cut off in a block", 1, 28 + 20 + 92, "block of 92 bytes, 52 are there", func() []byte {
		return pcapng(le).iface(1).enhanced(0, 0, 60, data(60, 1)).enhanced(0, 0, 60, data(60, 2)).b[:28+20+92+52]
	}},
	{"pcapng: too many interfaces", 0, 28 + 20*65536, "more than 65536 interfaces", func() []byte {
		w := pcapng(le)
		for range 65537 {
			w.iface(1)
		}
		return w.b
	}},
}

var le, be = binary.LittleEndian, binary.BigEndian

func TestDamageIsNamedAfterTheFramesBeforeIt(t *testing.T) {
	for _, c := range bad {
		t.Run(c.name, func(t *testing.T) {
			got, err := readAll(t, c.make())
			var damage *Error
			if !errors.As(err, &damage) {
				t.Fatalf("%d frames, error %v; want an *Error", len(got), err)
			}
			if len(got) != c.frames || damage.Frames != uint64(c.frames) || damage.Offset != c.offset {
				t.Errorf("%d frames (error says %d), offset %d; want %d and %d: %v", len(got), damage.Frames, damage.Offset, c.frames, c.offset, err)
			}
			if !strings.Contains(err.Error(), c.text) || strings.Count(err.Error(), "\n") != 0 {
				t.Errorf("error %q, want one line with %q", err, c.text)
			}
		})
	}
}

func TestReadErrorsHaveTheirPlace(t *testing.T) {
	boom := errors.New("boom")
	whole := pcap(le, 0xa1b2c3d4, 1).record(0, 0, 60, data(60, 1)).b
	d, err := NewReader("test", io.MultiReader(bytes.NewReader(whole), failing{boom}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Next(); err != nil {
		t.Fatal(err)
	}
	var place *Error
	if _, err := d.Next(); !errors.Is(err, boom) || !errors.As(err, &place) || place.Offset != int64(len(whole)) {
		t.Errorf("error %v, want boom at byte %d", err, len(whole))
	}
	if _, err := NewReader("test", failing{nil}); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a source that never returns anything: %v", err)
	}
}

// failing returns no bytes and an error, or not even that.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
