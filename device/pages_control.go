package device

import (
	"fmt"
	"slices"
	"time"

	"cxkit/device/internal/command"
	"cxkit/device/internal/memory"
	"cxkit/prm"
)

// StormPhase is how far a storm of pages has come.
type StormPhase string

const (
	StormNone     StormPhase = "none"     // there was none
	StormFilling  StormPhase = "filling"  // firmware asks for pages
	StormDraining StormPhase = "draining" // firmware gives them back
	StormOver     StormPhase = "over"     // all are back
)

// PageStorm is what a storm of pages has done.
type PageStorm struct {
	Phase   StormPhase
	Pages   int // that firmware was told to ask for
	Hoarded int // that it got
	// Refused: the host had no more before it had all.
	Refused bool
	// Gives and Takes are commands, Offers events that offer pages back, Returned pages that were taken.
	Gives, Offers, Takes, Returned int
	// Filled is how long it took until all pages had come, Took until all were back, of the card's time.
	Filled, Took time.Duration
}

// pageControl calls do with an account while the engine stands still. The function has been initialised
// and listens to page requests.
func (c *Card) pageControl(index int, id PageFunction, do func(f *function, a account) error) error {
	if index < 0 || index >= len(c.functions) {
		return fmt.Errorf("function %d: the card has %d", index, len(c.functions))
	}
	f := c.functions[index]
	var err error
	c.do(func() {
		if f.phase != command.Initialised || !f.events.Subscribed(prm.EventPageRequest) {
			err = fmt.Errorf("function %d: no driver that serves page requests has brought it up", index)
			return
		}
		if id == (PageFunction{}) {
			id = f.ownPages().id
		}
		a, ok := f.pagesOf(id)
		if !ok {
			err = fmt.Errorf("function %d manages no pages of %+v", index, id)
			return
		}
		f.enter()
		err = do(f, a)
	})
	return err
}

// pageLimit refuses counts that firmware can't keep.
func pageLimit(a account, n int) error {
	if n < 0 || n > memory.MaxPages-a.books.Len()-a.hoard {
		return fmt.Errorf("%d pages: firmware keeps at most %d", n, memory.MaxPages)
	}
	return nil
}

// ManagePages makes function index, from 0, the manager of the pages of another function, until it is
// reset: of one without a model, that has nothing but pages.
func (c *Card) ManagePages(index int, id PageFunction) error {
	if index < 0 || index >= len(c.functions) {
		return fmt.Errorf("function %d: the card has %d", index, len(c.functions))
	}
	f := c.functions[index]
	var err error
	c.do(func() {
		if _, ok := f.pagesOf(id); ok {
			err = fmt.Errorf("function %d manages the pages of %+v already", index, id)
			return
		}
		if f.pageState.managed == nil {
			f.pageState.managed = make(map[PageFunction]*managedPages)
		}
		f.pageState.managed[id] = &managedPages{books: memory.New(c.rand.Uint64())}
		f.pageState.order = append(f.pageState.order, id)
	})
	return err
}

// HoardPages makes firmware ask for n pages that no object needs, for the function itself (a zero id) or
// one that it manages, and keep them. A driver that has no more ends the hoard.
func (c *Card) HoardPages(index int, id PageFunction, n int) error {
	return c.pageControl(index, id, func(f *function, a account) error {
		if err := pageLimit(a, n); err != nil {
			return err
		}
		a.hoard += n
		f.askPages(a)
		return nil
	})
}

// ReturnPages makes firmware give n hoarded pages back.
func (c *Card) ReturnPages(index int, id PageFunction, n int) error {
	return c.pageControl(index, id, func(f *function, a account) error {
		if n < 0 || n > a.hoard {
			return fmt.Errorf("return %d pages: firmware hoards %d", n, a.hoard)
		}
		a.hoard -= n
		a.offering = true
		f.offerPages()
		return nil
	})
}

// KeepPages makes firmware keep what it has not given back yet, as part of the hoard: the end of
// ReturnPages before its time. A command that takes pages meanwhile gets those that are its already.
func (c *Card) KeepPages(index int, id PageFunction) error {
	return c.pageControl(index, id, func(f *function, a account) error {
		a.hoard = max(a.books.Len()-f.basePages(a), a.hoard)
		a.offering = false
		return nil
	})
}

// StormPages makes firmware ask for n pages and, when it has them, offer all of them back, at most as
// many a command as a driver takes, until none is left. Storm says how far it is.
func (c *Card) StormPages(index int, id PageFunction, n int) error {
	return c.pageControl(index, id, func(f *function, a account) error { return f.storm(a, n) })
}

// storm begins a storm. The function's driver listens to page requests.
func (f *function) storm(a account, n int) error {
	if err := pageLimit(a, n); err != nil {
		return err
	}
	if a.storm != nil && a.storm.Phase != StormOver {
		return fmt.Errorf("a storm of %d pages is %s", a.storm.Pages, a.storm.Phase)
	}
	if n == 0 {
		return fmt.Errorf("a storm of no pages")
	}
	a.storm = &stormState{PageStorm: PageStorm{Phase: StormFilling, Pages: n}, start: f.card.now}
	a.hoard += n
	f.hoarded(a)
	return nil
}

// Storm returns what the latest storm of a function has done.
func (c *Card) Storm(index int, id PageFunction) (PageStorm, error) {
	s := PageStorm{Phase: StormNone}
	err := c.pageControl(index, id, func(_ *function, a account) error {
		if a.storm != nil {
			s = a.storm.PageStorm
		}
		return nil
	})
	return s, err
}

// BusyPages says how many pages firmware can't give back for now: a command that takes pages returns
// fewer, or none. Teardown does not change it.
func (c *Card) BusyPages(index int, id PageFunction, n int) error {
	return c.pageControl(index, id, func(f *function, a account) error {
		if n < 0 {
			return fmt.Errorf("%d busy pages", n)
		}
		a.busy = n
		f.offerPages()
		return nil
	})
}

// ResetPages resets a managed function, as its own driver, or a function level reset, does. Where the
// manager agreed on release_all_pages, firmware forgets the pages and says so in one event; else it gives
// them back page by page.
func (c *Card) ResetPages(index int, id PageFunction) error {
	return c.pageControl(index, id, func(f *function, a account) error {
		if a.of != nil {
			return fmt.Errorf("function %d is reset by its own driver", index)
		}
		*a.pageWants = pageWants{}
		if f.caps.General.ReleaseAllPages {
			a.books.Clear()
			f.pageEvent(a, prm.PageRequestEvent{ReleaseAllPages: true})
			return nil
		}
		a.offering = true
		f.offerPages()
		return nil
	})
}

// PageAddresses lists the pages that firmware holds of a function, sorted.
func (c *Card) PageAddresses(index int, id PageFunction) ([]uint64, error) {
	if index < 0 || index >= len(c.functions) {
		return nil, fmt.Errorf("function %d: the card has %d", index, len(c.functions))
	}
	var list []uint64
	c.do(func() {
		f := c.functions[index]
		if id == (PageFunction{}) {
			id = f.ownPages().id
		}
		if a, ok := f.pagesOf(id); ok {
			list = a.books.Addresses()
		}
	})
	slices.Sort(list)
	return list, nil
}
