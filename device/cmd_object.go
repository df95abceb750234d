package device

import (
	"encoding/binary"
	"math"

	"cxkit/device/internal/command"
	"cxkit/device/internal/event"
	"cxkit/device/internal/mkey"
	"cxkit/device/internal/ring"
	"cxkit/pci"
	"cxkit/prm"
)

// eventTypes is a mask of the event types an EQ may subscribe to: all that exist in the first 64.
const eventTypes = (uint64(1)<<0x28 - 1) &^ 1

func (f *function) createEQ(c *command.Call) command.Result {
	var in prm.CreateEQIn
	in.Get(c.In)
	ctx := &in.Context
	if ctx.LogEQSize > f.caps.General.LogMaxEQSz {
		return fault(prm.StatusBadParameter, synLogSize)
	}
	if int(ctx.Intr) >= f.info.Vectors {
		return fault(prm.StatusBadIndex, synVector)
	}
	u, ok := f.uars.Get(ctx.UARPage)
	if !ok {
		return fault(prm.StatusBadResource, synNoUAR)
	}
	if in.EventBitmask[0]&^eventTypes|in.EventBitmask[1]|in.EventBitmask[2]|in.EventBitmask[3] != 0 {
		return fault(prm.StatusBadParameter, synEQMask)
	}
	pages, r := ringPages(c.In[prm.CreateEQInSize:], ringShape{
		bytes: prm.EQESize << ctx.LogEQSize, logPage: ctx.LogPageSize, offset: ctx.PageOffset, offsetUnits: 64,
	})
	if !r.OK() {
		return r
	}
	eq := &event.EQ{
		Ring: pages, LogSize: ctx.LogEQSize, Mask: in.EventBitmask, Vector: int(ctx.Intr), UAR: ctx.UARPage,
		OverrunIgnore: ctx.OI, Context: *ctx,
	}
	eqn, ok := f.events.Add(eq)
	if !ok {
		return fault(prm.StatusLimitExceeded, synNoNumber)
	}
	u.Hold()
	c.Reply(&prm.CreateEQOut{EQN: eqn})
	return command.Result{}
}

func (f *function) destroyEQ(c *command.Call) command.Result {
	eqn := c.In[11]
	eq := f.events.Get(eqn)
	if eq == nil {
		return fault(prm.StatusBadResource, synNoEQ)
	}
	if eq.Held() {
		return fault(prm.StatusBadResourceState, synInUse)
	}
	f.events.Remove(eqn)
	if u, ok := f.uars.Get(eq.UAR); ok {
		u.Drop()
	}
	return command.Result{}
}

func (f *function) queryEQ(c *command.Call) command.Result {
	eq := f.events.Get(c.In[11])
	if eq == nil {
		return fault(prm.StatusBadResource, synNoEQ)
	}
	out := prm.QueryEQOut{Context: eq.Context, EventBitmask: eq.Mask[0], PAS: eq.Ring.Addrs()}
	ctx := &out.Context
	ctx.ProducerCounter, ctx.ConsumerCounter = eq.Counters()
	ctx.Status = uint8(eq.Status())
	switch {
	case eq.Armed():
		ctx.ST = prm.EQStateArmed
	case eq.Fired():
		ctx.ST = prm.EQStateFired
	}
	c.Reply(&out)
	return command.Result{}
}

func (f *function) genEQE(c *command.Call) command.Result {
	var in prm.GenEQEIn
	in.Get(c.In)
	eq := f.events.Get(in.EQN)
	if eq == nil {
		return fault(prm.StatusBadResource, synNoEQ)
	}
	f.events.Inject(eq, in.EQE[:])
	return command.Result{}
}

// eqFailed is called when an EQ can take no more entries.
func (f *function) eqFailed(eqn uint8, overrun bool) {
	syn := prm.HealthEQError
	if overrun {
		syn = prm.HealthAsyncEQOverrun
	}
	f.fail(health{severity: 3, syndrome: uint8(syn), extSyndrome: uint16(eqn)})
}

func (f *function) allocUAR(c *command.Call) command.Result {
	u := &uar{}
	var ok bool
	if u.number, ok = f.uars.Add(u); !ok {
		return fault(prm.StatusLimitExceeded, synNoNumber)
	}
	f.mapped.add(u, uint64(u.number)<<f.uarShift)
	c.Reply(&prm.AllocUAROut{UAR: u.number})
	return command.Result{}
}

func (f *function) deallocUAR(c *command.Call) command.Result {
	n := number24(c)
	u, ok := f.uars.Get(n)
	switch {
	case !ok:
		return fault(prm.StatusBadResource, synNoUAR)
	case u.Held():
		return fault(prm.StatusBadResourceState, synInUse)
	}
	f.uars.Remove(n)
	f.mapped.remove(u)
	return command.Result{}
}

func (f *function) allocPD(c *command.Call) command.Result {
	n, ok := f.pds.Add(&protectionDomain{})
	if !ok {
		return fault(prm.StatusLimitExceeded, synNoNumber)
	}
	c.Reply(&prm.AllocPDOut{PD: n})
	return command.Result{}
}

func (f *function) deallocPD(c *command.Call) command.Result {
	n := number24(c)
	d, ok := f.pds.Get(n)
	switch {
	case !ok:
		return fault(prm.StatusBadResource, synNoPD)
	case d.Held():
		return fault(prm.StatusBadResourceState, synInUse)
	}
	f.pds.Remove(n)
	return command.Result{}
}

func (f *function) allocTransportDomain(c *command.Call) command.Result {
	n, ok := f.domains.Add(&transportDomain{})
	if !ok {
		return fault(prm.StatusLimitExceeded, synNoNumber)
	}
	c.Reply(&prm.AllocTransportDomainOut{TransportDomain: n})
	return command.Result{}
}

func (f *function) deallocTransportDomain(c *command.Call) command.Result {
	n := number24(c)
	d, ok := f.domains.Get(n)
	switch {
	case !ok:
		return fault(prm.StatusBadResource, synNoTransportDomain)
	case d.Held():
		return fault(prm.StatusBadResourceState, synInUse)
	}
	f.domains.Remove(n)
	return command.Result{}
}

// number24 is the object number that most commands have at 0x08[23:0].
func number24(c *command.Call) uint32 { return binary.BigEndian.Uint32(c.In[8:]) & 0xffffff }

func (f *function) querySpecialContexts(c *command.Call) command.Result {
	c.Reply(&prm.QuerySpecialContextsOut{
		DumpFillMKey: mkey.DumpFill, ReservedLKey: mkey.Reserved, NullMKey: mkey.Null,
		TerminateScatterListMKey: prm.TerminateScatterLKey,
	})
	return command.Result{}
}

func (f *function) createMKey(c *command.Call) command.Result {
	var in prm.CreateMKeyIn
	in.Get(c.In)
	if in.MKeyUMEMValid {
		return fault(prm.StatusBadParameter, synMKeyUMEM)
	}
	if uint64(in.TranslationsOctwordActualSize)*2 > uint64(len(in.Translations)) {
		return fault(prm.StatusBadInputLength, synMKeyList)
	}
	var pd *protectionDomain
	if pd, _ = f.pds.Get(in.Context.PD); pd == nil {
		return fault(prm.StatusBadResource, synNoPD)
	}
	index, ok, err := f.keys.Create(in.Context, in.Translations[:2*in.TranslationsOctwordActualSize])
	switch {
	case err == mkey.ErrMode:
		return fault(prm.StatusBadParameter, synMKeyMode)
	case err != nil:
		return fault(prm.StatusBadParameter, synMKeySize)
	case !ok:
		return fault(prm.StatusLimitExceeded, synNoNumber)
	}
	pd.Hold()
	c.Reply(&prm.CreateMKeyOut{MKeyIndex: index})
	return command.Result{}
}

func (f *function) queryMKey(c *command.Call) command.Result {
	k := f.keys.Get(number24(c))
	if k == nil {
		return fault(prm.StatusBadResource, synNoMKey)
	}
	out := prm.QueryMKeyOut{Context: k.Context}
	var words [4]uint64
	copy(words[:], k.Entries)
	for i, w := range words[:2] {
		binary.BigEndian.PutUint64(out.BSF0KLM0PASMTT0_1[8*i:], w)
		binary.BigEndian.PutUint64(out.BSF1KLM1PASMTT2_3[8*i:], words[2+i])
	}
	c.Reply(&out)
	return command.Result{}
}

func (f *function) destroyMKey(c *command.Call) command.Result {
	index := number24(c)
	k := f.keys.Get(index)
	if k == nil {
		return fault(prm.StatusBadResource, synNoMKey)
	}
	if pd, ok := f.pds.Get(k.Context.PD); ok {
		pd.Drop()
	}
	f.keys.Destroy(index)
	return command.Result{}
}

// ringShape is what a context says of a ring.
type ringShape struct {
	bytes       int   // length
	logPage     uint8 // log2 of the page size less 12
	offset      uint8 // of byte 0 in the first page, in units of page size/offsetUnits
	offsetUnits int
}

// ringPages checks a page list against a ring. The list is what is left of the input; it may be longer
// than the ring needs.
func ringPages(list []byte, s ringShape) (*ring.Pages, command.Result) {
	const maxLogPage = 18 // pages of 1 GiB
	if s.logPage > maxLogPage {
		return nil, fault(prm.StatusBadParameter, synPageSize)
	}
	shift := s.logPage + 12
	// 64 bits: the last offset into a page of 1 GiB is beyond an int on small hosts.
	offset := uint64(s.offset) << shift / uint64(s.offsetUnits)
	if offset&63 != 0 || offset > math.MaxInt32 {
		return nil, fault(prm.StatusBadParameter, synPageOffset)
	}
	n := (offset + uint64(s.bytes) + 1<<shift - 1) >> shift
	if n > uint64(len(list)/8) {
		return nil, fault(prm.StatusBadInputLength, synPageListShort)
	}
	addrs := make([]uint64, n)
	for i := range addrs {
		addrs[i] = binary.BigEndian.Uint64(list[8*i:])
		if addrs[i]&(1<<shift-1) != 0 {
			return nil, fault(prm.StatusBadParameter, synPageListAddress)
		}
	}
	return ring.New(addrs, shift, int(offset), pci.Read|pci.Write), command.Result{}
}
