package device

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"cxkit/prm"
)

// lender is a driver that serves page requests by hand.
type lender struct {
	*dataBench
	lent   map[uint64]bool
	gives  int // pages
	asks   int // events
	offers int
}

func newLender(t *testing.T, config Config) *lender {
	b := newSizedBench(t, config, 16<<20, 4096)
	return &lender{dataBench: dataBenchOn(t, b), lent: make(map[uint64]bool)}
}

// serve answers page requests until there are none.
func (l *lender) serve() {
	l.Helper()
	for range 10_000 {
		e := l.async.next()
		if e == nil {
			return
		}
		l.async.update()
		if e.EventType() != prm.EventPageRequest {
			continue
		}
		var r prm.PageRequestEvent
		r.Get(e.Data()[:])
		switch {
		case r.NumPages > 0:
			l.asks++
			l.gives += int(r.NumPages)
			l.give(int(r.NumPages))
		case r.NumPages < 0:
			l.offers++
			l.take(int(-r.NumPages))
		}
	}
	l.Fatal("firmware asks for ever")
}

// take takes up to n pages back.
func (l *lender) take(n int) int {
	l.Helper()
	n = min(n, 50_000)
	status, syn, out := l.raw(bytesOf(&prm.ManagePagesIn{OpMod: uint16(prm.PagesTake), InputNumEntries: uint32(n)}), 16+8*n)
	if status != prm.StatusOK {
		l.Fatalf("take %d pages: %v: %v", n, status, syn)
	}
	got := int(binary.BigEndian.Uint32(out[8:]))
	for i := range got {
		pa := binary.BigEndian.Uint64(out[16+8*i:])
		if l.lent[pa] {
			l.Fatalf("page %#x comes back twice", pa)
		}
		l.lent[pa] = true
	}
	return got
}

// run runs a command that may wait for pages.
func (l *lender) run(in input, out output) {
	b := bytesOf(in)
	outLen := max(out.Len(), 16)
	l.post(2, b, outLen)
	l.settle()
	for range 3 {
		if !l.owned(2) {
			break
		}
		l.serve()
	}
	if l.owned(2) {
		l.Fatalf("%v does not end", in.Opcode())
	}
	d, answer := l.answer(2, len(b), outLen)
	out.Get(answer)
	if status, syn := out.Result(); d != 0 || status != prm.StatusOK {
		l.Fatalf("%v: %v: %v", in.Opcode(), status, syndrome(syn))
	}
	l.serve()
}

func (l *lender) books() FunctionBooks { return l.card.Books().Functions[0] }

// Firmware asks for the memory of 100,000 flow entries in the middle of the commands that make them, and
// gives it back when they are gone.
func TestFlowEntriesMakeFirmwareAskAndGiveBack(t *testing.T) {
	const entries, size = 100_000, 512
	l := newLender(t, Config{})
	before := l.books()
	table, group := l.newTable(0, 17, 1, prm.MatchParam{Outer: prm.MatchLayer24{DMAC: [6]byte{255, 255, 255, 255, 255, 255}}})
	for i := range uint32(entries) {
		in := prm.SetFlowTableEntryIn{TableID: table, FlowIndex: i, FlowContext: prm.FlowContext{GroupID: group, Action: prm.FlowActionDrop}}
		binary.BigEndian.PutUint32(in.FlowContext.MatchValue.Outer.DMAC[2:], i)
		l.run(&in, &prm.SetFlowTableEntryOut{})
	}
	full := l.books()
	if grown := full.Pages - before.Pages; grown < entries*size/4096-512 || grown > entries*size/4096+offerStep || l.asks < 100 {
		t.Errorf("%d entries of %d bytes took %d pages, asked for %d times", entries, size, grown, l.asks)
	}
	for i := range uint32(entries) {
		l.run(&prm.DeleteFlowTableEntryIn{TableID: table, FlowIndex: i}, &prm.DeleteFlowTableEntryOut{})
	}
	if after := l.books(); after.Pages > before.Pages+offerStep || l.offers < 100 {
		t.Errorf("firmware has %d pages, %d before the entries; offered %d times", after.Pages, before.Pages, l.offers)
	}
}

func TestQueuesMakeFirmwareAskAndGiveBack(t *testing.T) {
	const queues, size = 10_000, 2048
	l := newLender(t, Config{})
	before := l.books()
	var in prm.CreateRQIn
	first := l.newRQ(l.newCQ(4), 4, 256, func(x *prm.CreateRQIn) { in = *x })
	in.Context.WQ.DBRAddr, in.PAS = first.record.Bus, pages(first.ring) // all share one ring
	numbers := []uint32{first.n}
	for len(numbers) < queues {
		var out prm.CreateRQOut
		l.run(&in, &out)
		numbers = append(numbers, out.RQN)
	}
	if grown := l.books().Pages - before.Pages; grown < queues*size/4096-512 || grown > queues*size/4096+offerStep {
		t.Errorf("%d queues of %d bytes took %d pages", queues, size, grown)
	}
	for _, n := range numbers {
		l.run(&prm.DestroyRQIn{RQN: n}, &prm.DestroyRQOut{})
	}
	if after := l.books(); after.Pages > before.Pages+offerStep {
		t.Errorf("firmware has %d pages, %d before the queues", after.Pages, before.Pages)
	}
}

func TestObjectsTakeWhatTheConfigurationSays(t *testing.T) {
	b := newBench(t, Config{Memory: Memory{Included: -1, Objects: map[string]int{"pd": 40_960, "uar": 0}}})
	b.bringUp()
	b.give(100)
	for kind, test := range map[string]struct {
		create func()
		pages  int
	}{
		"uar": {func() { b.allocUAR() }, 0},
		"pd":  {func() { b.must(&prm.AllocPDIn{}, &prm.AllocPDOut{}) }, 10},
	} {
		before := b.card.Books().Functions[0].PagesWanted
		for range 3 {
			test.create()
		}
		if n := b.card.Books().Functions[0].PagesWanted - before; n != 3*test.pages {
			t.Errorf("3 objects of kind %s took %d pages, want %d", kind, n, 3*test.pages)
		}
	}
	for _, bad := range []Memory{
		{Objects: map[string]int{"teapot": 1}}, {Objects: map[string]int{"pd": -1}}, {Objects: map[string]int{"pd": 1 << 30}},
		{TakeLimit: -1},
	} {
		if _, err := New(Config{Memory: bad}); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

func TestStormAsksOffersAndEnds(t *testing.T) {
	l := newLender(t, Config{})
	before := l.books().Pages
	own := PageFunction{}
	if s, err := l.card.Storm(0, own); err != nil || s.Phase != StormNone {
		t.Errorf("before any: %+v, %v", s, err)
	}
	if err := l.card.StormPages(0, own, 120_000); err != nil {
		t.Fatal(err)
	}
	if err := l.card.StormPages(0, own, 1); err == nil {
		t.Error("a second storm began during the first")
	}
	l.settle()
	l.clock.advance(time.Millisecond)
	l.serve()
	s, err := l.card.Storm(0, own)
	if err != nil || s.Phase != StormOver || s.Gives != 8 || s.Offers != 3 || s.Takes != 3 || s.Returned != 120_000 || s.Hoarded != 120_000 || s.Took != time.Millisecond {
		t.Errorf("%+v, %v", s, err)
	}
	if n := l.books().Pages; n != before {
		t.Errorf("firmware has %d pages, %d before", n, before)
	}
	for name, err := range map[string]error{
		"no pages":         l.card.StormPages(0, own, 0),
		"negative":         l.card.StormPages(0, own, -1),
		"more than fit":    l.card.StormPages(0, own, 1<<30),
		"no function":      l.card.StormPages(7, own, 1),
		"not managed":      l.card.StormPages(0, PageFunction{ID: 3}, 1),
		"return of hoards": l.card.ReturnPages(0, own, 1),
		"own reset":        l.card.ResetPages(0, own),
		"manage the own":   l.card.ManagePages(0, own),
		"busy":             l.card.BusyPages(0, own, -1),
	} {
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	l.must(&prm.TeardownHCAIn{}, &prm.TeardownHCAOut{})
	if err := l.card.StormPages(0, own, 1); err == nil {
		t.Error("a storm began without a driver")
	}
}

// A page belongs to one function; one that was reset gets nothing that it has not asked for since.
func TestManagedFunctionsAreCheckedLikeTheOwn(t *testing.T) {
	l := newLender(t, Config{})
	vf := PageFunction{ID: 4}
	if err := l.card.ManagePages(0, vf); err != nil {
		t.Fatal(err)
	}
	give := func(id uint16, pas ...uint64) (prm.Status, syndrome) {
		return l.exec(&prm.ManagePagesIn{OpMod: uint16(prm.PagesGive), FunctionID: id, InputNumEntries: uint32(len(pas)), PAS: pas}, &prm.ManagePagesOut{})
	}
	expect := func(what string, id uint16, status prm.Status, syn syndrome, pas ...uint64) {
		t.Helper()
		if s, y := give(id, pas...); s != status || y != syn {
			t.Errorf("%s: %v: %v, want %v: %v", what, s, y, status, syn)
		}
	}
	const own, page = 1 << 44, 1 << 45
	expect("unknown function", 5, prm.StatusBadParameter, synFunctionID, page)
	expect("not asked for", 4, prm.StatusBadResourceState, synPagesNotAsked, page)
	if err := l.card.HoardPages(0, vf, 3); err != nil {
		t.Fatal(err)
	}
	expect("more than asked for", 4, prm.StatusBadResourceState, synPagesNotAsked, page, page+4096, page+8192, page+12288)
	expect("unaligned", 4, prm.StatusBadParameter, synPageAddress, page+1)
	if err := l.card.HoardPages(0, vf, 3); err != nil { // what was refused is not asked for any more
		t.Fatal(err)
	}
	expect("the function's own page", 4, prm.StatusBadParameter, synPageTwice, own)
	if err := l.card.HoardPages(0, vf, 3); err != nil {
		t.Fatal(err)
	}
	expect("asked for", 4, prm.StatusOK, 0, page, page+4096, page+8192)
	expect("a managed function's page", 0, prm.StatusBadParameter, synPageTwice, page)
	list, err := l.card.PageAddresses(0, vf)
	if err != nil || fmt.Sprint(list) != fmt.Sprint([]uint64{page, page + 4096, page + 8192}) {
		t.Errorf("firmware has %#x, %v", list, err)
	}
	if err := l.card.ResetPages(0, vf); err != nil {
		t.Fatal(err)
	}
	l.settle()
	// The driver has not agreed on release_all_pages: they come back one command at a time.
	var seen []int32
	for e := l.async.next(); e != nil; e = l.async.next() {
		if e.EventType() == prm.EventPageRequest {
			var r prm.PageRequestEvent
			r.Get(e.Data()[:])
			if r.FuncID == 4 {
				seen = append(seen, r.NumPages)
			}
		}
	}
	if n := len(seen); n == 0 || seen[n-1] != -3 {
		t.Errorf("requests of the function: %v, the last one should offer 3 pages", seen)
	}
	expect("after the reset", 4, prm.StatusBadResourceState, synPagesNotAsked, page+1<<20)
}

// Half a gigabyte of mailboxes would be the answer to 32 commands that share one chain.
func TestLongMessagesShareABudget(t *testing.T) {
	var x executor
	if room := x.room(); room < 16+8*8_000_000 {
		t.Errorf("a command may have %d bytes: 8 million pages need more", room)
	}
	for i := range slots {
		x.running |= 1 << i
		x.slots[i].In = make([]byte, 4<<20)
	}
	if room := x.room(); room > 4<<20 {
		t.Errorf("with 128 MiB in use another %d bytes are let in", room)
	}
}
