package fwtest

import (
	"encoding/binary"
	"fmt"

	"cxkit/dma"
	"cxkit/prm"
)

// Call is a command that firmware has fetched. A handler answers it with Finish, at once or later, or
// never.
type Call struct {
	Card *Card
	Slot int
	Op   prm.Opcode
	In   []byte // whole input
	// Out is the output that Finish writes, as long as the driver asked for.
	Out []byte

	// What a card that breaks the rules changes before Finish.
	Token    uint8                       // of the entry
	Delivery prm.DeliveryStatus          // of the entry
	Length   uint32                      // output length in the entry
	Block    func(k int, m *prm.Mailbox) // changes output mailbox k after it was written
	Edit     func(out []byte)            // changes the output that Default made
	Tamper   func(e *prm.CmdEntry)       // changes the entry after it was signed, before it is given back
	KeepOwn  bool                        // announce the command, but keep the entry
	NoEvent  bool                        // give the entry back, but announce nothing

	entry  []byte
	outBox uint64
	token  uint8
}

// Handle replaces the handler of an opcode; nil brings the default back.
func (c *Card) Handle(op prm.Opcode, f func(*Call)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f == nil {
		delete(c.handlers, op)
		return
	}
	c.handlers[op] = f
}

// start fetches the command in a slot and runs its handler. Runs with mu held.
func (c *Card) start(slot int) {
	if slot >= 1<<c.log.LogCmdQSize() {
		c.badDMA++
		return
	}
	entry := c.at(c.queue+uint64(slot)<<c.log.LogCmdQStride(), prm.CmdEntrySize)
	if entry == nil {
		return
	}
	// Partner: the driver's store of the control word.
	control := prm.CmdEntryStatus(dma.LoadBE32(entry, prm.CmdEntryStatusOff))
	if !control.Own() {
		c.fw.strays++
		return
	}
	e := (*prm.CmdEntry)(entry)
	if xor(entry) != 0xFF {
		c.fw.unsigned++ // Linux signs each entry
	}
	call := &Call{
		Card: c, Slot: slot, entry: entry, outBox: e.OutputMailboxPtr(),
		Token: control.Token(), token: control.Token(), Length: e.OutputLength(),
	}
	call.NoEvent = !c.fw.announces() // the command that creates the queue is not announced there yet
	call.In = make([]byte, e.InputLength())
	rest := call.In[copy(call.In, e.InlineInput()[:]):]
	for k, at := 0, e.InputMailboxPtr(); len(rest) > 0; k++ {
		m := c.mailbox(at)
		if m == nil {
			return
		}
		if c.signs && (xor(m[0x200:0x23F]) != 0xFF || xor(m[:]) != 0xFF) {
			call.Delivery = prm.DeliverySignatureError
			c.finish(call)
			return
		}
		if m.Token() != call.token || m.BlockNumber() != uint32(k) {
			call.Delivery = prm.DeliveryTokenError
			c.finish(call)
			return
		}
		rest = rest[copy(rest, m.Data()[:]):]
		at = m.NextPtr()
	}
	call.Out = make([]byte, call.Length)
	call.Op, _ = prm.InputOpcode(call.In)
	c.fw.count(call.Op)
	if off, found := prm.ReservedInput(call.Op, call.In); found {
		c.fw.reserved = append(c.fw.reserved, fmt.Sprintf("%v byte %#x", call.Op, off))
	}
	f := c.handlers[call.Op]
	if f == nil {
		f = (*Call).Default
	}
	c.work.Go(func() { f(call) })
}

// Sign makes the card check the signatures of commands, and sign its answers.
func (c *Card) Sign(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.signs = on
}

func xor(b []byte) (x uint8) {
	for _, v := range b {
		x ^= v
	}
	return x
}

// mailbox runs with mu held.
func (c *Card) mailbox(bus uint64) *prm.Mailbox {
	if bus&0x1FF != 0 {
		c.badDMA++
		return nil
	}
	b := c.at(bus, prm.MailboxSize)
	if b == nil {
		return nil
	}
	return (*prm.Mailbox)(b)
}

// Refuse answers with a status.
func (c *Call) Refuse(status prm.Status, syndrome uint32) {
	clear(c.Out)
	c.Out[0] = byte(status)
	binary.BigEndian.PutUint32(c.Out[4:], syndrome)
	c.Finish()
}

// Answer answers with out.
func (c *Call) Answer(out interface {
	Put([]byte)
	Len() int
}) {
	b := make([]byte, out.Len())
	out.Put(b)
	copy(c.Out, b)
	c.Finish()
}

// Number answers with an object number.
func (c *Call) Number(n uint32) {
	binary.BigEndian.PutUint32(c.Out[8:], n)
	c.Finish()
}

// Finish writes the output, gives the entry back and announces it.
func (c *Call) Finish() {
	c.Card.mu.Lock()
	defer c.Card.mu.Unlock()
	c.Card.finish(c)
}

// finish runs with mu held.
func (c *Card) finish(call *Call) {
	if c.gone {
		return
	}
	rest := call.Out
	e := (*prm.CmdEntry)(call.entry)
	var inline [16]byte
	rest = rest[copy(inline[:], rest):]
	for k, at := 0, call.outBox; len(rest) > 0; k++ {
		m := c.mailbox(at)
		if m == nil {
			return
		}
		at = m.NextPtr()
		rest = rest[copy(m.Data()[:], rest):]
		if c.signs {
			m.SetCtrlSignature(^xor(m[0x200:0x23E]))
			m.SetSignature(^xor(m[:0x23F]))
		}
		if call.Block != nil {
			call.Block(k, m)
		}
	}
	*e.InlineOutput() = inline
	e.SetOutputLength(call.Length)
	if !call.KeepOwn {
		signature := uint8(0)
		if c.signs {
			signature = ^(xor(call.entry[:prm.CmdEntryStatusOff]) ^ call.Token ^ uint8(call.Delivery)<<1)
		}
		if call.Tamper != nil {
			call.Tamper(e)
		}
		// Partner: the driver's load of the control word.
		dma.StoreBE32(call.entry, prm.CmdEntryStatusOff, prm.CmdEntryStatusDword(call.Token, signature, call.Delivery, false))
	}
	if !call.NoEvent {
		c.announce(1 << call.Slot)
	}
}

// announce posts a command event. Runs with mu held.
func (c *Card) announce(mask uint32) {
	var e prm.EQE
	e.SetEventType(prm.EventCommandCompletion)
	e.SetCommandVector(mask)
	c.fw.post(c, prm.EventCommandCompletion, &e)
}

// Announce posts a command event for slots, whatever their state.
func (c *Card) Announce(mask uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.announce(mask)
}
