package device

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"cxkit/prm"

	faults "cxkit/device/fault"
)

// faultBench is a card with some faults, brought up, with an EQ for commands.
type faultBench struct {
	*bench
	cmd *eq
}

func newFaultBench(t *testing.T, config Config, list ...faults.Fault) *faultBench {
	t.Helper()
	b := &faultBench{bench: newBench(t, config)}
	b.bringUp()
	b.cmd = b.newEQ(b.allocUAR(), 8, 3, prm.EventCommandCompletion)
	b.cmd.arm()
	b.inject(list...)
	return b
}

// inject breaks things from now on.
func (b *bench) inject(list ...faults.Fault) {
	b.Helper()
	if err := b.card.Inject(faults.Plan{Seed: 1, Faults: list}); err != nil {
		b.Fatal(err)
	}
	b.settle()
}

// slow gives every command this latency from now on.
func (b *bench) slow(d time.Duration) {
	b.Helper()
	if err := b.card.Inject(faults.Plan{Other: &Latency{Min: d}}); err != nil {
		b.Fatal(err)
	}
}

// restart brings a function up after a reset.
func (b *bench) restart() {
	b.Helper()
	b.slow(0)
	if err := b.fn.WriteConfig(4, []byte{0x06, 0x04}); err != nil { // bus master again
		b.Fatal(err)
	}
	b.bringUp()
}

// vectors takes the command EQ's entries and returns their slots, as bits, one an entry.
func (b *faultBench) vectors() (v []uint32) {
	for e := b.cmd.next(); e != nil; e = b.cmd.next() {
		v = append(v, e.CommandVector())
	}
	b.cmd.arm()
	return v
}

// nop posts a NOP in slot i.
func (b *faultBench) nop(i int) {
	b.Helper()
	b.post(i, bytesOf(&prm.NopIn{}), 16)
	b.settle()
}

// struck checks how often the faults have struck, in order.
func (b *bench) struck(want ...int) {
	b.Helper()
	var got []int
	for _, r := range b.card.Faults() {
		got = append(got, r.Struck)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		b.Errorf("faults struck %v times, want %v", got, want)
	}
}

func TestFaultNoAnswerKeepsTheSlotUntilAReset(t *testing.T) {
	b := newFaultBench(t, Config{}, faults.Fault{Kind: faults.NoAnswer, Opcodes: []prm.Opcode{prm.OpAllocPD}, Skip: 1, Times: 1})
	b.must(&prm.AllocPDIn{}, &prm.AllocPDOut{}) // let pass
	b.post(5, bytesOf(&prm.AllocPDIn{}), 16)
	b.clock.advance(time.Hour)
	b.settle()
	if books := b.card.Books().Functions[0]; !b.owned(5) || books.Running != 1 || books.Objects["pd"] != 1 {
		t.Errorf("owned %v, books %+v; want the slot kept and nothing executed", b.owned(5), books)
	}
	b.must(&prm.NopIn{}, &prm.NopOut{})
	b.must(&prm.AllocPDIn{}, &prm.AllocPDOut{}) // struck as often as it may
	b.struck(1)
	b.card.Function(0).Reset(0)
	if books := b.card.Books().Functions[0]; books.Running != 0 {
		t.Errorf("%d commands run after a reset", books.Running)
	}
}

func TestFaultLateAddsItsDelay(t *testing.T) {
	b := newFaultBench(t, Config{}, faults.Fault{Kind: faults.Late, Slots: []int{2}, Delay: 50 * time.Millisecond})
	b.slow(time.Millisecond)
	b.nop(2)
	b.nop(3)
	b.clock.advance(time.Millisecond)
	b.settle()
	if b.owned(3) || !b.owned(2) {
		t.Fatal("the other slot is late, or the late one is not")
	}
	b.clock.advance(50*time.Millisecond - 1)
	b.settle()
	if !b.owned(2) {
		t.Error("came early")
	}
	b.clock.advance(1)
	b.settle()
	if b.owned(2) {
		t.Error("never came")
	}
	if v := b.vectors(); len(v) != 2 || v[1] != 1<<2 {
		t.Errorf("events %x", v)
	}
}

// A command that waits for memory ends twice on its way; it is late once.
func TestFaultLateMeetsACommandThatWaitsForPagesOnce(t *testing.T) {
	b := newBench(t, Config{Memory: Memory{Boot: -1, Init: -1, Included: -1}})
	b.bringUp()
	pages := b.newPagesEQ(t)
	b.inject(faults.Fault{Kind: faults.Late, Delay: time.Millisecond, Opcodes: []prm.Opcode{prm.OpAllocPD}})
	b.post(1, bytesOf(&prm.AllocPDIn{}), 16)
	for range 3 {
		b.settle()
		b.clock.advance(time.Millisecond)
		for e := pages.next(); e != nil; e = pages.next() {
			if n := int32(binary.BigEndian.Uint32(e[0x24:])); n > 0 {
				b.give(int(n))
			}
		}
	}
	b.settle()
	if b.owned(1) {
		t.Error("the command did not end")
	}
	b.struck(1)
}

// newPagesEQ makes an EQ for page requests, and gives what its own creation asks for.
func (b *bench) newPagesEQ(t *testing.T) *eq {
	t.Helper()
	b.give(64)
	return b.newEQ(b.allocUAR(), 4, 0, prm.EventPageRequest)
}

// Report R08: after LOAD_VHCA_STATE one more completion event for slot 0, 14 ms later, which may meet the
// slot's next command.
func TestR08FaultGhostCompletesTheNextCommand(t *testing.T) {
	b := newFaultBench(t, Config{}, faults.Fault{Kind: faults.Ghost, Slots: []int{0}, Times: 1, Delay: 14 * time.Millisecond})
	b.slow(time.Millisecond)
	b.nop(0)
	b.clock.advance(time.Millisecond)
	b.settle()
	if v := b.vectors(); len(v) != 1 || v[0] != 1 {
		t.Fatalf("events %x, want the command's own", v)
	}
	b.clock.advance(13500 * time.Microsecond)
	b.nop(0) // under way when the ghost comes
	b.clock.advance(500 * time.Microsecond)
	b.settle()
	if v := b.vectors(); len(v) != 1 || v[0] != 1 || !b.owned(0) {
		t.Errorf("events %x, owned %v; want one event for a command that is not done", v, b.owned(0))
	}
	b.clock.advance(time.Second)
	b.settle()
	if v := b.vectors(); len(v) != 1 || b.owned(0) {
		t.Errorf("events %x; want one more for the command itself", v)
	}
}

// Report R08: with slot 0 out of use slot 1 loses its completion instead.
func TestR08FaultWrongSlotSubstitutes(t *testing.T) {
	b := newFaultBench(t, Config{}, faults.Fault{Kind: faults.WrongSlot, Slots: []int{1}, To: 7, Times: 1},
		faults.Fault{Kind: faults.WrongSlot, Slots: []int{31}})
	b.nop(1)
	b.nop(1)
	b.nop(31)
	if v := b.vectors(); fmt.Sprint(v) != fmt.Sprint([]uint32{1 << 7, 1 << 1, 1}) {
		t.Errorf("events %x, want slots 7, 1 and, for the next of 31, 0", v)
	}
}

func TestFaultBadTokenIsInTheLastMailboxOrTheEntry(t *testing.T) {
	b := newFaultBench(t, Config{}, faults.Fault{Kind: faults.BadToken})
	token := func() byte { return b.entry(4)[0x3c] }
	b.nop(4)
	if b.owned(4) || token() == b.token {
		t.Errorf("token %#x in the entry, want another than %#x", token(), b.token)
	}
	in := bytesOf(&prm.QueryAdapterIn{})
	b.post(4, in, 16+600)
	b.settle()
	first, last := b.box(4, 0).Bytes, b.box(4, 1).Bytes
	if token() != b.token || first[0x23d] != b.token || last[0x23d] == b.token {
		t.Errorf("tokens %#x, %#x, %#x; want only the last one wrong", token(), first[0x23d], last[0x23d])
	}
}

func TestFaultBadSignature(t *testing.T) {
	xor := func(p []byte) (x byte) {
		for _, v := range p {
			x ^= v
		}
		return x
	}
	b := newBench(t, Config{Signatures: true})
	b.startQueue()
	b.enableSignatures()
	b.inject(faults.Fault{Kind: faults.BadSignature, Skip: 1})
	in := bytesOf(&prm.NopIn{})
	for _, good := range []bool{true, false} {
		b.post(0, in, 16+512)
		b.entry(0)[0x3d] = ^xor(b.entry(0)) // the card reads it at the next step only
		b.settle()
		if b.owned(0) {
			t.Fatal("not answered")
		}
		if entry, box := xor(b.entry(0)) == 0xff, xor(b.box(0, 0).Bytes) == 0xff; entry != good || box != good {
			t.Errorf("signatures right: entry %v, mailbox %v; want %v", entry, box, good)
		}
	}
}

func TestFaultBadStatusRefusesWithoutExecuting(t *testing.T) {
	b := newFaultBench(t, Config{}, faults.Fault{
		Kind: faults.BadStatus, Opcodes: []prm.Opcode{prm.OpAllocPD}, Status: prm.StatusNoResources, Syndrome: 0x1f3c11, Times: 1,
	})
	b.refused(&prm.AllocPDIn{}, &prm.AllocPDOut{}, prm.StatusNoResources, 0x1f3c11)
	if n := b.card.Books().Functions[0].Objects["pd"]; n != 0 {
		t.Errorf("%d PDs were made", n)
	}
	b.must(&prm.AllocPDIn{}, &prm.AllocPDOut{})
	b.inject(faults.Fault{Kind: faults.BadStatus})
	b.refused(&prm.NopIn{}, &prm.NopOut{}, prm.StatusInternalError, 0)
}

func TestFaultBadDelivery(t *testing.T) {
	b := newFaultBench(t, Config{}, faults.Fault{Kind: faults.BadDelivery, Times: 1},
		faults.Fault{Kind: faults.BadDelivery, Delivery: prm.DeliveryTokenError})
	for _, want := range []prm.DeliveryStatus{prm.DeliveryFirmwareInternal, prm.DeliveryTokenError} {
		b.post(0, bytesOf(&prm.AllocPDIn{}), 16)
		b.settle()
		if d, _ := b.answer(0, 16, 16); d != want || b.owned(0) {
			t.Errorf("delivery %v, owned %v; want %v", d, b.owned(0), want)
		}
	}
	if books := b.card.Books().Functions[0]; books.Objects["pd"] != 0 || books.Running != 0 {
		t.Errorf("books %+v: a command that could not be read was executed", books)
	}
	if v := b.vectors(); len(v) != 2 {
		t.Errorf("events %x", v)
	}
}

func TestFaultHalfOutputLeavesTheRestAsItWas(t *testing.T) {
	in := bytesOf(&prm.QueryHCACapIn{})
	run := func(list ...faults.Fault) []byte {
		b := newFaultBench(t, Config{}, list...)
		b.post(6, in, prm.QueryHCACapOutSize)
		for i := range prm.MailboxBlocks(prm.QueryHCACapOutSize) {
			copy(b.box(6, i).Bytes[:prm.MailboxDataLen], bytes.Repeat([]byte{0xee}, prm.MailboxDataLen))
		}
		b.settle()
		if b.owned(6) {
			t.Fatal("not answered")
		}
		_, out := b.answer(6, len(in), prm.QueryHCACapOutSize)
		return out
	}
	whole := run()
	for _, bytesWritten := range []int{0, 4, 16, 20, 528, 1000} {
		n := bytesWritten
		if n == 0 {
			n = len(whole) / 2
		}
		got := run(faults.Fault{Kind: faults.HalfOutput, Bytes: bytesWritten})
		if !bytes.Equal(got[:n], whole[:n]) {
			t.Errorf("%d bytes: those are not right", n)
		}
		rest := got[max(n, 16):]
		if !bytes.Equal(rest, bytes.Repeat([]byte{0xee}, len(rest))) {
			t.Errorf("%d bytes: more was written", n)
		}
	}
}

func TestFaultLostCommandDoorbell(t *testing.T) {
	b := newFaultBench(t, Config{}, faults.Fault{Kind: faults.LostDoorbell, Opcodes: []prm.Opcode{prm.OpNop}, Times: 1})
	b.nop(3)
	if books := b.card.Books().Functions[0]; !b.owned(3) || books.Running != 0 {
		t.Errorf("owned %v, %d running; want a command that nobody knows of", b.owned(3), books.Running)
	}
	b.regs.Store32(regCmdDoorbell, 1<<3) // once more
	b.settle()
	if b.owned(3) {
		t.Error("the second doorbell had no effect")
	}
}

func TestFaultsOfCommandsRepeatFromTheirSeed(t *testing.T) {
	run := func(seed uint64) (lost []int) {
		b := newFaultBench(t, Config{})
		err := b.card.Inject(faults.Plan{Seed: seed, Faults: []faults.Fault{{Kind: faults.LostEQE, Probability: 0.3}}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			b.nop(0)
			if len(b.vectors()) == 0 {
				lost = append(lost, i)
			}
		}
		return lost
	}
	a, again, other := run(1), run(1), run(2)
	if fmt.Sprint(a) != fmt.Sprint(again) {
		t.Errorf("the same seed lost %v and then %v", a, again)
	}
	if fmt.Sprint(a) == fmt.Sprint(other) {
		t.Errorf("seeds 1 and 2 both lost %v", a)
	}
	if len(a) < 15 || len(a) > 45 {
		t.Errorf("%d of 100 lost, want about 30", len(a))
	}
}

func TestAPlanChangesLatencyWhileTheCardRuns(t *testing.T) {
	b := newFaultBench(t, Config{})
	other := Latency{Min: 7 * time.Millisecond}
	err := b.card.Inject(faults.Plan{Latency: map[prm.Opcode]Latency{prm.OpNop: {Min: time.Millisecond}}, Other: &other})
	if err != nil {
		t.Fatal(err)
	}
	b.nop(0)
	b.post(1, bytesOf(&prm.AllocPDIn{}), 16)
	b.settle()
	b.clock.advance(time.Millisecond)
	b.settle()
	if b.owned(0) || !b.owned(1) {
		t.Fatal("NOP takes another time than the plan says")
	}
	b.clock.advance(6 * time.Millisecond)
	b.settle()
	if b.owned(1) {
		t.Error("other commands take another time than the plan says")
	}
}

func TestPlansAreCheckedAgainstTheCard(t *testing.T) {
	b := newFaultBench(t, Config{})
	for _, f := range []faults.Fault{{Kind: "nonsense"}, {Kind: faults.Hang, Functions: []int{1}}} {
		if err := b.card.Inject(faults.Plan{Faults: []faults.Fault{f}}); err == nil {
			t.Errorf("%+v was accepted", f)
		}
		if _, err := New(Config{Faults: faults.Plan{Faults: []faults.Fault{f}}}); err == nil {
			t.Errorf("%+v was accepted by New", f)
		}
	}
	full := faults.Plan{Faults: make([]faults.Fault, 1000)}
	for i := range full.Faults {
		full.Faults[i] = faults.Fault{Kind: faults.LostEQE, EQs: []uint8{200}}
	}
	var err error
	for range 11 {
		err = b.card.Inject(full)
	}
	if err == nil {
		t.Error("faults without limit")
	}
}

// A card without faults has no wrappers, and one whose faults concern only commands none elsewhere.
func TestOnlyStepsThatAFaultConcernsAreWrapped(t *testing.T) {
	b := newFaultBench(t, Config{})
	f := b.function()
	honest := func() [5]bool {
		_, commands := f.path.(*function)
		_, bells := f.bells.(*function)
		_, lossy := f.interrupts.(lossyInterrupts)
		return [5]bool{commands, bells, !lossy, f.events.Writer == f.events, f.env.Filter == nil && f.seen.Load() == nil}
	}
	if got := honest(); got != [5]bool{true, true, true, true, true} {
		t.Errorf("without faults: honest %v", got)
	}
	b.inject(faults.Fault{Kind: faults.Late, Delay: 1})
	if got := honest(); got != [5]bool{false, true, true, true, true} {
		t.Errorf("with a fault of commands: honest %v", got)
	}
	b.inject(faults.Fault{Kind: faults.LostCQE})
	if got := honest(); got != [5]bool{false, true, true, true, false} {
		t.Errorf("and one of completions: honest %v", got)
	}
}
