package fwpages

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"slices"
	"sync"
	"time"

	"cxkit/dma"
	"cxkit/driver/internal/cmdif"
	"cxkit/prm"
)

const (
	// DefaultReclaimLimit is the most pages taken back with one command: what firmware returns at most,
	// and 782 mailboxes (Linux 501c3005f031).
	DefaultReclaimLimit = 50_000
	// DefaultMaxPages bounds what firmware may hold: 64 GiB. Firmware of real cards has been seen with
	// 8 million pages.
	DefaultMaxPages = 16 << 20
)

// Config is what a manager works with.
type Config struct {
	Exec     cmdif.Executor
	NewArena func(size int, kind dma.Kind) (*dma.Arena, error)
	// ReclaimLimit is the most pages taken back with one command, 0 for no limit; nil: DefaultReclaimLimit.
	ReclaimLimit *int
	// MaxPages is the most pages firmware may hold in all; 0: DefaultMaxPages.
	MaxPages int
	// HostPage is the size of the host's pages in bytes, 4096 or 65,536; 0: 4096.
	HostPage int
	// MaxVFs is the number of the last function that is a VF; functions above are subfunctions.
	MaxVFs int
	// Stall is how long teardown waits for firmware to return another page, 5 s if 0; VFStall how long
	// Disable does, 120 s if 0 (Linux lib/tout.c).
	Stall, VFStall time.Duration
	// CPU is held while pages are given and taken, and given back while firmware has the command (the
	// command interface has the same). Experiments share a processor that is not preempted by it; nil: none.
	CPU sync.Locker
	// Down says why the device can't be used any more; nil, or returning nil: it can.
	Down func() error
	// Embedded: the function is one of the card's own processor.
	Embedded bool
	Log      *slog.Logger
}

// Manager owns the pages of a function, and of the functions it manages. All methods may be called from
// any goroutine.
type Manager struct {
	config Config

	command sync.Mutex // one MANAGE_PAGES at a time; held around the two below
	pas     []uint64   // addresses to give
	answer  prm.ManagePagesOut

	mu        sync.Mutex // guards the six below; held while memory is made
	functions map[Function]*ledger
	own       Function
	owned     bool   // own is known
	gone      Counts // of functions that are not managed any more, or never were
	total     int
	poll      func() int // takes page events that have come; nil before there are any

	requests requests
	wake     chan struct{}
	worker   sync.WaitGroup
	ctx      context.Context
	cancel   context.CancelFunc
}

// New makes a manager without pages. Start starts its worker.
func New(config Config) *Manager {
	if config.ReclaimLimit == nil {
		config.ReclaimLimit = new(DefaultReclaimLimit)
	}
	config.MaxPages = cmp.Or(config.MaxPages, DefaultMaxPages)
	config.HostPage = cmp.Or(config.HostPage, dma.PageSize)
	config.Stall = cmp.Or(config.Stall, 5*time.Second)
	config.VFStall = cmp.Or(config.VFStall, 120*time.Second)
	m := &Manager{config: config, functions: make(map[Function]*ledger), wake: make(chan struct{}, 1)}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m
}

// newLedger makes the ledger of a function.
func (m *Manager) newLedger(t Type) *ledger {
	return &ledger{shift: uint(bits.Len(uint(m.config.HostPage/dma.PageSize)) - 1), typ: t}
}

// Boot asks firmware how many pages it wants at this stage of bring-up and gives them.
func (m *Manager) Boot(ctx context.Context, stage prm.QueryPagesOpMod) error {
	var out prm.QueryPagesOut
	if err := m.config.Exec.Exec(ctx, &prm.QueryPagesIn{OpMod: uint16(stage), EmbeddedCPUFunction: m.config.Embedded}, &out); err != nil {
		return err
	}
	f := Function{ID: out.FunctionID, EC: out.EmbeddedCPUFunction}
	if err := m.ownIs(f); err != nil {
		return fmt.Errorf("%v pages: %w", stage, err)
	}
	n := int32(out.NumPages)
	switch {
	case n < 0:
		_, err := m.take(ctx, f, -int64(n))
		return err
	case n > 0:
		return m.give(ctx, f, int(n), false)
	}
	return nil
}

// ownIs notes how firmware names the driver's own function.
func (m *Manager) ownIs(f Function) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.owned && f != m.own:
		return fmt.Errorf("firmware asks for %v, earlier for %v", f, m.own)
	case m.owned:
		return nil
	case m.functions[f] != nil:
		return fmt.Errorf("firmware asks for %v, which is another", f)
	}
	m.functions[f] = m.newLedger(Self)
	m.own, m.owned = f, true
	m.requests.add(f)
	m.requests.mu.Lock()
	m.requests.own = f
	m.requests.mu.Unlock()
	return nil
}

// AllowReleaseAll says that SET_HCA_CAP agreed on release_all_pages.
func (m *Manager) AllowReleaseAll() {
	m.requests.mu.Lock()
	m.requests.resets = true
	m.requests.mu.Unlock()
}

// UseVHCAIDs says that SET_HCA_CAP agreed on icm_mng_function_id_mode: from now on functions are named by
// vhca_id, and the driver's own one has the number given. Pages given before keep their place in the
// books. It can't fail half way: firmware has changed already (reports R06).
func (m *Manager) UseVHCAIDs(own uint16) {
	to := Function{ID: own}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests.mu.Lock()
	m.requests.byVHCA = true
	m.requests.mu.Unlock()
	if !m.owned || m.own == to {
		return
	}
	m.functions[to] = m.functions[m.own]
	delete(m.functions, m.own)
	m.requests.rename(m.own, to)
	m.own = to
}

// SetStall changes Config.Stall: the card may say how long to wait.
func (m *Manager) SetStall(d time.Duration) {
	m.mu.Lock()
	m.config.Stall = d
	m.mu.Unlock()
}

// UseEvents tells how to take the page events that have come, without waiting for an interrupt.
func (m *Manager) UseEvents(poll func() int) {
	m.mu.Lock()
	m.poll = poll
	m.mu.Unlock()
}

// Enable makes the manager serve requests for another function, as a VF.
func (m *Manager) Enable(f Function) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.functions[f] == nil {
		m.functions[f] = m.newLedger(m.config.typeOf(f))
		m.requests.add(f)
	}
}

// hold makes the caller the one whose page command runs, and takes the processor. The function that it
// returns ends both.
func (m *Manager) hold() (release func()) {
	m.command.Lock()
	if m.config.CPU == nil {
		return m.command.Unlock
	}
	m.config.CPU.Lock()
	return func() {
		m.config.CPU.Unlock()
		m.command.Unlock()
	}
}

// give lends n pages. tell says that firmware waits and is to be told when there are none.
func (m *Manager) give(ctx context.Context, f Function, n int, tell bool) error {
	defer m.hold()()
	resets := m.requests.resetsOf(f)
	l, err := m.reserve(f, n)
	if err != nil {
		err = fmt.Errorf("give %d pages to %v: %w", n, f, err)
		if tell {
			return errors.Join(err, m.cannotGive(ctx, f))
		}
		return err
	}
	in := prm.ManagePagesIn{
		OpMod: uint16(prm.PagesGive), EmbeddedCPUFunction: f.EC, FunctionID: f.ID,
		InputNumEntries: uint32(n), PAS: m.pas,
	}
	var out prm.ManagePagesOut
	err = m.config.Exec.Exec(ctx, &in, &out)
	if err == nil && f != m.ownFunction() {
		// A reset that firmware announced before it executed the command is in the queue by now.
		m.pollEvents()
	}
	reset := m.requests.resetsOf(f) != resets

	m.mu.Lock()
	var refused *prm.CommandError
	switch {
	case err == nil && reset:
		// Executed before the reset, and forgotten, or after, and in use: nobody can tell.
		l.counts.Given += uint64(n)
		l.counts.Doubtful += uint64(n)
		l.doubt(m.pas)
	case err == nil:
		l.counts.Given += uint64(n)
	case errors.As(err, &refused), !cmdif.Issued(err):
		l.counts.GiveFails++
		m.undo(l, m.pas)
	default:
		l.counts.GiveFails++
		l.counts.Doubtful += uint64(n)
		l.doubt(m.pas)
	}
	m.keepSmall()
	m.mu.Unlock()
	if err == nil {
		return nil
	}
	err = fmt.Errorf("give %d pages to %v: %w", n, f, err)
	if tell && refused == nil && !cmdif.Issued(err) {
		return errors.Join(err, m.cannotGive(ctx, f)) // firmware never saw the command and still waits
	}
	return err
}

// reserve marks n pages as given and lists them in m.pas. Runs with command held.
func (m *Manager) reserve(f Function, n int) (*ledger, error) {
	m.mu.Lock()
	l := m.functions[f]
	var err error
	switch {
	case l == nil:
		err = fmt.Errorf("%v is not managed here", f)
	case n > m.config.MaxPages-m.total:
		err = fmt.Errorf("%d more pages would exceed the limit of %d", n, m.config.MaxPages)
	default:
		m.pas, err = l.take(m.pas[:0], n, m.grow)
	}
	if err == nil {
		m.total += n
		m.mu.Unlock()
		return l, nil
	}
	var freed []*dma.Arena
	if l != nil {
		l.counts.AllocFails++
		freed = l.trim()
	}
	m.mu.Unlock()
	return l, errors.Join(err, closeAll(freed))
}

// undo takes pages back that firmware did not get. Runs with mu held.
func (m *Manager) undo(l *ledger, pas []uint64) {
	for _, pa := range pas {
		if err := l.put(pa); err == nil { // they were marked given just before
			m.total--
		}
	}
}

// keepList is the longest address list that is kept for the next command.
const keepList = 2 * DefaultReclaimLimit

// keepSmall drops lists that a large request has made. Runs with command held.
func (m *Manager) keepSmall() {
	if cap(m.pas) > keepList {
		m.pas = nil
	}
	if cap(m.answer.PAS) > keepList {
		m.answer.PAS = nil
	}
}

// grow makes address space for pages. Runs with mu held.
func (m *Manager) grow(pages int) (*dma.Arena, error) {
	return m.config.NewArena(pages*dma.PageSize, dma.Reserved)
}

func (m *Manager) ownFunction() Function {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.own
}

func (m *Manager) pollEvents() {
	m.mu.Lock()
	poll := m.poll
	m.mu.Unlock()
	if poll != nil {
		poll()
	}
}

// count changes the counts of a function, of all others if it is not managed here.
func (m *Manager) count(f Function, change func(*Counts)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.functions[f]; l != nil {
		change(&l.counts)
		return
	}
	change(&m.gone)
}

// cannotGive tells firmware that its request failed. Runs with command held.
func (m *Manager) cannotGive(ctx context.Context, f Function) error {
	m.count(f, func(c *Counts) { c.Refused++ })
	in := prm.ManagePagesIn{OpMod: uint16(prm.PagesCantGive), EmbeddedCPUFunction: f.EC, FunctionID: f.ID}
	var out prm.ManagePagesOut
	if err := m.config.Exec.Exec(ctx, &in, &out); err != nil {
		return fmt.Errorf("tell firmware that there are no pages for %v: %w", f, err)
	}
	return nil
}

// take asks firmware for up to n pages back, but for no more than it has, and returns how many came.
func (m *Manager) take(ctx context.Context, f Function, offered int64) (int, error) {
	defer m.hold()()
	m.mu.Lock()
	l := m.functions[f]
	if l == nil || l.given == 0 {
		m.mu.Unlock()
		m.count(f, func(c *Counts) { c.Nonsense++ })
		return 0, fmt.Errorf("%v offers %d pages back and has none", f, offered)
	}
	n := int(min(offered, int64(l.given)))
	m.mu.Unlock()

	in := prm.ManagePagesIn{
		OpMod: uint16(prm.PagesTake), EmbeddedCPUFunction: f.EC, FunctionID: f.ID, InputNumEntries: uint32(n),
	}
	out := &m.answer
	if cap(out.PAS) < n {
		out.PAS = make([]uint64, n)
	}
	out.PAS = out.PAS[:n]
	err := m.config.Exec.Exec(ctx, &in, out)
	if err == nil && out.OutputNumEntries > uint32(n) {
		err = fmt.Errorf("fw returned %d, driver asked %d => corruption", out.OutputNumEntries, n)
	}
	m.mu.Lock()
	if err != nil {
		// Which pages firmware took out of its books is not known: all stay out.
		l.counts.TakeFails++
		m.keepSmall()
		m.mu.Unlock()
		return 0, fmt.Errorf("take %d pages from %v: %w", n, f, err)
	}
	got := 0
	var bad error
	for _, pa := range out.PAS {
		if err := l.put(pa); err != nil {
			if l.counts.BadReturn++; l.counts.BadReturn == 1 {
				bad = err
			}
			continue
		}
		got++
	}
	m.total -= got
	l.counts.Returned += uint64(got)
	freed := l.trim()
	m.keepSmall()
	m.mu.Unlock()
	if bad != nil {
		m.config.Log.Warn("firmware returned a page that it does not have; counting further ones", "function", f.String(), "err", bad)
	}
	return got, closeAll(freed)
}

func closeAll(arenas []*dma.Arena) error {
	var errs []error
	for _, a := range arenas {
		errs = append(errs, a.Close())
	}
	return errors.Join(errs...)
}

// Books returns the pages of all functions.
func (m *Manager) Books() Books {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b Books
	b.Counts = m.gone
	for f, l := range m.functions {
		x := FunctionBooks{Function: f, Type: l.typ, Counts: l.counts, Out: l.given, Free: l.free, Hosts: l.hosts}
		m.requests.mu.Lock()
		if w := m.requests.functions[f]; w != nil {
			x.Stale = w.stale
		}
		m.requests.mu.Unlock()
		b.Functions = append(b.Functions, x)
		b.Counts.add(&x.Counts)
		b.Free += x.Free
		b.Hosts += x.Hosts
		b.Types[x.Type] += x.Out
	}
	slices.SortFunc(b.Functions, func(x, y FunctionBooks) int {
		return cmp.Or(cmp.Compare(x.ID, y.ID), compareBool(x.EC, y.EC))
	})
	m.requests.mu.Lock()
	b.Nonsense += m.requests.nonsense
	b.Dropped = m.requests.dropped
	m.requests.mu.Unlock()
	b.Out = m.total
	return b
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// Addresses lists pages that firmware has of a function, or may have, at most n, by address.
func (m *Manager) Addresses(f Function, n int) []uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.functions[f]; l != nil {
		return l.out(nil, n)
	}
	return nil
}

// Release frees all memory, pages that firmware never returned included. The caller has made sure that
// the device does no more DMA: firmware returned everything, or the function was reset.
func (m *Manager) Release() error {
	m.mu.Lock()
	var freed []*dma.Arena
	for _, l := range m.functions {
		freed = append(freed, l.close()...)
	}
	m.total = 0
	m.mu.Unlock()
	return closeAll(freed)
}
