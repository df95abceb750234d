package device

import (
	"encoding/binary"
	"testing"
	"time"

	"cxkit/dma"
	"cxkit/mmio"
	"cxkit/pci"
	"cxkit/prm"
	"cxkit/transport/inproc"
)

// bench is a card with a minimal driver: it writes command entries by hand and steps the engine itself,
// so that every run is the same.
type bench struct {
	testing.TB
	card  *Card
	index int                             // of the function under test
	wrap  func(pci.Endpoint) pci.Endpoint // what attach does to it; nil: nothing
	fn    *inproc.Function
	regs  *mmio.Window
	clock *manualClock
	rest  func() // lets the engine come to rest

	queue  dma.Region // command queue
	boxes  dma.Region // mailboxes, input and output
	arena  *dma.Arena
	free   *dma.Carver
	token  byte
	nextPA uint64 // of pages given to firmware

	memory, mailboxes int
}

// manualClock stands still unless told otherwise.
type manualClock struct{ now time.Time }

func (c *manualClock) read() time.Time         { return c.now }
func (c *manualClock) advance(d time.Duration) { c.now = c.now.Add(d) }
func newManualClock() *manualClock             { return &manualClock{now: time.Unix(1_000_000, 0)} }

// newBench makes a card and attaches its function 0. The function is bus master and has booted.
func newBench(t testing.TB, config Config) *bench {
	t.Helper()
	return newSizedBench(t, config, 8<<20, 2048)
}

// newSizedBench is newBench with so many bytes of memory and so many mailboxes, at least 128.
func newSizedBench(t testing.TB, config Config, memory, mailboxes int) *bench {
	t.Helper()
	clock := newManualClock()
	if config.Clock == nil {
		config.Clock = clock.read
	}
	card, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{TB: t, card: card, clock: clock, nextPA: 1 << 44, memory: memory, mailboxes: mailboxes}
	b.rest = b.step
	t.Cleanup(func() {
		if b.fn != nil {
			b.fn.Close()
		}
		card.Close()
	})
	b.attach(0)
	return b
}

// attach plugs a function in.
func (b *bench) attach(index int) {
	b.Helper()
	endpoint := b.card.Function(index)
	if b.wrap != nil {
		endpoint = b.wrap(endpoint)
	}
	fn, err := inproc.Open(endpoint, inproc.Config{Kind: dma.Heap})
	if err != nil {
		b.Fatal(err)
	}
	b.index, b.fn = index, fn
	if b.regs, err = fn.Window(0); err != nil {
		b.Fatal(err)
	}
	if b.arena, err = fn.NewArena(b.memory, dma.Heap); err != nil {
		b.Fatal(err)
	}
	b.free = dma.NewCarver(b.arena)
	b.queue = b.carve(4096, 4096)
	b.boxes = b.carve(b.mailboxes*1024, 4096)
	if err := fn.WriteConfig(4, []byte{0x06, 0x04}); err != nil { // memory, bus master, no INTx
		b.Fatal(err)
	}
	b.clock.advance(time.Second)
}

func (b *bench) function() *function { return b.card.functions[b.index] }

// carve returns n bytes of DMA memory.
func (b *bench) carve(n, align int) dma.Region {
	b.Helper()
	r, ok := b.free.Carve(n, align)
	if !ok {
		b.Fatal("the bench's arena is used up")
	}
	return r
}

// startQueue gives the card its command queue.
func (b *bench) startQueue() {
	b.regs.Store32(regCmdqHigh, uint32(b.queue.Bus>>32))
	b.regs.Store32(regCmdqLow, uint32(b.queue.Bus))
	b.settle()
}

// settle waits until the engine has nothing to do.
func (b *bench) settle() { b.rest() }

// step steps the engine until it has nothing to do.
func (b *bench) step() {
	b.Helper()
	for range 10_000 {
		if !b.card.Step(64) {
			return
		}
	}
	b.Fatal("the engine does not come to rest")
}

// entry returns slot i of the command queue.
func (b *bench) entry(i int) []byte { return b.queue.Bytes[i*64 : i*64+64] }

// post writes a command to slot i and rings its doorbell. Each slot has mailboxes of its own, as far as
// they reach.
func (b *bench) post(i int, in []byte, outLen int) {
	b.Helper()
	b.token++
	if b.token == 0 {
		b.token = 1
	}
	e := b.entry(i)
	clear(e[:60])
	e[0] = prm.CmdTypePCI
	binary.BigEndian.PutUint32(e[4:], uint32(len(in)))
	copy(e[0x10:0x20], in)
	inBoxes, outBoxes := prm.MailboxBlocks(len(in)), prm.MailboxBlocks(outLen)
	if inBoxes > 0 {
		binary.BigEndian.PutUint64(e[8:], b.chain(i, 0, inBoxes, in[16:]))
	}
	if outBoxes > 0 {
		binary.BigEndian.PutUint64(e[0x30:], b.chain(i, inBoxes, outBoxes, nil))
	}
	binary.BigEndian.PutUint32(e[0x38:], uint32(outLen))
	dma.StoreBE32(e, 0x3c, uint32(b.token)<<24|1)
	b.regs.Store32(regCmdDoorbell, 1<<i)
}

// slotBoxes is how many mailboxes slot i may use; slot 0 has half of them.
func (b *bench) slotBoxes(i int) (first, n int) {
	each := b.mailboxes / 64
	if i == 0 {
		return 0, b.mailboxes - 31*each
	}
	return b.mailboxes - i*each, each
}

func (b *bench) box(i, n int) dma.Region {
	b.Helper()
	first, count := b.slotBoxes(i)
	if n >= count {
		b.Fatalf("slot %d has %d mailboxes, %d is too many", i, count, n)
	}
	return b.boxes.Slice((first+n)*1024, prm.MailboxSize)
}

// chain fills mailboxes first to first+n-1 of slot i and returns where the chain begins.
func (b *bench) chain(i, first, n int, data []byte) uint64 {
	for k := range n {
		box := b.box(i, first+k)
		clear(box.Bytes)
		data = data[copy(box.Bytes[:prm.MailboxDataLen], data):]
		m := (*prm.Mailbox)(box.Bytes)
		m.SetBlockNumber(uint32(k))
		m.SetToken(b.token)
		if k+1 < n {
			m.SetNextPtr(b.box(i, first+k+1).Bus)
		}
	}
	return b.box(i, first).Bus
}

// owned reports whether the card has slot i.
func (b *bench) owned(i int) bool { return dma.LoadBE32(b.entry(i), 0x3c)&1 != 0 }

// answer reads the answer of slot i.
func (b *bench) answer(i, inLen, outLen int) (delivery prm.DeliveryStatus, out []byte) {
	e := b.entry(i)
	out = make([]byte, 0, outLen+prm.MailboxDataLen)
	out = append(out, e[0x20:0x30]...)
	for k := range prm.MailboxBlocks(outLen) {
		out = append(out, b.box(i, prm.MailboxBlocks(inLen)+k).Bytes[:prm.MailboxDataLen]...)
	}
	return prm.DeliveryStatus(e[0x3f] >> 1), out[:outLen]
}

// input and output are what prm's command structures have in common.
type (
	input interface {
		Opcode() prm.Opcode
		Len() int
		Put([]byte)
	}
	output interface {
		Len() int
		Get([]byte)
		Result() (prm.Status, uint32)
	}
)

// raw runs a command in slot 0.
func (b *bench) raw(in []byte, outLen int) (prm.Status, syndrome, []byte) {
	b.Helper()
	b.post(0, in, outLen)
	b.settle()
	if b.owned(0) {
		b.Fatalf("%v did not end", prm.Opcode(binary.BigEndian.Uint16(in)))
	}
	delivery, out := b.answer(0, len(in), outLen)
	if delivery != prm.DeliveryOK {
		b.Fatalf("%v: delivery status %v", prm.Opcode(binary.BigEndian.Uint16(in)), delivery)
	}
	status, syn := prm.OutputResult(out)
	return status, syndrome(syn), out
}

// exec runs a command and returns how it ended.
func (b *bench) exec(in input, out output) (prm.Status, syndrome) {
	b.Helper()
	buf := make([]byte, in.Len())
	in.Put(buf)
	status, syn, answer := b.raw(buf, max(out.Len(), 16))
	out.Get(answer)
	return status, syn
}

// must runs a command that has to succeed.
func (b *bench) must(in input, out output) {
	b.Helper()
	if status, syn := b.exec(in, out); status != prm.StatusOK {
		b.Fatalf("%v: %v: %v", in.Opcode(), status, syn)
	}
}

// refused runs a command that has to fail with the given status and syndrome.
func (b *bench) refused(in input, out output, status prm.Status, syn syndrome) {
	b.Helper()
	if got, gotSyn := b.exec(in, out); got != status || gotSyn != syn {
		b.Errorf("%v: got %v (%v), want %v (%v)", in.Opcode(), got, gotSyn, status, syn)
	}
}

// give gives n new pages to firmware. Nobody ever touches them, so they need no memory.
func (b *bench) give(n int) {
	b.Helper()
	in := prm.ManagePagesIn{OpMod: uint16(prm.PagesGive), EmbeddedCPUFunction: b.function().embedded(), InputNumEntries: uint32(n)}
	for range n {
		in.PAS = append(in.PAS, b.nextPA)
		b.nextPA += 4096
	}
	b.must(&in, &prm.ManagePagesOut{})
}

// wanted asks how many pages firmware wants.
func (b *bench) wanted(when prm.QueryPagesOpMod) int {
	b.Helper()
	var out prm.QueryPagesOut
	b.must(&prm.QueryPagesIn{OpMod: uint16(when), EmbeddedCPUFunction: b.function().embedded()}, &out)
	return int(out.NumPages)
}

// enable brings the function up to ENABLE_HCA and gives it the boot pages.
func (b *bench) enable() {
	b.Helper()
	b.startQueue()
	b.must(&prm.EnableHCAIn{EmbeddedCPUFunction: b.function().embedded()}, &prm.EnableHCAOut{})
	b.must(&prm.QueryISSIIn{}, &prm.QueryISSIOut{})
	b.must(&prm.SetISSIIn{CurrentISSI: 1}, &prm.SetISSIOut{})
	b.give(b.wanted(prm.QueryPagesBoot))
}

// bringUp brings the function up to INIT_HCA.
func (b *bench) bringUp() {
	b.Helper()
	b.enable()
	b.give(b.wanted(prm.QueryPagesInit))
	b.must(&prm.InitHCAIn{}, &prm.InitHCAOut{})
}

// allocUAR allocates a doorbell page.
func (b *bench) allocUAR() uint32 {
	b.Helper()
	var out prm.AllocUAROut
	b.must(&prm.AllocUARIn{}, &out)
	return out.UAR
}

// eq is an event queue of the bench.
type eq struct {
	b    *bench
	ring dma.Region
	log  uint8
	uar  uint32
	n    uint8
	ci   uint32
}

// newEQ creates an EQ of 1<<log entries on vector 0 for the types given.
func (b *bench) newEQ(uar uint32, log uint8, vector uint16, types ...prm.EventType) *eq {
	b.Helper()
	e := &eq{b: b, uar: uar, log: log, ring: b.carve(max(64<<log, 4096), 4096)}
	for i := range 1 << log {
		e.ring.Bytes[64*i+63] = 1
	}
	in := prm.CreateEQIn{Context: prm.EQContext{LogEQSize: log, UARPage: uar, Intr: vector}}
	for _, t := range types {
		in.EventBitmask[0] |= 1 << t
	}
	for at := 0; at < len(e.ring.Bytes); at += 4096 {
		in.PAS = append(in.PAS, e.ring.Bus+uint64(at))
	}
	var out prm.CreateEQOut
	b.must(&in, &out)
	e.n = out.EQN
	return e
}

// next takes the next entry; nil if there is none.
func (e *eq) next() *prm.EQE {
	at := int(e.ci & (1<<e.log - 1) * 64)
	slot := e.ring.Bytes[at : at+64]
	if dma.LoadBE32(slot, 60)&1 != e.ci>>e.log&1 {
		return nil
	}
	e.ci++
	return (*prm.EQE)(slot)
}

// arm asks for an interrupt; update only tells how far the driver has read.
func (e *eq) arm()    { e.doorbell(prm.UAREQArmOff) }
func (e *eq) update() { e.doorbell(prm.UAREQUpdateOff) }

func (e *eq) doorbell(off uint64) {
	e.b.regs.Store32(uint64(e.uar)<<uarShift+off, uint32(e.n)<<24|e.ci&0xffffff)
	e.b.settle()
}

var _ pci.Endpoint = (*function)(nil)
