package device

import (
	"time"

	"cxkit/device/internal/memory"
)

// PageFunction names a function whose pages a driver manages, as page requests do: 0 is the driver's
// own, or its vhca_id where Config.Memory.VHCAIDs is agreed on.
type PageFunction struct {
	ID uint16
	EC bool // a function of the card's own processor
}

// pageState is what firmware wants of the host for a function (the books themselves are in
// function.memory).
type pageState struct {
	pageWants

	managed map[PageFunction]*managedPages
	order   []PageFunction // of managed: events come in the same order in every run
}

// pageWants is the part of it that each function has.
type pageWants struct {
	asked    int  // pages requested by event and not yet given or refused
	offered  bool // an offer is under way
	offering bool // there was an offer, and not everything has been taken
	hoard    int  // pages that firmware keeps, or wants to, though no object needs them
	busy     int  // pages that it can't give back at the moment
	storm    *stormState
}

// managedPages are those of a function that has no model here, only pages.
type managedPages struct {
	books memory.Books
	wants pageWants
}

func (m *managedPages) account(id PageFunction, manager *function) account {
	return account{id, manager, nil, &m.books, &m.wants}
}

// account is the pages of one function.
type account struct {
	id PageFunction
	// manager is the function whose driver gives and takes the pages; of is the one that needs them, nil for
	// one that has no model here.
	manager, of *function
	books       *memory.Books
	*pageWants
}

// own tells that the pages are those of the manager itself.
func (a account) own() bool { return a.of == a.manager }

// pageManager is the function whose driver gives pages to f's firmware.
func (f *function) pageManager() *function {
	if f.isWard() {
		return f.sw.esw.manager
	}
	return f
}

// ownPages is the function's own account.
func (f *function) ownPages() account {
	m := f.pageManager()
	id := PageFunction{EC: f.embedded()}
	if f.isWard() {
		id.ID = f.sw.Number
	}
	if m.caps.General.ICMMngFunctionIDMode {
		id.ID = f.caps.General.VHCAID
	}
	return account{id, m, f, &f.memory, &f.pageState.pageWants}
}

// pagesOf is the account of a function that f manages.
func (f *function) pagesOf(id PageFunction) (account, bool) {
	if f.isWard() {
		return account{}, false
	}
	own := f.ownPages()
	if id == own.id {
		return own, true
	}
	byVHCA := f.caps.General.ICMMngFunctionIDMode
	if byVHCA {
		id.EC = false
	}
	if m := f.pageState.managed[id]; m != nil {
		return m.account(id, f), true
	}
	if id.EC {
		return account{}, false
	}
	for _, p := range f.esw().wards() {
		if a := p.function.ownPages(); a.id == id {
			return a, true
		}
	}
	return account{}, false
}

// teardown ends what firmware wants: the function has been torn down. Pages that are busy stay so.
func (s *pageState) teardown() {
	end := func(w *pageWants) {
		w.storm.count(func(s *PageStorm) { s.Phase = StormOver })
		*w = pageWants{busy: w.busy, storm: w.storm}
	}
	end(&s.pageWants)
	for _, m := range s.managed {
		end(&m.wants)
	}
}

// pagesOut tells whether pages of the function, or of one it manages, are with firmware.
func (f *function) pagesOut() bool {
	if f.memory.Len() != 0 {
		return true
	}
	for _, m := range f.pageState.managed {
		if m.books.Len() != 0 {
			return true
		}
	}
	for _, p := range f.esw().wards() {
		if p.function.memory.Len() != 0 {
			return true
		}
	}
	return false
}

// hoarded goes on after pages were given: with more of a hoard, or with giving back what a storm has
// gathered.
func (f *function) hoarded(a account) {
	f.askPages(a)
	if a.asked == 0 {
		f.stormFull(a)
	}
}

// cannotHoard ends a hoard where the host has no more.
func (f *function) cannotHoard(a account) {
	if a.hoard == 0 {
		return
	}
	a.hoard = max(min(a.hoard, a.books.Len()-f.basePages(a)), 0)
	a.storm.count(func(s *PageStorm) { s.Refused = true })
	f.stormFull(a)
}

// stormFull lets a storm whose pages have come give them back.
func (f *function) stormFull(a account) {
	if a.storm == nil || a.storm.Phase != StormFilling {
		return
	}
	a.storm.Filled = f.card.now - a.storm.start
	a.storm.Phase = StormDraining
	a.storm.Hoarded = a.hoard
	a.hoard = max(a.hoard-a.storm.Pages, 0)
	a.offering = true
	a.manager.offerPages()
}

// stormState is a storm of pages.
type stormState struct {
	PageStorm
	start time.Duration // of the card's time
}

// count changes what is counted of a storm, if there is one that has not ended.
func (s *stormState) count(change func(*PageStorm)) {
	if s != nil && s.Phase != StormOver {
		change(&s.PageStorm)
	}
}

// drained ends a storm that has given everything back.
func (s *stormState) drained(now time.Duration) {
	if s != nil && s.Phase == StormDraining {
		s.Phase = StormOver
		s.Took = now - s.start
	}
}
