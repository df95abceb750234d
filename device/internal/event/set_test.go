package event

import (
	"encoding/binary"
	"testing"

	"cxkit/device/internal/ring"
	"cxkit/dma"
	"cxkit/pci"
	"cxkit/prm"
)

// space is one page of memory; without views it is reached by messages only.
type space struct {
	page    []byte
	noViews bool
	gone    bool
}

func (m *space) View(addr uint64, n int, _ pci.Access) []byte {
	if m.noViews || m.gone || addr+uint64(n) > uint64(len(m.page)) {
		return nil
	}
	return m.page[addr : addr+uint64(n)]
}

func (m *space) copyTo(p []byte, addr uint64, f func(a, b []byte) int) error {
	if m.gone || addr+uint64(len(p)) > uint64(len(m.page)) {
		return &pci.DMAError{Addr: addr, Len: len(p), Why: "unmapped"}
	}
	f(p, m.page[addr:])
	return nil
}

func (m *space) ReadAt(p []byte, addr uint64) error {
	return m.copyTo(p, addr, func(a, b []byte) int { return copy(a, b) })
}

func (m *space) WriteAt(p []byte, addr uint64) error {
	return m.copyTo(p, addr, func(a, b []byte) int { return copy(b, a) })
}

func (m *space) Generation() uint64 { return 0 }
func (m *space) Enter()             {}
func (m *space) Leave()             {}

// fixture is a set with one EQ of four entries.
type fixture struct {
	*Set
	mem    *space
	eq     *EQ
	raised []int
	failed []uint8
}

func newFixture(t *testing.T, eq *EQ) *fixture {
	a, err := dma.New(4096, dma.Heap)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{mem: &space{page: a.Bytes()}, eq: eq}
	for i := range 4 {
		f.mem.page[64*i+63] = 1
	}
	f.Set = NewSet(Config{
		Memory: func() pci.Memory { return f.mem },
		Raise:  func(v int) { f.raised = append(f.raised, v) },
		Failed: func(n uint8, _ bool) { f.failed = append(f.failed, n) },
		Count:  8,
	})
	eq.Ring = ring.New([]uint64{0}, 12, 0, pci.Read|pci.Write)
	eq.LogSize = 2
	if _, ok := f.Add(eq); !ok {
		t.Fatal("no room for an EQ")
	}
	return f
}

func (f *fixture) entry(i int) []byte { return f.mem.page[64*i : 64*i+64] }

func TestOwnerBitIsTheParityOfThePass(t *testing.T) {
	for _, noViews := range []bool{false, true} {
		f := newFixture(t, &EQ{})
		f.mem.noViews = noViews
		for i := range 12 {
			f.Completion(f.eq.Number(), uint32(100+i))
			e := f.entry(i % 4)
			if got, want := e[63], byte(i/4&1); got != want {
				t.Fatalf("entry %d: owner %d, want %d", i, got, want)
			}
			if n := binary.BigEndian.Uint32(e[0x38:]); n != uint32(100+i) || e[1] != 0 {
				t.Fatalf("entry %d: type %d, CQ %d", i, e[1], n)
			}
			f.Doorbell(f.eq, uint32(i+1), false)
		}
	}
}

func TestOneInterruptAnArm(t *testing.T) {
	f := newFixture(t, &EQ{Vector: 5})
	f.Completion(1, 1)
	if len(f.raised) != 0 {
		t.Fatal("an EQ that was never armed interrupted")
	}
	f.Doorbell(f.eq, 0, true)
	if len(f.raised) != 1 || f.raised[0] != 5 {
		t.Fatalf("arming with an entry pending raised %v", f.raised)
	}
	f.Completion(1, 2)
	if len(f.raised) != 1 {
		t.Fatal("a fired EQ interrupted again")
	}
	f.Doorbell(f.eq, 2, true)
	f.Doorbell(f.eq, 2, true)
	if len(f.raised) != 1 {
		t.Fatal("an EQ without entries interrupted")
	}
	f.Completion(1, 3)
	f.Completion(1, 4)
	if len(f.raised) != 2 {
		t.Fatalf("%d interrupts after two arms", len(f.raised))
	}
	f.Doorbell(f.eq, 3, false)
	f.Completion(1, 5)
	if len(f.raised) != 2 {
		t.Fatal("an update without arming led to an interrupt")
	}
	f.Doorbell(f.eq, 4, true) // one entry is left
	if len(f.raised) != 3 {
		t.Fatal("arming with an entry left did not fire")
	}
}

func TestEventsGoToWhoAskedLast(t *testing.T) {
	f := newFixture(t, &EQ{Mask: [4]uint64{1 << prm.EventPortChange}})
	f.Post(prm.EventCQError, 0, nil)
	if f.Unsubscribed != 1 || f.entry(0)[63] != 1 {
		t.Fatal("an event nobody subscribed to was delivered")
	}
	second := &EQ{Mask: [4]uint64{1 << prm.EventPortChange}, LogSize: 2, Ring: ring.New([]uint64{0}, 12, 256, pci.Write)}
	n, _ := f.Add(second)
	f.Post(prm.EventPortChange, 4, nil)
	if e := f.entry(4); e[1] != byte(prm.EventPortChange) || e[3] != 4 {
		t.Fatalf("the EQ created last did not get the event: % x", e[:4])
	}
	f.Remove(n)
	f.Post(prm.EventPortChange, 1, nil)
	if e := f.entry(0); e[1] != byte(prm.EventPortChange) || e[3] != 1 {
		t.Fatalf("the older EQ did not get its type back: % x", e[:4])
	}
}

func TestOverrunStopsAnEQ(t *testing.T) {
	f := newFixture(t, &EQ{})
	for i := range 4 {
		f.Completion(1, uint32(i))
	}
	if len(f.failed) != 0 {
		t.Fatal("a full EQ is no overrun")
	}
	f.Completion(1, 9)
	if len(f.failed) != 1 || f.eq.Status() != StatusOverrun || f.CompletionOverruns != 1 {
		t.Fatalf("overrun: failed %v, status %v", f.failed, f.eq.Status())
	}
	if n := binary.BigEndian.Uint32(f.entry(0)[0x38:]); n != 0 {
		t.Error("an entry the driver has not read was overwritten")
	}

	f = newFixture(t, &EQ{OverrunIgnore: true})
	for i := range 5 {
		f.Completion(1, uint32(10+i))
	}
	if len(f.failed) != 0 || binary.BigEndian.Uint32(f.entry(0)[0x38:]) != 14 {
		t.Error("an EQ that ignores overrun did not write on")
	}
}

func TestUnwritableRingStopsAnEQ(t *testing.T) {
	f := newFixture(t, &EQ{})
	f.mem.gone = true
	f.Completion(1, 1)
	f.Completion(1, 1)
	if len(f.failed) != 1 || f.eq.Status() != StatusWriteFailure {
		t.Errorf("failed %v, status %v", f.failed, f.eq.Status())
	}
}

func TestConsumerAheadOfProducerIsIgnored(t *testing.T) {
	f := newFixture(t, &EQ{})
	f.Completion(1, 1)
	for _, ci := range []uint32{2, 1000, counterMask} {
		if f.Doorbell(f.eq, ci, true) {
			t.Errorf("consumer counter %d accepted with one entry written", ci)
		}
	}
	if len(f.raised) != 0 || f.eq.Armed() {
		t.Error("a bad doorbell armed the EQ")
	}
	if _, ci := f.eq.Counters(); ci != 0 {
		t.Errorf("consumer counter moved to %d", ci)
	}
}

func TestCountersWrapAt24Bits(t *testing.T) {
	f := newFixture(t, &EQ{})
	f.eq.producer, f.eq.consumer = counterMask, counterMask
	f.Completion(1, 1)
	if p, _ := f.eq.Counters(); p != 0 {
		t.Fatalf("producer %d after the last of 24 bits", p)
	}
	if !f.Doorbell(f.eq, 0, true) || len(f.raised) != 0 {
		t.Error("counters that wrapped are not equal")
	}
}

func TestPostingDoesNotAllocate(t *testing.T) {
	f := newFixture(t, &EQ{OverrunIgnore: true})
	if n := testing.AllocsPerRun(100, func() { f.Completion(1, 7) }); n != 0 {
		t.Errorf("%v allocations an event", n)
	}
}
