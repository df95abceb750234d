package fwtest

import (
	"encoding/binary"
	"maps"
	"slices"

	"cxkit/dma"
	"cxkit/prm"
)

// firmware is what a card that follows the rules remembers. The card's lock guards it.
type firmware struct {
	BootPages, InitPages int32

	next     uint32
	beats    uint32
	strays   int // doorbells of entries that the driver owns
	unsigned int // entries without a valid signature
	counts   map[prm.Opcode]int
	reserved []string
	pages    []uint64
	zeroes   int // pages given at address 0
	eqs      map[uint8]*eq
}

// eq is an event queue.
type eq struct {
	mask     uint64
	vector   int
	pages    []uint64
	log      uint8
	producer uint32
	consumer uint32
	armed    bool
}

func (f *firmware) reset() {
	*f = firmware{
		BootPages: f.BootPages, InitPages: f.InitPages, beats: f.beats, strays: f.strays, counts: f.counts,
		reserved: f.reserved, zeroes: f.zeroes, next: 0x40,
		eqs: make(map[uint8]*eq), unsigned: f.unsigned,
	}
	if f.counts == nil {
		f.counts = make(map[prm.Opcode]int)
	}
}

func (f *firmware) count(op prm.Opcode) { f.counts[op]++ }

// SetPages says how many pages firmware asks for at boot and at initialization.
func (c *Card) SetPages(boot, init int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fw.BootPages, c.fw.InitPages = boot, init
}

// Pages is what firmware has been given and has not returned.
func (c *Card) Pages() []uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.fw.pages)
}

// Count is how many commands of an opcode arrived.
func (c *Card) Count(op prm.Opcode) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fw.counts[op]
}

// Ops lists the opcodes that arrived.
func (c *Card) Ops() []prm.Opcode {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.fw.counts))
}

// Faults lists what a driver did that it must not.
func (c *Card) Faults() (strays, zeroPages int, reserved []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fw.strays, c.fw.zeroes, slices.Clone(c.fw.reserved)
}

// Unsigned is how many commands came without a valid signature of their entry.
func (c *Card) Unsigned() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fw.unsigned
}

// Post posts an event to the queue that subscribed to its type, or, for completions, to queue eqn.
func (c *Card) Post(e *prm.EQE) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fw.post(c, e.EventType(), e)
}

// PostTo posts an event to queue eqn, whether it subscribed or not.
func (c *Card) PostTo(eqn uint8, e *prm.EQE) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q := c.fw.eqs[eqn]; q != nil {
		q.post(c, e)
	}
}

// EQN is the number of the queue that subscribed to a type.
func (c *Card) EQN(t prm.EventType) (eqn uint8, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n, q := range c.fw.eqs {
		if q.mask>>t&1 != 0 {
			return n, true
		}
	}
	return 0, false
}

// RequestPages posts a page request for function 0.
func (c *Card) RequestPages(n int32) { c.RequestPagesFor(0, n, false) }

// RequestPagesFor posts a page request.
func (c *Card) RequestPagesFor(function uint16, n int32, releaseAll bool) {
	var e prm.EQE
	e.SetEventType(prm.EventPageRequest)
	r := prm.PageRequestEvent{FuncID: function, NumPages: n, ReleaseAllPages: releaseAll}
	r.Put(e.Data()[:])
	c.Post(&e)
}

// announces tells whether there is a queue for command events.
func (f *firmware) announces() bool {
	for _, q := range f.eqs {
		if q.mask>>prm.EventCommandCompletion&1 != 0 {
			return true
		}
	}
	return false
}

func (f *firmware) post(c *Card, t prm.EventType, e *prm.EQE) {
	for _, q := range f.eqs {
		if q.mask>>t&1 != 0 {
			q.post(c, e)
			return
		}
	}
}

func (q *eq) post(c *Card, e *prm.EQE) {
	at := q.producer & (1<<q.log - 1)
	b := c.at(q.pages[at*prm.EQESize/4096]+uint64(at*prm.EQESize%4096), prm.EQESize)
	if b == nil {
		return
	}
	copy(b[:prm.EQEOwnOff], e[:])
	// Partner: the driver's load of the owner word.
	dma.StoreBE32(b, prm.EQEOwnOff, prm.EQEOwnDword(e.Signature(), q.producer>>q.log&1 != 0))
	q.producer++
	q.fire(c)
}

func (q *eq) fire(c *Card) {
	if q.armed && q.producer != q.consumer {
		q.armed = false
		c.raise(q.vector)
	}
}

// doorbell acts on a write to a doorbell page.
func (f *firmware) doorbell(c *Card, off, v uint64) {
	if off != 0x40 && off != 0x48 {
		return
	}
	q := f.eqs[uint8(v>>24)]
	if q == nil {
		return
	}
	q.consumer = q.producer - (q.producer-uint32(v))&0xFFFFFF
	q.armed = off == 0x40
	q.fire(c)
}

// Default answers as a card that follows the rules.
func (c *Call) Default() {
	c.Card.mu.Lock()
	defer c.Card.mu.Unlock()
	c.Card.fw.execute(c)
	if c.Edit != nil {
		c.Edit(c.Out)
	}
	c.Card.finish(c)
}

func (f *firmware) number() uint32 { f.next++; return f.next }

func (f *firmware) execute(c *Call) {
	put := func(out interface{ Put([]byte) }, n int) {
		b := make([]byte, n)
		out.Put(b)
		copy(c.Out, b)
	}
	switch c.Op {
	case prm.OpQueryISSI:
		put(&prm.QueryISSIOut{SupportedISSIDw0: 2}, prm.QueryISSIOutSize)
	case prm.OpQueryPages:
		var in prm.QueryPagesIn
		in.Get(c.In)
		n := f.InitPages
		if prm.QueryPagesOpMod(in.OpMod) == prm.QueryPagesBoot {
			n = f.BootPages
		}
		binary.BigEndian.PutUint32(c.Out[0xC:], uint32(n))
	case prm.OpManagePages:
		f.managePages(c)
	case prm.OpQueryHCACap:
		f.caps(c)
	case prm.OpQueryAdapter:
		var out prm.QueryAdapterOut
		copy(out.Adapter.VSDContdPSID[:], "MT_0000000000")
		put(&out, prm.QueryAdapterOutSize)
	case prm.OpAllocUAR:
		put(&prm.AllocUAROut{UAR: firstUAR}, prm.AllocUAROutSize)
	case prm.OpCreateEQ:
		var in prm.CreateEQIn
		in.Get(c.In)
		n := uint8(f.number())
		f.eqs[n] = &eq{mask: in.EventBitmask[0], vector: int(in.Context.Intr), pages: in.PAS, log: in.Context.LogEQSize}
		put(&prm.CreateEQOut{EQN: n}, prm.CreateEQOutSize)
	case prm.OpDestroyEQ:
		delete(f.eqs, c.In[11])
	case prm.OpTeardownHCA:
		clear(f.eqs)
	case prm.OpAllocPD, prm.OpAllocTransportDomain, prm.OpCreateMKey, prm.OpCreateCQ, prm.OpCreateRQ, prm.OpCreateSQ,
		prm.OpCreateTIR, prm.OpCreateTIS, prm.OpCreateRQT, prm.OpCreateFlowTable, prm.OpCreateFlowGroup:
		binary.BigEndian.PutUint32(c.Out[8:], f.number())
	case prm.OpAllocQCounter:
		binary.BigEndian.PutUint32(c.Out[8:], f.number()&0xFF)
	case prm.OpQueryNICVportContext:
		var out prm.QueryNICVportContextOut
		out.NICVportContext.PermanentAddress = [6]byte{0x02, 1, 2, 3, 4, 5}
		out.NICVportContext.MTU = 1522
		b := make([]byte, max(out.Len(), len(c.Out)))
		out.Put(b)
		copy(c.Out, b)
	case prm.OpQueryVportState:
		put(&prm.QueryVportStateOut{AdminState: 1, State: 1}, prm.QueryVportStateOutSize)
	case prm.OpAccessReg:
		copy(c.Out[0x10:], c.In[0x10:]) // every register reads as it was asked for
	case prm.OpQuerySpecialContexts:
		put(&prm.QuerySpecialContextsOut{ReservedLKey: 0x500}, prm.QuerySpecialContextsOutSize)
	}
}

func (f *firmware) managePages(c *Call) {
	var in prm.ManagePagesIn
	in.Get(c.In)
	switch prm.PagesOpMod(in.OpMod) {
	case prm.PagesGive:
		for _, pa := range in.PAS {
			if pa == 0 {
				f.zeroes++
			}
		}
		f.pages = append(f.pages, in.PAS...)
	case prm.PagesTake:
		n := min(int(in.InputNumEntries), len(f.pages), 50_000)
		out := prm.ManagePagesOut{OutputNumEntries: uint32(n), PAS: f.pages[len(f.pages)-n:]}
		b := make([]byte, out.Len())
		out.Put(b)
		copy(c.Out, b)
		f.pages = f.pages[:len(f.pages)-n]
	}
}

func (f *firmware) caps(c *Call) {
	var in prm.QueryHCACapIn
	in.Get(c.In)
	group, _ := prm.SplitCapOpMod(in.OpMod)
	switch group {
	case prm.CapGroupGeneral:
		caps := prm.CapGeneral{
			LogMaxCQSz: 22, LogMaxCQ: 20, LogMaxEQSz: 22, LogMaxEQ: 4, LogMaxMKey: 20, NICFlowTable: true,
			PortType: prm.PortTypeEthernet, NumPorts: 1, EthNetOffloads: true, DriverVersion: true, MaxNumEQs: 64,
			LogMaxQP: 20, ReleaseAllPages: true, CmdifChecksum: 3, LogMaxWQSz: 15, LogMaxRQ: 20, LogMaxSQ: 20, LogMaxTIR: 20,
			LogMaxTIS: 20, LogMaxRQT: 20, LogMaxRQTSize: 11, LogMaxCurrentUCList: 7, LogMaxCurrentMCList: 14, LogMaxVLANList: 12,
			MaxWQESzSQ: 1024, MaxWQESzRQ: 512, PortModuleEvent: true,
		}
		caps.Put(c.Out[0x10:])
	case prm.CapGroupEthernetOffloads:
		caps := prm.CapEthernetOffloads{CsumCap: true, VLANCap: true, MaxLSOCap: 18, RSSIndTblCap: 11, WQEInlineMode: 2}
		caps.Put(c.Out[0x10:])
	case prm.CapGroupFlowTable:
		var caps prm.CapFlowTable
		caps.FlowTablePropertiesNICReceive = prm.FlowTableProperties{
			FTSupport: true, LogMaxFTSize: 22, LogMaxFTNum: 24, MaxFTLevel: 64, LogMaxFlow: 24, LogMaxDestination: 6,
		}
		caps.Put(c.Out[0x10:])
	}
}
