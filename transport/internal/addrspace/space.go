package addrspace

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"cxkit/pci"
)

var (
	// ErrRange: a range that is empty or wraps.
	ErrRange = errors.New("empty or wrapping range")
	// ErrOverlap: a mapping that overlaps one that exists.
	ErrOverlap = errors.New("overlaps a mapping")
	// ErrCut: an unmap that would cut a mapping in two.
	ErrCut = errors.New("cuts a mapping")
	// ErrFull: more mappings than allowed.
	ErrFull = errors.New("too many mappings")
)

// Messages reaches ranges that have no memory in this process.
type Messages interface {
	// ReadDMA and WriteDMA copy len(p) bytes from or to addr.
	ReadDMA(p []byte, addr uint64) error
	WriteDMA(p []byte, addr uint64) error
}

// Config chooses what a Space can do. The zero value works.
type Config struct {
	// Messages, if any, reaches mappings without Bytes.
	Messages Messages
	// MaxMaps bounds the mappings; 0 is no bound.
	MaxMaps int
	// OnFault, if any, is told that memory of a mapping has vanished. It must not block.
	OnFault func()
}

// Space is a pci.Memory whose mappings come and go. Map, Unmap and UnmapAll may be called from any
// goroutine but never between Enter and Leave.
type Space struct {
	config     Config
	gate       sync.RWMutex // held for reading by cards between Enter and Leave, for writing by removal
	now        atomic.Pointer[table]
	generation atomic.Uint64

	mu sync.Mutex // guards replacement of now
}

var _ interface {
	pci.Memory
	pci.Faulter
} = (*Space)(nil)

// New makes an empty space.
func New(config Config) *Space {
	s := &Space{config: config}
	s.now.Store(&table{})
	return s
}

// Map adds a mapping. On an error, Release is not called. Errors are ErrRange, ErrOverlap and ErrFull.
func (s *Space) Map(m Mapping) error {
	if m.Size == 0 || m.Bus+m.Size-1 < m.Bus {
		return fmt.Errorf("map %#x+%#x: %w", m.Bus, m.Size, ErrRange)
	}
	if m.Bytes != nil && uint64(len(m.Bytes)) != m.Size {
		panic("addrspace: a mapping whose memory has another size")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.now.Load()
	if s.config.MaxMaps > 0 && t.n >= s.config.MaxMaps {
		return fmt.Errorf("map %#x+%#x: %d mappings: %w", m.Bus, m.Size, t.n, ErrFull)
	}
	if t.overlaps(m.Bus, m.end()) {
		return fmt.Errorf("map %#x+%#x: %w", m.Bus, m.Size, ErrOverlap)
	}
	s.now.Store(t.with(&m))
	return nil
}

// Unmap removes every mapping in first..last, once no card is in a step, and returns how many bytes that
// was. A range that cuts a mapping is ErrCut and removes nothing; one that holds none removes nothing
// either and is no error.
func (s *Space) Unmap(first, last uint64) (removed uint64, err error) {
	removed, _, err = s.unmap(first, last, true)
	return removed, err
}

// TryUnmap is Unmap where no card is in a step; else it does nothing and ok is false.
func (s *Space) TryUnmap(first, last uint64) (removed uint64, ok bool, err error) {
	return s.unmap(first, last, false)
}

// UnmapAll removes every mapping, once no card is in a step.
func (s *Space) UnmapAll() { s.unmap(0, ^uint64(0), true) }

func (s *Space) unmap(first, last uint64, wait bool) (removed uint64, ok bool, err error) {
	if last < first {
		return 0, true, fmt.Errorf("unmap %#x..%#x: %w", first, last, ErrRange)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.now.Load()
	var gone []*Mapping
	t.all(first, last, func(m *Mapping) bool {
		if m.Bus < first || m.end() > last {
			err = fmt.Errorf("unmap %#x..%#x: %w %#x+%#x", first, last, ErrCut, m.Bus, m.Size)
			return false
		}
		gone = append(gone, m)
		removed += m.Size // 2^64 at most, which is 0: only if one mapping is everything
		return true
	})
	if err != nil || len(gone) == 0 {
		return 0, true, err
	}
	if !wait {
		if !s.gate.TryLock() {
			return 0, false, nil
		}
	} else {
		s.gate.Lock()
	}
	s.now.Store(t.without(first, last, func(m *Mapping) bool { return m.Bus >= first && m.end() <= last }))
	s.generation.Add(1)
	s.gate.Unlock()
	for _, m := range gone {
		if m.Release != nil {
			m.Release()
		}
	}
	return removed, true, nil
}

// Len is the number of mappings.
func (s *Space) Len() int { return s.now.Load().n }

// Enter begins a step of a card.
func (s *Space) Enter() { s.gate.RLock() }

// Leave ends it.
func (s *Space) Leave() { s.gate.RUnlock() }

// Generation changes whenever a mapping was removed.
func (s *Space) Generation() uint64 { return s.generation.Load() }

// View returns mapped bytes, or nil.
func (s *Space) View(addr uint64, n int, access pci.Access) []byte {
	m := s.now.Load().find(addr)
	if m == nil || m.Access&access != access {
		return nil
	}
	off := addr - m.Bus
	if n < 0 || uint64(n) > m.Size-off || m.Bytes == nil {
		return nil
	}
	return m.Bytes[off : off+uint64(n) : off+uint64(n)]
}

// ReadAt copies from bus addresses, across mappings.
func (s *Space) ReadAt(p []byte, addr uint64) error { return s.transfer(p, addr, pci.Read) }

// WriteAt copies to bus addresses, across mappings.
func (s *Space) WriteAt(p []byte, addr uint64) error { return s.transfer(p, addr, pci.Write) }

func (s *Space) transfer(p []byte, addr uint64, access pci.Access) error {
	fail := func(why string) error {
		return &pci.DMAError{Addr: addr, Len: len(p), Access: access, Why: why}
	}
	if len(p) > 0 && addr+uint64(len(p))-1 < addr {
		return fail("wraps")
	}
	t := s.now.Load()
	for len(p) > 0 {
		m := t.find(addr)
		if m == nil {
			return fail("unmapped")
		}
		if m.Access&access != access {
			return fail(map[pci.Access]string{pci.Read: "write only", pci.Write: "read only"}[access])
		}
		off := addr - m.Bus
		n := int(min(uint64(len(p)), m.Size-off))
		switch {
		case m.Bytes != nil && m.MayFault:
			if !s.copyGuarded(p[:n], m.Bytes[off:], access) {
				return fail("memory vanished")
			}
		case m.Bytes != nil:
			copyTo(p[:n], m.Bytes[off:], access)
		case s.config.Messages != nil:
			if err := s.byMessage(p[:n], addr, access); err != nil {
				return err
			}
		default:
			return fail("no memory")
		}
		p, addr = p[n:], addr+uint64(n)
	}
	return nil
}

func (s *Space) byMessage(p []byte, addr uint64, access pci.Access) error {
	if access == pci.Read {
		return s.config.Messages.ReadDMA(p, addr)
	}
	return s.config.Messages.WriteDMA(p, addr)
}

func copyTo(p, mem []byte, access pci.Access) {
	if access == pci.Read {
		copy(p, mem)
	} else {
		copy(mem, p)
	}
}

// copyGuarded copies memory that can vanish.
func (s *Space) copyGuarded(p, mem []byte, access pci.Access) (ok bool) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if r := recover(); r != nil {
			fault, isFault := r.(interface{ Addr() uintptr })
			if !isFault || !s.Fault(fault.Addr()) {
				panic(r)
			}
			ok = false
		}
	}()
	copyTo(p, mem, access)
	return true
}

// Fault is told that touching host address addr faulted.
func (s *Space) Fault(addr uintptr) bool {
	ours := false
	s.now.Load().all(0, ^uint64(0), func(m *Mapping) bool {
		ours = m.MayFault && inside(m.Bytes, addr)
		return !ours
	})
	if ours && s.config.OnFault != nil {
		s.config.OnFault()
	}
	return ours
}
