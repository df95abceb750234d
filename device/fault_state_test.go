package device

import (
	"encoding/binary"
	"testing"
	"time"

	"cxkit/device/wire"
	"cxkit/pci"
	"cxkit/prm"

	faults "cxkit/device/fault"
)

func (b *bench) healthCounter() uint32 { return b.regs.Load32(regHealthCounter) & 0xffffff }

func TestFaultHangStopsFirmwareForAWhile(t *testing.T) {
	b := newFaultBench(t, Config{})
	b.slow(time.Millisecond)
	b.nop(1) // under way when firmware stops
	b.inject(faults.Fault{Kind: faults.Hang, For: time.Second})
	b.nop(2) // comes while it hangs
	counter := b.healthCounter()
	b.clock.advance(500 * time.Millisecond)
	b.settle()
	if !b.owned(1) || !b.owned(2) {
		t.Fatal("firmware that hangs ended a command")
	}
	if got := b.healthCounter(); got != counter {
		t.Errorf("health counter went from %d to %d", counter, got)
	}
	b.clock.advance(500 * time.Millisecond)
	b.settle()
	if b.owned(1) || !b.owned(2) {
		t.Error("the command of before did not end with the hang, or the other had no latency")
	}
	b.clock.advance(time.Millisecond)
	b.settle()
	if b.owned(2) || b.healthCounter() == counter {
		t.Error("firmware does not go on")
	}
	if v := b.vectors(); len(v) != 2 {
		t.Errorf("events %x", v)
	}
}

func TestFaultHangEndsWithAReset(t *testing.T) {
	b := newFaultBench(t, Config{}, faults.Fault{Kind: faults.Hang})
	b.nop(1)
	b.clock.advance(time.Hour)
	b.settle()
	if !b.owned(1) {
		t.Fatal("answered")
	}
	b.card.Function(0).Reset(pci.ResetFLR)
	b.clock.advance(time.Second)
	b.restart()
}

func TestFaultHangBeginsWithACommand(t *testing.T) {
	b := newFaultBench(t, Config{}, faults.Fault{Kind: faults.Hang, Opcodes: []prm.Opcode{prm.OpAllocPD}, Skip: 1, For: time.Millisecond})
	b.must(&prm.AllocPDIn{}, &prm.AllocPDOut{})
	b.nop(1)
	if b.owned(1) {
		t.Fatal("hangs already")
	}
	b.post(2, bytesOf(&prm.AllocPDIn{}), 16)
	b.nop(3)
	if !b.owned(2) || !b.owned(3) {
		t.Error("the command did not make firmware hang")
	}
	b.clock.advance(time.Millisecond)
	b.settle()
	if b.owned(2) || b.owned(3) {
		t.Error("still hangs")
	}
}

// Report R25: an assertion of a ConnectX-6 Dx, with the whole health buffer.
func TestR25FaultHealthShowsTheWholeBuffer(t *testing.T) {
	b := newFaultBench(t, Config{Ports: 2}, faults.Fault{Kind: faults.Health, After: time.Second})
	if synd := b.regs.Load32(regHealth+0x3c) >> 16 & 0xff; synd != 0 {
		t.Fatalf("syndrome %#x before its time", synd)
	}
	b.clock.advance(time.Second)
	b.settle()
	want := map[uint64]uint32{
		0x00: 0x0521945b, 0x04: 0, 0x14: 0, 0x20: 0x21492f38, 0x24: 0x2102d5f0, 0x2c: 1742220438,
		0x30: 0x162c040c, 0x34: 0x00000212, 0x38: 0x0b000000, 0x3c: 0x03018f7a,
	}
	for i, f := range b.card.functions {
		for off, v := range want {
			if got := uint32(f.ReadBAR(0, regHealth+off, 4)); got != v {
				t.Errorf("function %d: health buffer %#x is %#x, want %#x", i, off, got, v)
			}
		}
		if got := f.ReadBAR(0, regHealthCounter, 4) >> 24; got != 1 {
			t.Errorf("function %d: the health counter's syndrome is %#x", i, got)
		}
	}
	counter := b.healthCounter()
	b.clock.advance(time.Minute)
	b.nop(1)
	if !b.owned(1) || b.healthCounter() != counter {
		t.Error("dead firmware works")
	}
	b.card.Function(0).Reset(pci.ResetFLR)
	b.clock.advance(time.Second)
	if v := b.regs.Load32(regHealth + 0x3c); v != 0 {
		t.Errorf("syndrome %#x after a reset", v)
	}
	b.restart()
}

func TestFaultAllOnes(t *testing.T) {
	b := newFaultBench(t, Config{}, faults.Fault{Kind: faults.AllOnes, For: time.Second})
	for _, size := range []int{1, 2, 4, 8} {
		if got, want := b.function().ReadBAR(0, regFWRev, size), ^uint64(0)>>(64-8*size); got != want {
			t.Errorf("a read of %d bytes gives %#x", size, got)
		}
	}
	var id [4]byte
	if err := b.fn.ReadConfig(0, id[:]); err != nil || binary.LittleEndian.Uint16(id[:]) != 0x15b3 {
		t.Errorf("configuration space reads %x, %v; want it as ever", id, err)
	}
	b.nop(1)
	b.regs.Store32(regCmdqLow, 0x1000)
	b.clock.advance(time.Second)
	b.settle()
	if !b.owned(1) {
		t.Error("a doorbell arrived")
	}
	if got := b.regs.Load32(regCmdqLow) &^ 0xfff; got != uint32(b.queue.Bus) {
		t.Errorf("the queue's address is %#x", got)
	}
	b.must(&prm.NopIn{}, &prm.NopOut{})
}

func TestFaultRemovalTakesTheCardOffTheBus(t *testing.T) {
	b := newFaultBench(t, Config{})
	b.slow(time.Millisecond)
	b.nop(1)
	b.inject(faults.Fault{Kind: faults.Removal, For: time.Minute})
	if v := b.regs.Load32(regFWRev); v != ^uint32(0) {
		t.Errorf("a register reads %#x", v)
	}
	var id [4]byte
	if err := b.fn.ReadConfig(0, id[:]); err != nil || id != [4]byte{0xff, 0xff, 0xff, 0xff} {
		t.Errorf("configuration space reads %x, %v", id, err)
	}
	b.clock.advance(time.Second)
	b.nop(2)
	b.fn.WriteConfig(4, []byte{0x06, 0x04})
	b.clock.advance(time.Second)
	b.settle()
	if !b.owned(1) || !b.owned(2) || b.raised(3) {
		t.Error("a card that is gone wrote to memory")
	}
	if books := b.card.Books().Functions[0]; !books.Clean() {
		t.Errorf("books of a card without power: %+v", books)
	}
	b.clock.advance(time.Minute)
	b.settle()
	b.clock.advance(time.Second)
	if v := b.regs.Load32(regInitializing); v>>31 != 0 {
		t.Errorf("the card is back but does not boot: %#x", v)
	}
	b.restart()
}

// A removal that a command begins comes while the step has the host's memory entered.
func TestFaultRemovalInTheMiddleOfAStep(t *testing.T) {
	b := newFaultBench(t, Config{}, faults.Fault{Kind: faults.Removal, Opcodes: []prm.Opcode{prm.OpAllocPD}})
	for i := range 8 {
		op := input(&prm.NopIn{})
		if i == 3 {
			op = &prm.AllocPDIn{}
		}
		b.post(i, bytesOf(op), 16)
		if i == 2 {
			b.settle()
		}
	}
	b.settle()
	if b.owned(2) || !b.owned(3) || !b.owned(4) {
		t.Errorf("owned %v %v %v; want the commands before it done", b.owned(2), b.owned(3), b.owned(4))
	}
	if err := b.fn.Close(); err != nil { // unmaps: nobody may be inside
		t.Error(err)
	}
}

func TestFaultInitStuckFromTheStart(t *testing.T) {
	b := newBench(t, Config{Faults: faults.Plan{Faults: []faults.Fault{{Kind: faults.InitStuck, For: time.Minute}}}})
	b.clock.advance(30 * time.Second)
	b.settle()
	if v := b.regs.Load32(regInitializing); v>>31 != 1 {
		t.Fatalf("initializing reads %#x", v)
	}
	b.card.Function(0).Reset(pci.ResetFLR)
	b.clock.advance(10 * time.Second)
	b.settle()
	if v := b.regs.Load32(regInitializing); v>>31 != 1 {
		t.Errorf("a reset ended it: %#x", v)
	}
	b.clock.advance(time.Minute)
	b.settle()
	if v := b.regs.Load32(regInitializing); v>>31 != 0 {
		t.Errorf("initializing reads %#x after the fault", v)
	}
	b.restart()
}

// Report R30: the cage is unplugged for 6 s, and the link never comes back.
func TestR30FaultUnplug(t *testing.T) {
	for _, noLink := range []bool{false, true} {
		b := newBench(t, Config{})
		near, far := wire.NewCable(wire.CableOptions{})
		if _, err := b.card.Plug(0, near); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { near.Close(); far.Close() })
		b.bringUp()
		e := b.newEQ(b.allocUAR(), 4, 0, prm.EventPortChange, prm.EventPortModule)
		types := func() (got []prm.EventType) {
			for x := e.next(); x != nil; x = e.next() {
				got = append(got, x.EventType())
			}
			return got
		}
		up := func() bool {
			var out prm.QueryVportStateOut
			b.must(&prm.QueryVportStateIn{}, &out)
			return out.State == prm.VportUp
		}
		if !up() {
			t.Fatal("no link to begin with")
		}
		types()
		b.inject(faults.Fault{Kind: faults.Unplug, For: 6 * time.Second, NoLink: noLink})
		if got := types(); len(got) != 2 || got[0] != prm.EventPortModule || got[1] != prm.EventPortChange || up() {
			t.Errorf("events %v, up %v; want an unplugged module and a link that went down", got, up())
		}
		b.clock.advance(6 * time.Second)
		b.settle()
		got := types()
		if len(got) == 0 || got[0] != prm.EventPortModule {
			t.Errorf("events %v, want a plugged module first", got)
		}
		if up() == noLink || (len(got) == 2) == noLink {
			t.Errorf("no link %v: up %v, events %v", noLink, up(), got)
		}
	}
}

func TestFaultModuleAndPowerEvents(t *testing.T) {
	b := newBench(t, Config{})
	b.bringUp()
	e := b.newEQ(b.allocUAR(), 4, 0, prm.EventPortModule, prm.EventGeneral)
	b.inject(faults.Fault{Kind: faults.Module, ModuleStatus: prm.ModuleError, ModuleError: 6},
		faults.Fault{Kind: faults.Power, Watts: 27, For: time.Second})
	x := e.next()
	if x == nil || x.EventType() != prm.EventPortModule || x[0x23] != byte(prm.ModuleError) || x[0x26] != 6 {
		t.Errorf("event %x, want a module that is too hot", x)
	}
	x = e.next()
	if x == nil || x.EventType() != prm.EventGeneral || x.EventSubType() != 5 {
		t.Errorf("event %x, want one of power", x)
	}
	power := func() (status uint8, watts uint16) {
		image := make([]byte, prm.RegMPEINSize)
		b.card.Do(func() { b.function().readMPEIN(image) })
		var r prm.RegMPEIN
		r.Get(image)
		return r.PwrStatus, r.PCIPower
	}
	if s, w := power(); s != 2 || w != 27 {
		t.Errorf("MPEIN says %d, %d W", s, w)
	}
	b.clock.advance(time.Second)
	b.settle()
	if s, w := power(); s != 1 || w != 75 {
		t.Errorf("MPEIN says %d, %d W after the fault", s, w)
	}
}
