package device

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"cxkit/prm"
)

// raised reports whether a vector was raised since it was asked last.
func (b *bench) raised(vector int) bool {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	// Wait prefers neither of two ready channels, so a raise that is there may take a few tries.
	for range 64 {
		err := b.fn.Wait(ctx, vector)
		if err == nil {
			return true
		}
		if !errors.Is(err, context.Canceled) {
			b.Fatal(err)
		}
	}
	return false
}

func TestCommandEventsStartAfterTheirEQ(t *testing.T) {
	b := newBench(t, Config{})
	b.bringUp()
	uar := b.allocUAR()
	e := b.newEQ(uar, 8, 3, prm.EventCommandCompletion)
	if e.next() != nil {
		t.Fatal("the CREATE_EQ of the command EQ was reported on it")
	}
	e.arm()
	if b.raised(3) {
		t.Fatal("an empty EQ interrupted")
	}
	b.post(4, bytesOf(&prm.NopIn{}), 16)
	b.post(9, bytesOf(&prm.NopIn{}), 16)
	b.settle()
	var vector uint32
	for x := e.next(); x != nil; x = e.next() {
		vector |= x.CommandVector()
	}
	if vector != 1<<4|1<<9 {
		t.Errorf("completed commands %#x, want slots 4 and 9", vector)
	}
	if !b.raised(3) {
		t.Error("no interrupt")
	}
	e.arm()
	if b.raised(3) {
		t.Error("an EQ without entries interrupted")
	}
	b.must(&prm.DestroyEQIn{EQN: e.n}, &prm.DestroyEQOut{})
	b.must(&prm.NopIn{}, &prm.NopOut{})
}

func TestDoorbellsOfOtherPagesAreIgnored(t *testing.T) {
	b := newBench(t, Config{})
	b.bringUp()
	uar, other := b.allocUAR(), b.allocUAR()
	e := b.newEQ(uar, 4, 0, prm.EventCommandCompletion)
	b.must(&prm.NopIn{}, &prm.NopOut{})
	for _, page := range []uint32{other, other + 1, uar + 1<<10} {
		b.regs.Store32(uint64(page)<<uarShift+prm.UAREQArmOff, uint32(e.n)<<24)
		b.settle()
		if b.raised(0) {
			t.Errorf("a doorbell in page %d armed an EQ of page %d", page, uar)
		}
	}
	e.arm()
	if !b.raised(0) {
		t.Error("the EQ's own doorbell did not arm it")
	}
}

func TestQueryEQShowsItsState(t *testing.T) {
	b := newBench(t, Config{})
	b.bringUp()
	uar := b.allocUAR()
	e := b.newEQ(uar, 6, 0, prm.EventCommandCompletion, prm.EventPortChange)
	query := func() prm.QueryEQOut {
		out := prm.QueryEQOut{PAS: make([]uint64, 1)}
		b.must(&prm.QueryEQIn{EQN: e.n}, &out)
		return out
	}
	out := query()
	if out.Context.LogEQSize != 6 || out.Context.UARPage != uar || len(out.PAS) != 1 || out.PAS[0] != e.ring.Bus ||
		out.EventBitmask != 1<<prm.EventCommandCompletion|1<<prm.EventPortChange {
		t.Errorf("context %+v, mask %#x, pages %#x", out.Context, out.EventBitmask, out.PAS)
	}
	e.next()
	e.arm() // the query's own completion fires it
	if out = query(); out.Context.ST != prm.EQStateArmed || out.Context.ConsumerCounter != 1 || out.Context.ProducerCounter != 1 {
		t.Errorf("armed: %+v", out.Context)
	}
	if out = query(); out.Context.ST != prm.EQStateFired || out.Context.ProducerCounter != 2 {
		t.Errorf("fired: %+v", out.Context)
	}
}

func TestGenEQEReachesItsEQ(t *testing.T) {
	b := newBench(t, Config{})
	b.bringUp()
	e := b.newEQ(b.allocUAR(), 4, 1)
	e.arm()
	in := prm.GenEQEIn{EQN: e.n}
	in.EQE[1], in.EQE[0x3b], in.EQE[63] = 0x22, 9, 1
	b.must(&in, &prm.GenEQEOut{})
	if x := e.next(); x == nil || x.EventType() != 0x22 || x[0x3b] != 9 || !b.raised(1) {
		t.Errorf("injected entry % x", x)
	}
}

func TestOverrunOfAnEQShowsInHealth(t *testing.T) {
	b := newBench(t, Config{})
	b.bringUp()
	b.newEQ(b.allocUAR(), 2, 0, prm.EventCommandCompletion)
	for range 4 {
		b.must(&prm.NopIn{}, &prm.NopOut{})
	}
	if v := b.regs.Load32(regHealth + 0x3c); v != 0 {
		t.Fatalf("syndrome %#x with a full EQ", v)
	}
	b.must(&prm.NopIn{}, &prm.NopOut{})
	if v := b.regs.Load32(regHealth + 0x3c); prm.HealthSyndrome(v>>16) != prm.HealthAsyncEQOverrun {
		t.Errorf("health dword %#x, want syndrome %#x", v, uint8(prm.HealthAsyncEQOverrun))
	}
	if v := b.regs.Load32(regHealthCounter); v>>24 != uint32(prm.HealthAsyncEQOverrun) {
		t.Errorf("health counter register %#x", v)
	}
	var out prm.QueryVNICEnvOut
	b.must(&prm.QueryVNICEnvIn{}, &out)
	if out.VportEnv.AsyncEQOverrun != 1 {
		t.Errorf("async_eq_overrun %d", out.VportEnv.AsyncEQOverrun)
	}
}

// TestObjectWaitsForItsPages: firmware that has no memory left asks for it by event, in the middle of a
// command, and everything else goes on meanwhile.
func TestObjectWaitsForItsPages(t *testing.T) {
	b := newBench(t, Config{Memory: Memory{Init: 100, Included: -1}})
	b.bringUp()
	in := bytesOf(&prm.AllocUARIn{})
	if status, syn, _ := b.raw(in, 16); status != prm.StatusNoResources || syn != synNoPageEvents {
		t.Fatalf("no memory and nobody to ask: %v: %v", status, syn)
	}
	b.give(8)
	e := b.newEQ(b.allocUAR(), 6, 0, prm.EventPageRequest)
	// Use up what was given.
	for i := 0; ; i++ {
		if i == 1000 {
			t.Fatal("objects take no memory")
		}
		b.post(1, bytesOf(&prm.AllocQCounterIn{}), 16)
		b.settle()
		if b.owned(1) {
			break
		}
	}
	x := e.next()
	if x == nil || x.EventType() != prm.EventPageRequest {
		t.Fatalf("no page request: % x", x)
	}
	wants := int32(binary.BigEndian.Uint32(x[0x24:]))
	if wants != askStep || e.next() != nil {
		t.Fatalf("firmware asks for %d pages", wants)
	}
	if w := b.card.Books().Functions[0].Waiting; w != 1 {
		t.Fatalf("%d commands wait", w)
	}
	b.must(&prm.NopIn{}, &prm.NopOut{})
	b.post(2, bytesOf(&prm.AllocQCounterIn{}), 16)
	b.settle()
	if !b.owned(2) {
		t.Fatal("a second command did not wait")
	}
	b.give(int(wants))
	b.settle()
	if b.owned(1) || b.owned(2) {
		t.Fatal("commands still wait after their pages were given")
	}
	if d, out := b.answer(1, 16, 16); d != 0 || out[0] != 0 || out[11] == 0 {
		t.Errorf("answer %v % x", d, out)
	}
}

func TestHostWithoutMemoryFailsTheCommand(t *testing.T) {
	b := newBench(t, Config{Memory: Memory{Init: -1, Boot: -1, Included: -1}})
	b.bringUp()
	b.give(4)
	e := b.newEQ(b.allocUAR(), 6, 0, prm.EventPageRequest)
	for range 20 {
		b.post(1, bytesOf(&prm.AllocQCounterIn{}), 16)
		b.settle()
		if b.owned(1) {
			break
		}
	}
	if !b.owned(1) || e.next() == nil {
		t.Fatal("the command did not wait for pages")
	}
	b.must(&prm.ManagePagesIn{OpMod: uint16(prm.PagesCantGive)}, &prm.ManagePagesOut{})
	if b.owned(1) {
		t.Fatal("the command still waits")
	}
	if _, out := b.answer(1, 16, 16); prm.Status(out[0]) != prm.StatusNoResources {
		t.Errorf("status %v", prm.Status(out[0]))
	}
}

// TestReclaimGoesFiftyThousandAtATime: firmware with more spare pages than a command may return offers
// them again until all are back (reports R01, R02).
func TestReclaimGoesFiftyThousandAtATime(t *testing.T) {
	b := newBench(t, Config{Memory: Memory{Init: 10}})
	b.bringUp()
	e := b.newEQ(b.allocUAR(), 8, 0, prm.EventPageRequest)
	const spare = 120_000
	for given := 0; given < spare; given += 40_000 {
		b.give(40_000)
	}
	var sizes []int32
	returned := map[uint64]bool{}
	for x := e.next(); x != nil; x = e.next() {
		n := int32(binary.BigEndian.Uint32(x[0x24:]))
		sizes = append(sizes, n)
		in := bytesOf(&prm.ManagePagesIn{OpMod: uint16(prm.PagesTake), InputNumEntries: uint32(-n)})
		outLen := 16 + 8*min(int(-n), 50_000)
		status, syn, out := b.raw(in, outLen)
		if status != prm.StatusOK {
			t.Fatalf("take %d pages: %v: %v", -n, status, syn)
		}
		count := int(binary.BigEndian.Uint32(out[8:]))
		if count > 50_000 || count > int(-n) {
			t.Fatalf("%d pages came back of %d", count, -n)
		}
		for i := range count {
			addr := binary.BigEndian.Uint64(out[16+8*i:])
			if returned[addr] || addr < 1<<44 || addr >= b.nextPA || addr%4096 != 0 {
				t.Fatalf("page %#x was never given, or comes back twice", addr)
			}
			returned[addr] = true
		}
	}
	// The first event came as soon as the first 40,000 were spare.
	if len(returned) != spare || len(sizes) < 3 {
		t.Errorf("%d pages came back in %v", len(returned), sizes)
	}
	if got := b.card.Books().Functions[0].Pages; got != 16 {
		t.Errorf("firmware holds %d pages, want 16", got)
	}
}

func TestTeardownGivesEverythingBack(t *testing.T) {
	b := newBench(t, Config{})
	b.bringUp()
	uar := b.allocUAR()
	b.newEQ(uar, 4, 0, prm.EventCommandCompletion)
	var pd prm.AllocPDOut
	b.must(&prm.AllocPDIn{}, &pd)
	books := b.card.Books().Functions[0]
	if books.Objects["eq"] != 1 || books.Objects["uar"] != 1 || books.Objects["pd"] != 1 || books.Clean() {
		t.Fatalf("books %+v", books)
	}
	b.must(&prm.TeardownHCAIn{}, &prm.TeardownHCAOut{})
	b.refused(&prm.DisableHCAIn{}, &prm.DisableHCAOut{}, prm.StatusBadResourceState, synPagesOut)
	out := prm.ManagePagesOut{PAS: make([]uint64, 600)}
	b.must(&prm.ManagePagesIn{OpMod: uint16(prm.PagesTake), InputNumEntries: 600}, &out)
	if out.OutputNumEntries != 518 {
		t.Errorf("%d pages came back", out.OutputNumEntries)
	}
	b.must(&prm.DisableHCAIn{}, &prm.DisableHCAOut{})
	if books = b.card.Books().Functions[0]; !books.Clean() || books.Phase != "live" {
		t.Errorf("books %+v", books)
	}
	// And again, from the start.
	b.bringUp()
}

func TestFastTeardownEndsByNICInterface(t *testing.T) {
	b := newBench(t, Config{})
	b.bringUp()
	b.newEQ(b.allocUAR(), 4, 0, prm.EventCommandCompletion)
	b.must(&prm.TeardownHCAIn{Profile: prm.TeardownPrepareFast}, &prm.TeardownHCAOut{})
	low := b.regs.Load32(regCmdqLow)
	b.regs.Store32(regCmdqLow, low&0xfffff000|uint32(prm.NICInterfaceDisabled)<<8)
	b.settle()
	if v := b.regs.Load32(regCmdqLow); v>>8&7 != uint32(prm.NICInterfaceDisabled) || v&0xfffff000 != low&0xfffff000 {
		t.Errorf("register %#x after it was %#x", v, low)
	}
	if len(b.card.Books().Functions[0].Objects) != 0 {
		t.Error("objects are left")
	}
	b.post(0, bytesOf(&prm.NopIn{}), 16)
	b.settle()
	if !b.owned(0) {
		t.Error("a disabled function runs commands")
	}
}

func TestSoftwareResetForgetsEverything(t *testing.T) {
	b := newBench(t, Config{})
	b.bringUp()
	b.regs.Store32(regCmdqLow, b.regs.Load32(regCmdqLow)&0xfffff000|uint32(prm.NICInterfaceSWReset)<<8)
	b.settle()
	if v := b.regs.Load32(regCmdqLow); v>>8&7 != uint32(prm.NICInterfaceDisabled) {
		t.Errorf("nic_interface %d after a software reset", v>>8&7)
	}
	if books := b.card.Books().Functions[0]; !books.Clean() {
		t.Errorf("books %+v", books)
	}
	b.bringUp()
}

func TestFunctionLevelResetPulsesInitializing(t *testing.T) {
	b := newBench(t, Config{BootTime: 10 * time.Millisecond})
	b.bringUp()
	b.newEQ(b.allocUAR(), 4, 0, prm.EventCommandCompletion)
	if err := b.fn.WriteConfig(0x60+8, []byte{0x10, 0xa8}); err != nil { // Device Control bit 15
		t.Fatal(err)
	}
	if books := b.card.Books().Functions[0]; !books.Clean() || !books.Attached {
		t.Errorf("books %+v", books)
	}
	if v := b.regs.Load32(regInitializing); v>>31 != 1 {
		t.Errorf("initializing reads %#x right after the reset", v)
	}
	if hi, lo := b.regs.Load32(regCmdqHigh), b.regs.Load32(regCmdqLow); hi != 0 || lo != logCmdqSize<<4|logCmdqStride {
		t.Errorf("command queue registers %#x, %#x", hi, lo)
	}
	b.clock.advance(10 * time.Millisecond)
	if v := b.regs.Load32(regInitializing); v>>31 != 0 {
		t.Errorf("initializing reads %#x after boot", v)
	}
	if err := b.fn.WriteConfig(4, []byte{0x06, 0x04}); err != nil {
		t.Fatal(err)
	}
	b.bringUp()
}

func TestInitSegmentReads(t *testing.T) {
	b := newBench(t, Config{})
	b.regs.Store32(regCmdqHigh, 0x12345678)
	b.regs.Store32(regCmdqLow, 0x9abcd000)
	if hi, lo := b.regs.Load32(regCmdqHigh), b.regs.Load32(regCmdqLow); hi != 0x12345678 || lo != 0x9abcd000|logCmdqSize<<4|logCmdqStride {
		t.Errorf("an address reads back as %#x, %#x before the engine ran", hi, lo)
	}
	for off, want := range map[uint64]uint32{0: 35<<16 | 16, 4: 5<<16 | 3006, 0x230: 16<<24 | 35<<16 | 3006, 0x5000: 0, 0xff8: 60_000} {
		if v := b.regs.Load32(off); v != want {
			t.Errorf("register %#x: %#x, want %#x", off, v, want)
		}
	}
	before, timer := b.regs.Load32(regHealthCounter), b.regs.Load32(regTimerLow)
	b.clock.advance(2 * time.Second)
	if b.regs.Load32(regHealthCounter) == before {
		t.Error("the health counter stands still")
	}
	if ticks := b.regs.Load32(regTimerLow) - timer; ticks != 2_000_000_000 {
		t.Errorf("internal timer moved by %d in two seconds at 1 GHz", ticks)
	}
}
