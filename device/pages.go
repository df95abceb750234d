package device

import (
	"cxkit/device/internal/command"
	"cxkit/device/internal/memory"
	"cxkit/device/internal/object"
	"cxkit/prm"
)

const (
	// maxTake is how many pages firmware returns in one command (reports R01, R02: a real card never
	// returns more).
	maxTake = 50_000
	// maxAsk is how many pages firmware asks for at once: the list fits 256 mailboxes, and booking it keeps
	// the engine from its packets for a fraction of a millisecond.
	maxAsk = 1 << 14
)

// Firmware asks for askStep pages at least, and offers back when offerStep are spare, so that an object
// that comes and goes does not move a page each time. What it has begun to offer it offers until none is
// spare.
const (
	askStep   = 16
	offerStep = 2 * askStep
)

// objectBytes is how much of firmware's memory an object of each kind takes, roughly as contexts on real
// cards do. Config.Memory.Objects changes it.
var objectBytes = [object.Kinds]int{
	object.EQ: 4096, object.CQ: 1024, object.SQ: 2048, object.RQ: 2048, object.RMP: 2048,
	object.MKey: 512, object.TIS: 256, object.TIR: 512, object.RQT: 4096,
	object.FlowTable: 4096, object.FlowGroup: 1024, object.FlowEntry: 512, object.FlowCounter: 64, object.ModifyHeader: 64,
	object.QCounter: 1024, object.PD: 64, object.TransportDomain: 64, object.UAR: 64,
	object.UMEM: 256, object.QP: 2048,
}

// objectCounts counts the objects of a function by kind.
func (f *function) objectCounts() (n [object.Kinds]int) {
	n[object.EQ] = f.events.Len()
	n[object.MKey] = f.keys.Len()
	n[object.UAR] = f.uars.Len()
	n[object.PD] = f.pds.Len()
	n[object.TransportDomain] = f.domains.Len()
	n[object.QCounter] = f.qsets.Len()
	f.countObjects(&n)
	return n
}

// wantedPages is how many pages firmware needs, with one more object of kind extra.
func (f *function) wantedPages(extra object.Kind) int {
	m := f.appetite
	want := 0
	switch {
	case f.isWard():
		// Its pages are asked for when it is enabled, before it has a driver.
		if !f.sw.enabled {
			return 0
		}
		want += m.Boot + m.Init
	case f.phase >= command.Initialised:
		want += m.Boot + m.Init
	case f.phase >= command.Enabled:
		want += m.Boot
	}
	if f.phase >= command.Initialised {
		counts := f.objectCounts()
		if extra != object.None {
			counts[extra]++
		}
		total := 0
		for k, n := range counts {
			total += n * m.bytes(object.Kind(k))
		}
		pages := (total + 1<<memory.PageShift - 1) >> memory.PageShift
		want += max(pages-m.Included, 0)
	}
	return want
}

// bytes is what an object of a kind takes.
func (m *Memory) bytes(k object.Kind) int {
	if n, ok := m.Objects[k.String()]; ok {
		return n
	}
	return objectBytes[k]
}

// missingPages is how many pages must be given before an object of a kind can be created. A hoard does
// not count: objects come first.
func (f *function) missingPages(k object.Kind) int {
	return f.wantedPages(k) - f.memory.Len()
}

// waitForPages puts a command aside until the host has given memory. It fails at once when nobody
// listens to page requests.
func (f *function) waitForPages(i, missing int) command.Result {
	if !f.pageManager().events.Subscribed(prm.EventPageRequest) {
		return fault(prm.StatusNoResources, synNoPageEvents)
	}
	x := &f.executor
	x.arrival++
	x.slots[i].since, x.slots[i].wants = x.arrival, missing
	x.waiting |= 1 << i
	f.askPages(f.ownPages())
	return command.Result{}
}

// pageNeed is how many pages an account lacks: what waiting commands need and what it hoards.
func (f *function) pageNeed(a account) int {
	need := f.basePages(a) + a.hoard - a.books.Len()
	if a.of == nil {
		return need
	}
	commands, x := 0, &a.of.executor
	for i := range slots {
		if x.waiting>>i&1 != 0 {
			commands = max(commands, x.slots[i].wants)
		}
	}
	if commands > 0 {
		commands = max(commands, askStep)
	}
	return max(need, commands)
}

// basePages is what an account needs for objects: functions without a model have none.
func (f *function) basePages(a account) int {
	if a.of == nil {
		return 0
	}
	return a.of.wantedPages(object.None)
}

// askPages asks for what an account lacks, once, and only where somebody waits for it: a command, a hoard,
// or a virtual function's driver that may come.
func (f *function) askPages(a account) {
	waited := a.hoard > 0 || a.of != nil && (a.of.isWard() || a.of.executor.waiting != 0)
	if a.asked > 0 || !waited || !a.manager.events.Subscribed(prm.EventPageRequest) {
		return
	}
	if need := f.pageNeed(a); need > 0 {
		a.asked, a.offered = min(need, maxAsk), false
		f.pageEvent(a, prm.PageRequestEvent{NumPages: memory.Clamp(a.asked)})
	}
}

// sparePages is how many pages an account can give back at the moment.
func (f *function) sparePages(a account) int {
	return a.books.Len() - f.basePages(a) - a.hoard - a.busy
}

// offerPages offers back what no object needs any more, where an EQ listens. What a driver takes of an
// offer may be less; the rest is offered again.
func (f *function) offerPages() {
	m := f.pageManager()
	if m.phase < command.Initialised || !m.events.Subscribed(prm.EventPageRequest) {
		return
	}
	if m != f {
		m.offer(f.ownPages())
		return
	}
	if f.pageState.offering || f.memory.Len() > f.appetite.Boot+f.appetite.Init {
		f.offer(f.ownPages())
	}
	for _, id := range f.pageState.order {
		f.offer(f.pageState.managed[id].account(id, f))
	}
	for _, p := range f.esw().wards() {
		if p.function.memory.Len() > 0 {
			f.offer(p.function.ownPages())
		}
	}
}

func (f *function) offer(a account) {
	if a.asked > 0 || a.offered || a.of != nil && a.of.executor.waiting != 0 {
		return
	}
	spare := f.sparePages(a)
	if spare <= 0 {
		a.offering = a.offering && a.busy > 0
		a.storm.drained(f.card.now)
	}
	if spare <= 0 || !a.offering && spare < offerStep {
		return
	}
	a.offered, a.offering = true, true
	a.storm.count(func(s *PageStorm) { s.Offers++ })
	f.pageEvent(a, prm.PageRequestEvent{NumPages: memory.Clamp(-spare)})
}

// pageEvent raises a page request of an account.
func (f *function) pageEvent(a account, r prm.PageRequestEvent) {
	r.FuncID, r.ECFunction = a.id.ID, a.id.EC
	a.manager.enter()
	a.manager.events.Post(prm.EventPageRequest, 0, func(e []byte) { r.Put(e[0x20:]) })
}

// pagesGiven lets waiting commands go on in the order they came, as far as memory reaches, and asks for
// the rest of a hoard.
func (f *function) pagesGiven() {
	for {
		i := f.firstWaiting()
		if i < 0 {
			break
		}
		f.executor.waiting &^= 1 << i
		f.path.finishCommand(i)
		if f.executor.waiting>>i&1 != 0 {
			return // still not enough: it has asked again
		}
	}
	f.hoarded(f.ownPages())
}

// pagesRefused ends what an account asked for: the host has no memory. Hoards end, commands that wait fail.
func (f *function) pagesRefused(a account) {
	a.asked = 0
	f.cannotHoard(a)
	g := a.of
	if g == nil {
		return
	}
	for i := g.firstWaiting(); i >= 0; i = g.firstWaiting() {
		g.enter()
		op, _ := prm.InputOpcode(g.executor.slots[i].In)
		g.answer(i, op, fault(prm.StatusNoResources, synNoMemory), g.events.Subscribed(prm.EventCommandCompletion))
	}
}

func (f *function) firstWaiting() int {
	first := -1
	for i := range slots {
		if f.executor.waiting>>i&1 != 0 && (first < 0 || f.executor.slots[i].since < f.executor.slots[first].since) {
			first = i
		}
	}
	return first
}
