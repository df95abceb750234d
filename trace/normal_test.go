package trace

import (
	"bytes"
	"encoding/binary"
	"testing"

	"cxkit/prm"
)

// session records what a driver does to make an EQ, a CQ and a RQT, with numbers and places as given.
func session(base uint64, n uint32) []Record {
	r := New(Config{Kinds: All})
	l := r.For(Driver, "0000:08:00.0")
	size := binary.Size(uint64(0))

	in := make([]byte, 0x110+2*size)
	binary.BigEndian.PutUint16(in, uint16(prm.OpCreateCQ))
	binary.BigEndian.PutUint32(in[0x10+0x0c:], 10<<24|n+7) // log size, UAR
	binary.BigEndian.PutUint32(in[0x10+0x14:], n)          // EQN
	binary.BigEndian.PutUint64(in[0x10+0x38:], base+0x1040)
	binary.BigEndian.PutUint64(in[0x110:], base+0x2000)
	binary.BigEndian.PutUint64(in[0x118:], base+0x1000)
	l.CommandIn(0, uint16(prm.OpCreateCQ), in, "")

	out := make([]byte, 16)
	binary.BigEndian.PutUint32(out[8:], n+100)
	l.CommandOut(0, uint16(prm.OpCreateCQ), out, 0, "")

	rqt := make([]byte, 0x110+8)
	binary.BigEndian.PutUint16(rqt, uint16(prm.OpCreateRQT))
	binary.BigEndian.PutUint32(rqt[0x110:], n+5)
	binary.BigEndian.PutUint32(rqt[0x114:], n+6)
	l.CommandIn(1, uint16(prm.OpCreateRQT), rqt, "")

	eqe := make([]byte, 64)
	binary.BigEndian.PutUint32(eqe[0x38:], n+100)
	l.Event(n, eqe, "")
	l.Doorbell(BellCQArm, n+100, 3)
	return r.Last(-1)
}

func TestNormalisedRunsAreTheSame(t *testing.T) {
	var texts [2]bytes.Buffer
	for i, run := range [][]Record{session(0x1_0000_0000, 3), session(0x7f12_3456_7000, 77)} {
		before := textOf(t, run)
		if err := WriteText(&texts[i], Normalise(run)); err != nil {
			t.Fatal(err)
		}
		if textOf(t, run) != before {
			t.Error("Normalise changed what it was given")
		}
	}
	if texts[0].String() != texts[1].String() {
		t.Errorf("runs differ:\n%s\n%s", &texts[0], &texts[1])
	}
}

func TestNormaliseCountsFromOneAndKeepsPlacesInPages(t *testing.T) {
	got := Normalise(session(0x1_0000_0000, 3))
	in := got[0].Data
	for what, v := range map[string][2]uint64{
		"UAR":             {uint64(binary.BigEndian.Uint32(in[0x1c:])), 10<<24 | 1},
		"EQN":             {uint64(binary.BigEndian.Uint32(in[0x24:])), 1},
		"doorbell record": {binary.BigEndian.Uint64(in[0x48:]), 1<<12 | 0x40},
		"first page":      {binary.BigEndian.Uint64(in[0x110:]), 2 << 12},
		"second page":     {binary.BigEndian.Uint64(in[0x118:]), 1 << 12},
		"CQN":             {uint64(binary.BigEndian.Uint32(got[1].Data[8:])), 1},
		"RQ 1":            {uint64(binary.BigEndian.Uint32(got[2].Data[0x110:])), 1},
		"RQ 2":            {uint64(binary.BigEndian.Uint32(got[2].Data[0x114:])), 2},
		"event's CQN":     {uint64(binary.BigEndian.Uint32(got[3].Data[0x38:])), 1},
		"event's EQN":     {uint64(got[3].Number), 1},
		"doorbell's CQN":  {uint64(got[4].Number), 1},
		"doorbell":        {got[4].Value, 3},
	} {
		if v[0] != v[1] {
			t.Errorf("%s is %#x, want %#x", what, v[0], v[1])
		}
	}
}

func TestNormaliseKeepsDifferencesThatCount(t *testing.T) {
	a, b := session(0x1_0000_0000, 3), session(0x1_0000_0000, 3)
	binary.BigEndian.PutUint64(b[0].Data[0x118:], 0x1_0000_2000) // the same page twice
	if textOf(t, Normalise(a)) == textOf(t, Normalise(b)) {
		t.Error("a page listed twice is not seen")
	}
}

func textOf(t *testing.T, records []Record) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteText(&b, records); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func FuzzNormalise(f *testing.F) {
	f.Add(uint16(prm.OpCreateCQ), make([]byte, 0x120))
	f.Fuzz(func(t *testing.T, op uint16, data []byte) {
		for _, kind := range []Kind{CommandIn, CommandOut, Event} {
			rec := []Record{{Side: Driver, Kind: kind, Opcode: op, Data: data}}
			got := Normalise(Normalise(rec))
			if want := Normalise(rec); !bytes.Equal(got[0].Data, want[0].Data) {
				t.Fatalf("%s %#x: normalised twice % x, once % x", kind, op, got[0].Data, want[0].Data)
			}
		}
	})
}
