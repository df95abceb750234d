package device

import (
	"encoding/binary"
	"time"

	"cxkit/device/internal/command"
	"cxkit/device/internal/memory"
	"cxkit/device/internal/object"
	"cxkit/prm"
)

func (f *function) queryPages(c *command.Call) command.Result {
	var in prm.QueryPagesIn
	in.Get(c.In)
	if f.isWard() {
		// Its pages are the manager's business.
		if in.FunctionID != 0 || in.EmbeddedCPUFunction {
			return fault(prm.StatusBadParameter, synFunctionID)
		}
		c.Reply(&prm.QueryPagesOut{})
		return command.Result{}
	}
	own := f.ownPages()
	if id := (PageFunction{in.FunctionID, in.EmbeddedCPUFunction}); id != own.id && id != (PageFunction{EC: f.embedded()}) {
		return fault(prm.StatusBadParameter, synFunctionID)
	}
	m, held := f.appetite, f.memory.Len()
	var n int
	switch prm.QueryPagesOpMod(c.OpMod) {
	case prm.QueryPagesBoot:
		n = max(m.Boot-held, 0)
	case prm.QueryPagesInit:
		n = max(m.Boot+m.Init-held, 0)
	case prm.QueryPagesRegular:
		n = f.wantedPages(object.None) - held
	default:
		return fault(prm.StatusBadOperation, synOpMod)
	}
	c.Reply(&prm.QueryPagesOut{FunctionID: own.id.ID, EmbeddedCPUFunction: own.id.EC, NumPages: memory.Clamp(n)})
	return command.Result{}
}

func (f *function) managePages(c *command.Call) command.Result {
	// Decoded by hand: the list may be long, and is used once.
	word := binary.BigEndian.Uint32(c.In[8:])
	a, ok := f.pagesOf(PageFunction{uint16(word), word>>31 != 0})
	if !ok {
		return fault(prm.StatusBadParameter, synFunctionID)
	}
	n := binary.BigEndian.Uint32(c.In[12:])
	switch prm.PagesOpMod(c.OpMod) {
	case prm.PagesCantGive:
		f.pagesRefused(a)
		return command.Result{}
	case prm.PagesGive:
		return f.givePages(a, c, n)
	case prm.PagesTake:
		return f.takePages(a, c, n)
	}
	return fault(prm.StatusBadOperation, synOpMod)
}

// givePages books a list of page addresses, all or none.
func (f *function) givePages(a account, c *command.Call, n uint32) command.Result {
	list := c.In[16:]
	if uint64(n)*8 > uint64(len(list)) {
		return fault(prm.StatusBadInputLength, synPageList)
	}
	if !a.own() && uint64(n) > uint64(a.asked) {
		// A function that was reset has no use for what it wanted before. Taking the pages would leave the
		// driver, which frees what a reset function had, with pages that the card writes.
		return fault(prm.StatusBadResourceState, synPagesNotAsked)
	}
	for end := min(int(n), c.Done+pagesPerPart); c.Done < end; c.Done++ {
		err := f.lend(a, binary.BigEndian.Uint64(list[8*c.Done:]))
		if err == nil {
			continue
		}
		for range c.Done {
			a.books.Take()
		}
		switch err {
		case memory.ErrTwice:
			return fault(prm.StatusBadParameter, synPageTwice)
		case memory.ErrTooMany:
			return fault(prm.StatusLimitExceeded, synPageCount)
		}
		return fault(prm.StatusBadParameter, synPageAddress)
	}
	if c.Done < int(n) {
		c.More = true
		return command.Result{}
	}
	a.asked = 0
	a.storm.count(func(s *PageStorm) { s.Gives++ })
	if a.of != nil {
		f.afterCommand = a.of.pagesGiven
	} else {
		f.afterCommand = func() { f.hoarded(a) }
	}
	return command.Result{}
}

// lend books one page. Functions of one host share its memory: a page is lent to one of them.
func (f *function) lend(a account, addr uint64) error {
	if !a.own() && f.memory.Holds(addr) {
		return memory.ErrTwice
	}
	for id, m := range f.pageState.managed {
		if id != a.id && m.books.Holds(addr) {
			return memory.ErrTwice
		}
	}
	for _, p := range f.esw().wards() {
		if p.function != a.of && p.function.memory.Holds(addr) {
			return memory.ErrTwice
		}
	}
	return a.books.Give(addr)
}

// takePages returns pages that firmware can spare: all of them unless the function is initialised.
func (f *function) takePages(a account, c *command.Call, n uint32) command.Result {
	spare := max(f.sparePages(a), 0)
	if f.phase != command.Initialised {
		spare = max(a.books.Len()-a.busy, 0)
	}
	limit := f.card.config.Memory.TakeLimit
	room := (len(c.Out) - 16) / 8
	if room < 0 || uint64(n) > uint64(room) && room < min(spare, limit) {
		return fault(prm.StatusBadOutputLength, synPageList)
	}
	// What earlier parts took counts; what is left may have become less since then.
	count := min(c.Done+spare, limit, int(min(uint64(n), uint64(room))))
	for end := min(count, c.Done+pagesPerPart); c.Done < end; c.Done++ {
		addr, _ := a.books.Take()
		binary.BigEndian.PutUint64(c.Out[16+8*c.Done:], addr)
	}
	if c.Done < count {
		c.More = true
		return command.Result{}
	}
	count = c.Done
	binary.BigEndian.PutUint32(c.Out[8:], uint32(count))
	a.offered = false
	a.storm.count(func(s *PageStorm) {
		s.Takes++
		s.Returned += count
	})
	return command.Result{}
}

// retryPages is how long firmware waits before it offers pages again after it refused to return them.
const retryPages = 100 * time.Millisecond

// pagesFailed acts on a page command that was refused: pages that could not be given are not there, those
// that could not be taken are offered again.
func (f *function) pagesFailed(c *command.Call, r command.Result) {
	if len(c.In) < command.Inline || r.Syndrome == uint32(synPagesNotAsked) {
		return
	}
	word := binary.BigEndian.Uint32(c.In[8:])
	a, ok := f.pagesOf(PageFunction{uint16(word), word>>31 != 0})
	switch {
	case !ok:
	case prm.PagesOpMod(c.OpMod) == prm.PagesGive, prm.PagesOpMod(c.OpMod) == prm.PagesCantGive:
		f.pagesRefused(a)
	case prm.PagesOpMod(c.OpMod) == prm.PagesTake && a.offered:
		f.card.timers.arm(&f.pageRetry, f.card.now+retryPages)
	}
}

// offerAgain is pageRetry's end.
func (f *function) offerAgain() {
	if f.mem == nil {
		return
	}
	f.enter()
	f.pageState.offered = false
	for _, m := range f.pageState.managed {
		m.wants.offered = false
	}
	for _, p := range f.esw().wards() {
		p.function.pageState.offered = false
	}
	f.offerPages()
}
