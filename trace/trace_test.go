package trace

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

// ticking is a clock that advances a microsecond a call.
func ticking() func() time.Duration {
	var now time.Duration
	return func() time.Duration { now += time.Microsecond; return now }
}

// fill records one of each kind.
func fill(r *Recorder) {
	d, c := r.For(Driver, "0000:08:00.0"), r.For(Device, "0000:08:00.0")
	d.RegisterWrite(0, 0x18, 4, 1)
	d.CommandIn(0, 0x104, []byte{1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, "")
	c.CommandOut(0, 0x104, []byte{3, 0, 0, 0, 0x12, 0x34, 0x56, 0x78}, 0x40, "function 7 does not exist\nnor 8")
	eqe := make([]byte, 64)
	eqe[1] = 0xb
	c.Event(4, eqe, "")
	d.Doorbell(BellSQ, 0x2a, 17)
	d.Note("closing")
}

func TestTextFormIsStable(t *testing.T) {
	r := New(Config{Clock: ticking(), Kinds: All})
	fill(r)
	var b bytes.Buffer
	if err := WriteText(&b, r.Last(-1)); err != nil {
		t.Fatal(err)
	}
	const want = `# cxkit trace 1
[    0.000001000] driver 0000:08:00.0: write bar 0 offset 0x18 size 4 value 0x1
[    0.000002000] driver 0000:08:00.0: cmd[0]: dump command data ENABLE_HCA(0x104) INPUT
cmd[0]: 000: 01040000 00000000 00000000 00000000
  size 12
[    0.000003000] device 0000:08:00.0: cmd[0]: dump command data ENABLE_HCA(0x104) OUTPUT
cmd[0]: 000: 03000000 12345678 00000000 00000000
  size 8
  delivery 0x40
  why "function 7 does not exist\nnor 8"
[    0.000004000] device 0000:08:00.0: event eqn 4 type PAGE_REQUEST(0xb)
eqe[4] 000 000b0000 00000000 00000000 00000000
eqe[4] 010 00000000 00000000 00000000 00000000
eqe[4] 020 00000000 00000000 00000000 00000000
eqe[4] 030 00000000 00000000 00000000 00000000
[    0.000005000] driver 0000:08:00.0: doorbell sq 0x2a value 0x11
[    0.000006000] driver 0000:08:00.0: note "closing"
`
	if got := b.String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestReadReturnsWhatWasWritten(t *testing.T) {
	r := New(Config{Clock: ticking(), Kinds: All})
	fill(r)
	r.For(Driver, "").CommandIn(31, 0xffff, []byte{1, 2, 3, 4, 5, 6, 7}, "odd length")
	want := r.Last(-1)
	var b bytes.Buffer
	if err := WriteText(&b, want); err != nil {
		t.Fatal(err)
	}
	got, err := Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestWriterGetsEveryRecordUncut(t *testing.T) {
	var b bytes.Buffer
	r := New(Config{Records: 2, Bytes: 16, Kinds: All, Writer: &b, Clock: ticking()})
	fill(r)
	got, err := Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 6 || len(got[3].Data) != 64 {
		t.Errorf("%d records with an event of %d bytes, want 6 with 64", len(got), len(got[3].Data))
	}
}

func TestRingKeepsTheLatestRecords(t *testing.T) {
	r := New(Config{Records: 4})
	l := r.For(Driver, "f")
	for i := range 10 {
		l.Note(fmt.Sprint(i))
	}
	got := r.Last(3)
	if len(got) != 3 || got[0].Text != "7" || got[2].Text != "9" || got[2].Seq != 9 {
		t.Errorf("Last(3) = %v", got)
	}
	if n := len(r.Last(-1)); n != 4 {
		t.Errorf("%d records held, want 4", n)
	}
	if r.Lost() != 6 {
		t.Errorf("lost %d, want 6", r.Lost())
	}
}

func TestRingDropsRecordsWhoseBytesAreOverwritten(t *testing.T) {
	r := New(Config{Records: 100, Bytes: 64})
	l := r.For(Driver, "f")
	for i := range 20 {
		l.CommandIn(i, 1, bytes.Repeat([]byte{byte(i)}, 15), "")
	}
	got := r.Last(-1)
	if len(got) != 4 {
		t.Fatalf("%d records held, want the 4 that fit", len(got))
	}
	for i, rec := range got {
		if want := bytes.Repeat([]byte{byte(16 + i)}, 15); !bytes.Equal(rec.Data, want) {
			t.Errorf("record %d holds % x", i, rec.Data)
		}
	}
}

func TestLongDataIsCutAndItsLengthKept(t *testing.T) {
	r := New(Config{Bytes: 64})
	r.For(Driver, "f").CommandIn(0, 1, make([]byte, 1000), "")
	rec := r.Last(1)[0]
	if len(rec.Data) != 16 || rec.Length != 1000 {
		t.Errorf("%d bytes of %d, want 16 of 1000", len(rec.Data), rec.Length)
	}
	var b bytes.Buffer
	if err := WriteText(&b, []Record{rec}); err != nil {
		t.Fatal(err)
	}
	got, err := Read(&b)
	if err != nil || got[0].Length != 1000 || len(got[0].Data) != 16 {
		t.Errorf("read back %+v, %v", got, err)
	}
}

func TestKindsThatAreOffLeaveNothing(t *testing.T) {
	r := New(Config{})
	l := r.For(Driver, "f")
	l.Doorbell(BellSQ, 1, 2)
	if n := len(r.Last(-1)); n != 0 {
		t.Errorf("%d records of a kind that is off", n)
	}
}

func TestNilRecorderDoesNothing(t *testing.T) {
	var r *Recorder
	l := r.For(Driver, "f")
	if l != nil || l.On() || l.Has(Note) {
		t.Error("log of a nil recorder is on")
	}
	l.Note("x")
	l.CommandIn(0, 0, nil, "")
	l.CommandOut(0, 0, nil, 0, "")
	l.Event(0, nil, "")
	l.Doorbell(BellRQ, 0, 0)
	l.RegisterWrite(0, 0, 4, 0)
	if r.Last(-1) != nil || r.Lost() != 0 || r.Err() != nil {
		t.Error("a nil recorder holds something")
	}
}

func TestRecordingAllocatesNothing(t *testing.T) {
	for name, r := range map[string]*Recorder{"off": nil, "on": New(Config{Kinds: All})} {
		l := r.For(Driver, "0000:08:00.0")
		if n := testing.AllocsPerRun(1000, func() {
			var in [64]byte
			l.CommandIn(1, 0x104, in[:], "why")
			l.CommandOut(1, 0x104, in[:], 0, "")
			l.Event(3, in[:], "")
			l.Doorbell(BellSQ, 1, 2)
			l.RegisterWrite(0, 0x18, 4, 1)
			l.Note("note")
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestRecorderMayBeUsedFromManyGoroutines(t *testing.T) {
	r := New(Config{Records: 50, Bytes: 1000, Kinds: All})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			l := r.For(Device, "f")
			for i := range 200 {
				l.CommandIn(g, 1, bytes.Repeat([]byte{byte(g)}, i%40), "")
				for _, rec := range r.Last(5) {
					for _, b := range rec.Data {
						if int(b) != rec.Slot {
							t.Errorf("record of slot %d holds byte %d", rec.Slot, b)
							return
						}
					}
				}
			}
		})
	}
	wg.Wait()
	if got := r.Lost() + uint64(len(r.Last(-1))); got != 1600 {
		t.Errorf("%d records lost or held, want 1600", got)
	}
}

type failing struct{ calls int }

func (f *failing) Write([]byte) (int, error) { f.calls++; return 0, errors.New("disk full") }

func TestWriterErrorIsKeptAndEndsWriting(t *testing.T) {
	f := &failing{}
	r := New(Config{Writer: f})
	fill(r)
	if r.Err() == nil || f.calls != 1 {
		t.Errorf("error %v after %d calls, want the first one's", r.Err(), f.calls)
	}
}

func TestReadNamesTheLineAtFault(t *testing.T) {
	const good = "[    0.000000001] driver f: note \"\"\n"
	const zeros = "00000000 00000000 00000000 00000000\n"
	for text, why := range map[string]string{
		"cmd[0]: 000: " + zeros:                                                    "line 1: data before",
		good + "cmd[0]: 000: " + zeros:                                             "line 2: a note has no data",
		good + "  why \"x\"\n":                                                     "line 2: a note has no data",
		"[    0.000000001] nobody f: note \"\"\n":                                  "line 1: unknown side",
		"[    0.1] driver f: note \"\"\n":                                          "line 1: time",
		"[    0.000000001] driver f: song\n":                                       "line 1: unknown record",
		"[    0.000000001] driver f: note x\n":                                     "line 1: \"x\" is not a quoted",
		"[    0.000000001] driver f: note \"\" extra\n":                            "line 1: ",
		"[    0.000000001] driver f: doorbell big 0x1 value 0x2\n":                 "line 1: unknown doorbell",
		"[    0.000000001] driver f: doorbell sq 0x1 value 0x2 extra\n":            "line 1: unexpected",
		"[    0.000000001] driver f: cmd[0]: dump command data X(0x1) SIDEWAYS\n":  "line 1: neither INPUT",
		"[    0.000000001] driver f: cmd[0]: dump command data X(0x12345) INPUT\n": "line 1: \"0x12345\"",
		command + "cmd[1]: 000: " + zeros:                                          "line 2: data of slot 1",
		command + "cmd[0]: 010: " + zeros:                                          "line 2: offset 0x10",
		command + "cmd[0]: 000: " + zeros + "  size 4\ncmd[0]: 004: " + zeros:      "line 4: offset 0x4",
		command + "cmd[0]: 000: " + zeros + "  size 17\n":                          "line 3: size 17 of 16",
		command + "cmd[0]: 000: " + zeros + "  size 0\n":                           "line 3: size 0 of 16",
		command + "cmd[0]: 000: " + zeros + "  length 16\n":                        "line 3: length 16 of 16",
		command + "  delivery 0x1\n":                                               "line 2: ",
		command + "cmd[0]: 000: 0000000g 00000000 00000000 00000000\n":             "line 2: \"0000000g",
		command + "cmd[0]: 000: 00000000\n":                                        "line 2: \"00000000\" is not a line",
		command + "cmd[0]: 000: 000000000 0000000 00000000 00000000\n":             "line 2:",
	} {
		_, err := Read(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("Read(%q): %v, want %q", text, err, why)
		}
		var te *TextError
		if !errors.As(err, &te) {
			t.Errorf("Read(%q): %T", text, err)
		}
	}
}

const command = "[    0.000000001] driver f: cmd[0]: dump command data X(0x1) INPUT\n"

func TestReadKeepsRecordsBeforeTheFault(t *testing.T) {
	got, err := Read(strings.NewReader(command + "cmd[0]: 000: 00010000 00000000 00000000 00000000\n  size 4\nrubbish\n"))
	if err == nil || len(got) != 1 || len(got[0].Data) != 4 {
		t.Errorf("got %v, %v; want one record and an error", got, err)
	}
}

func FuzzRead(f *testing.F) {
	r := New(Config{Clock: ticking(), Kinds: All})
	fill(r)
	var b bytes.Buffer
	if err := WriteText(&b, r.Last(-1)); err != nil {
		f.Fatal(err)
	}
	f.Add(b.String())
	f.Fuzz(func(t *testing.T, text string) {
		records, _ := Read(strings.NewReader(text))
		var b bytes.Buffer
		if err := WriteText(&b, records); err != nil {
			t.Fatal(err)
		}
		again, err := Read(bytes.NewReader(b.Bytes()))
		if err != nil {
			t.Fatalf("%v\nin %s", err, b.String())
		}
		if !reflect.DeepEqual(again, records) {
			t.Fatalf("got  %+v\nwant %+v", again, records)
		}
	})
}

func BenchmarkCommandIn(b *testing.B) {
	for name, r := range map[string]*Recorder{"off": nil, "on": New(Config{})} {
		b.Run(name, func(b *testing.B) {
			l := r.For(Driver, "0000:08:00.0")
			var in [64]byte
			for b.Loop() {
				l.CommandIn(1, 0x104, in[:], "")
			}
		})
	}
}
