package device

import (
	"encoding/binary"
	"math/bits"
	"time"

	"cxkit/device/internal/command"
	"cxkit/prm"
	"cxkit/trace"
)

// executor runs the commands of a function (reference 01). The engine owns it.
type executor struct {
	high     uint32 // upper half of the queue's address, until the lower half makes it live
	base     uint64
	live     bool
	running  uint32 // slots between doorbell and answer
	waiting  uint32 // of these, the ones that wait for memory
	signed   uint32 // slots whose command came signed
	partly   uint32 // of these, page commands that go on in the next step, or wait for the one that does
	current  int    // slot of the page command that has been done in part, -1 if there is none
	answered uint64 // commands since the card was made, but for MANAGE_PAGES
	arrival  uint64 // counts the commands that wait, so that they go on in order
	slots    [slots]slot
}

// slot is one entry of the command queue.
type slot struct {
	command.Slot
	timer timer
	call  command.Call
	since uint64 // executor.arrival when it began to wait
	wants int    // pages it waits for
}

// reset forgets the queue and all commands.
func (x *executor) reset(f *function) {
	for i := range x.slots {
		s := &x.slots[i]
		f.card.timers.disarm(&s.timer)
		s.timer.fire = func() { f.path.finishCommand(i) }
		s.Slot, s.call = command.Slot{}, command.Call{}
	}
	x.high, x.base, x.live, x.running, x.waiting, x.partly, x.current = 0, 0, false, 0, 0, 0, -1
}

// restart makes the queue at base live. Commands of before are forgotten.
func (x *executor) restart(f *function, base uint64) {
	high := x.high
	x.reset(f)
	x.high, x.base, x.live = high, base, true
}

// writeCmdqLow acts on the register that holds the queue's address and nic_interface (reference 00 §5).
func (f *function) writeCmdqLow(v uint32) {
	x := &f.executor
	state := prm.NICInterface(v >> 8 & 7)
	switch state {
	case prm.NICInterfaceFull:
		base := uint64(x.high)<<32 | uint64(v&0xfffff000)
		x.restart(f, base)
	case prm.NICInterfaceDisabled:
		// The end of a fast teardown: nothing of the function acts any more.
		f.endSwitch(false)
		f.stopAll()
		f.executor.reset(f)
		f.phase = command.Live
	case prm.NICInterfaceSWReset:
		f.print.Info("software reset")
		f.resetState()
		f.regs.clearHealth(f)
		state = prm.NICInterfaceDisabled
	default:
		f.log.Note("nic_interface: no such state")
		return
	}
	for {
		old := f.regs.cmdqLow.Load()
		if f.regs.cmdqLow.CompareAndSwap(old, old&^nicInterfaceMask|uint32(state)<<8) {
			return
		}
	}
}

// commandDoorbell starts the commands of the slots in v.
func (f *function) commandDoorbell(v uint32) {
	x := &f.executor
	f.log.Doorbell(trace.BellCommand, 0, v)
	if !x.live || f.mem == nil || f.initializing(f.card.now) {
		f.log.Note("command doorbell without a command queue")
		return
	}
	// A fault may take the function away while its commands are started.
	for v &^= x.running; v != 0 && x.live && f.mem != nil; v &= v - 1 {
		f.path.startCommand(bits.TrailingZeros32(v))
	}
}

// commandPath is a command's way through firmware. The function itself is the honest one; faults stand
// before it.
type commandPath interface {
	// startCommand: the doorbell of slot i has rung.
	startCommand(i int)
	// finishCommand: the time of the command in slot i is over.
	finishCommand(i int)
	// check decides whether a command is executed.
	check(i int, call *command.Call) (command.Entry, command.Result)
	// writeAnswer writes the output of slot i and gives it back to the driver.
	writeAnswer(i int, d prm.DeliveryStatus, signatures bool) error
	// commandEvent reports that slot i is the driver's again.
	commandEvent(i int)
}

// startCommand reads a command; its effect comes when firmware's latency is over.
func (f *function) startCommand(i int) {
	x := &f.executor
	s := &x.slots[i]
	addr := x.base + uint64(i)<<logCmdqStride
	if !command.Owned(f.mem, addr) {
		f.log.Note("command doorbell for an entry that software owns")
		return
	}
	x.signed &^= 1 << i
	if f.signatures() {
		x.signed |= 1 << i
	}
	if err := s.Read(f.mem, addr, x.room(), x.isSigned(i)); err != nil {
		f.counters.invalidCommands++
		f.log.CommandOut(i, 0, nil, uint8(err.Delivery), err.Why)
		s.Out = nil
		if err := f.path.writeAnswer(i, err.Delivery, false); err != nil {
			f.log.Note("command entry can't be written")
			return
		}
		f.path.commandEvent(i)
		return
	}
	op, _ := prm.InputOpcode(s.In)
	f.log.CommandIn(i, uint16(op), s.In, "")
	x.running |= 1 << i
	f.card.timers.arm(&s.timer, f.card.now+f.card.latency(op))
}

// room is how long the input or the output of one more command may be. Commands that run may have
// mailboxes in common: without a bound to all of them together, a few megabytes of a hostile host would
// take gigabytes here.
func (x *executor) room() int {
	room := command.MaxLength
	for i := range slots {
		if x.running>>i&1 != 0 {
			room -= x.slots[i].Size()
		}
	}
	return max(room, 1<<20)
}

// latency draws how long firmware takes.
func (c *Card) latency(op prm.Opcode) time.Duration {
	l, ok := c.config.Latency[uint16(op)]
	if !ok {
		l = c.config.OtherLatency
	}
	return l.Draw(c.rand)
}

// finishCommand executes a command whose time is up, and answers unless it has to wait for memory.
func (f *function) finishCommand(i int) {
	f.enter()
	s := &f.executor.slots[i]
	call := &s.call
	if f.mem == nil {
		f.executor.running &^= 1 << i // the function stopped being bus master: nobody can be answered
		f.executor.ended(i)
		return
	}
	reported := f.events.Subscribed(prm.EventCommandCompletion)
	var entry command.Entry
	var result command.Result
	switch {
	case call.Ended:
		call.More = false
		result = call.Result
	case call.More:
		call.More = false
		entry = f.table[call.Op]
	default:
		*call = command.Call{In: s.In, Out: s.Out}
		call.Op, _ = prm.InputOpcode(s.In)
		call.UID = binary.BigEndian.Uint16(s.In[2:])
		call.OpMod = binary.BigEndian.Uint16(s.In[6:])
		if x := &f.executor; call.Op == prm.OpManagePages && x.current >= 0 && x.current != i {
			f.goOn(i) // one page command at a time: each sees the books as the one before left them
			return
		}
		entry, result = f.path.check(i, call)
	}
	if result.OK() && (entry.Creates != 0 || call.Op == prm.OpInitHCA && f.isWard()) {
		// Its first pages may still be on their way.
		if missing := f.missingPages(entry.Creates); missing > 0 {
			if result = f.waitForPages(i, missing); result.OK() {
				return
			}
		}
	}
	if result.OK() && !call.Ended {
		result = entry.Handle(call)
	}
	if !call.More {
		call.Ended, call.Result = true, result
		call.More = result.OK() && f.path == commandPath(f) && s.WritePart(f.mem, boxesPerPart, f.executor.isSigned(i))
	}
	if call.More {
		f.executor.current = i
		f.goOn(i)
		return
	}
	f.executor.ended(i)
	f.answer(i, call.Op, result, reported)
	if then := f.afterCommand; then != nil {
		f.afterCommand = nil
		then()
	}
	if !result.OK() && call.Op == prm.OpManagePages {
		f.pagesFailed(call, result)
	}
	f.offerPages()
}

// check holds a command against what its opcode demands.
func (f *function) check(_ int, call *command.Call) (command.Entry, command.Result) {
	entry, ok := f.table[call.Op]
	if !ok {
		f.counters.invalidCommands++
		return entry, fault(prm.StatusBadOperation, synUnknownOpcode)
	}
	if f.phase < entry.Phase {
		return entry, fault(prm.StatusBadSystemState, synPhase)
	}
	if len(call.In) < max(entry.MinIn, command.Inline) {
		return entry, fault(prm.StatusBadInputLength, synInputShort)
	}
	if len(call.Out) < max(entry.MinOut, 8) {
		return entry, fault(prm.StatusBadOutputLength, synOutputShort)
	}
	if !f.card.config.Lenient {
		if _, found := prm.ReservedInput(call.Op, call.In); found {
			return entry, fault(prm.StatusBadParameter, synReserved)
		}
	}
	return entry, command.Result{}
}

// answer writes a command's output and hands the slot back. reported: an EQ took command events before
// the command ran, so that the CREATE_EQ of that EQ is polled for, as drivers do.
func (f *function) answer(i int, op prm.Opcode, r command.Result, reported bool) {
	x := &f.executor
	s := &x.slots[i]
	if !r.OK() {
		clear(s.Out)
	}
	binary.BigEndian.PutUint32(s.Out, uint32(r.Status)<<24|binary.BigEndian.Uint32(s.Out)&0xffffff)
	if !r.OK() {
		binary.BigEndian.PutUint32(s.Out[4:], r.Syndrome)
	}
	f.log.CommandOut(i, uint16(op), s.Out, 0, r.Why)
	x.running &^= 1 << i
	x.waiting &^= 1 << i
	if op != prm.OpManagePages {
		x.answered++
	}
	if err := f.path.writeAnswer(i, prm.DeliveryOK, x.isSigned(i)); err != nil {
		f.log.Note("command answer can't be written")
		return
	}
	if reported {
		f.path.commandEvent(i)
	}
}

func (f *function) writeAnswer(i int, d prm.DeliveryStatus, signatures bool) error {
	return f.executor.slots[i].Write(f.mem, d, signatures)
}

func (f *function) commandEvent(i int) {
	f.events.Post(prm.EventCommandCompletion, 0, func(e []byte) {
		binary.BigEndian.PutUint32(e[0x20:], 1<<i)
	})
}

// isSigned reports whether the command in slot i came signed; its answer is then, too. The command itself may
// change what holds for those after it: SET_HCA_CAP switches signatures on, DISABLE_HCA ends them.
func (x *executor) isSigned(i int) bool { return x.signed>>i&1 != 0 }

// signatures reports whether commands are signed both ways: its driver has chosen so by SET_HCA_CAP.
func (f *function) signatures() bool { return f.caps.General.CmdifChecksum != 0 }

// fault is a refused command.
func fault(status prm.Status, syn syndrome) command.Result {
	return command.Result{Status: status, Syndrome: uint32(syn), Why: syn.String()}
}
