package mkey

import (
	"cxkit/pci"
	"cxkit/prm"
)

// User is the queue that a work request belongs to.
type User struct {
	PD  uint32
	QPN uint32
	// Reserved: the queue may use the reserved key (rlky).
	Reserved bool
}

// Resolve returns the n bytes at addr of a key as they lie in the host's memory. view is nil without an
// error when they are not one piece of mapped memory, or n is 0: then Each, Read or Write reach them.
// access is what the card does: Read to gather, Write to scatter.
func (t *Table) Resolve(mem pci.Memory, key uint32, addr uint64, n int, u User, access pci.Access) (view []byte, err error) {
	if t.hot.key == key && t.hot.user == u && t.hot.access&access == access && access != 0 {
		return mem.View(addr, n, access), nil
	}
	k, err := t.find(key, addr, n, u, access)
	if err != nil {
		return nil, err
	}
	if k == nil || k.mode == prm.MKeyAccessPA {
		if k == nil || k.Context.Length64 {
			g := grant{key: key, user: u, access: access}
			if t.hot.key == key && t.hot.user == u {
				g.access |= t.hot.access // forwarding reads and writes by turns
			}
			t.hot = g
		}
		return mem.View(addr, n, access), nil
	}
	if k.mode == prm.MKeyAccessMTT && n > 0 { // no bytes at the end of the range have no entry
		bus, run, err := k.mtt(addr, access)
		if err != nil || run < uint64(n) {
			return nil, err
		}
		return mem.View(bus, n, access), nil
	}
	return nil, nil
}

// find checks a request against its key; nil for the reserved key.
func (t *Table) find(key uint32, addr uint64, n int, u User, access pci.Access) (*Key, error) {
	if key == Reserved {
		if !u.Reserved {
			return nil, ErrReserved
		}
		return nil, nil
	}
	k, ok := t.keys.Get(key >> 8)
	if !ok || k.Context.MKey7_0 != uint8(key) {
		return nil, ErrKey
	}
	c := &k.Context
	if c.Free {
		return nil, ErrFree
	}
	if c.PD != u.PD {
		return nil, ErrPD
	}
	if c.QPN != prm.MKeyAnyQPN && c.QPN != u.QPN {
		return nil, ErrQueue
	}
	if access&pci.Read != 0 && !c.LR || access&pci.Write != 0 && !c.LW {
		return nil, ErrRights
	}
	if !c.Length64 {
		off := addr - c.StartAddr
		if addr < c.StartAddr || off > c.Length || uint64(n) > c.Length-off {
			return nil, ErrBounds
		}
	}
	return k, nil
}

// mtt translates an address that is inside the key: its bus address, and how many bytes follow in the
// same page.
func (k *Key) mtt(addr uint64, access pci.Access) (bus, run uint64, err error) {
	shift := k.Context.LogPageSize
	// Pages count from the one that holds the start address.
	start := k.Context.StartAddr
	off := addr - start + start&(1<<shift-1)
	i := off >> shift
	if i >= uint64(len(k.Entries)) {
		return 0, 0, ErrBounds
	}
	e := k.Entries[i]
	if access&pci.Read != 0 && e&prm.MTTRead == 0 || access&pci.Write != 0 && e&prm.MTTWrite == 0 {
		return 0, 0, ErrRights
	}
	in := off & (1<<shift - 1)
	return e&^(1<<shift-1|7) + in, 1<<shift - in, nil
}

// Each calls f with the bus addresses that the n bytes at addr of a key have, in order. The number of
// calls is bounded by the pages and entries that n bytes reach.
func (t *Table) Each(key uint32, addr uint64, n int, u User, access pci.Access, f func(bus uint64, n int) error) error {
	return t.each(key, addr, n, u, access, 0, f)
}

// maxPieces bounds the pieces of one request: a KLM entry may be a single byte, or none.
const maxPieces = 1 << 16

func (t *Table) each(key uint32, addr uint64, n int, u User, access pci.Access, depth int, f func(bus uint64, n int) error) error {
	k, err := t.find(key, addr, n, u, access)
	if err != nil {
		return err
	}
	if k == nil || k.mode == prm.MKeyAccessPA {
		return f(addr, n)
	}
	if k.mode != prm.MKeyAccessMTT && depth > 0 {
		return ErrDepth
	}
	for pieces := 0; n > 0; pieces++ {
		if pieces == maxPieces {
			return ErrBounds
		}
		var piece int
		switch k.mode {
		case prm.MKeyAccessMTT:
			bus, run, err := k.mtt(addr, access)
			if err != nil {
				return err
			}
			piece = int(min(run, uint64(n)))
			if err := f(bus, piece); err != nil {
				return err
			}
		default:
			sub, va, run, err := k.indirect(addr)
			if err != nil {
				return err
			}
			piece = int(min(run, uint64(n)))
			if err := t.each(sub, va, piece, u, access, depth+1, f); err != nil {
				return err
			}
		}
		addr += uint64(piece)
		n -= piece
	}
	return nil
}

// indirect finds the key and address that an address of a KLM or KSM key stands for, and how many bytes
// follow in the same entry: at least one.
func (k *Key) indirect(addr uint64) (key uint32, va, run uint64, err error) {
	off := addr - k.Context.StartAddr
	if k.mode == prm.MKeyAccessKSM {
		shift := k.Context.LogPageSize
		i := off >> shift
		if i >= uint64(len(k.Entries)/2) {
			return 0, 0, 0, ErrBounds
		}
		in := off & (1<<shift - 1)
		return uint32(k.Entries[2*i]), k.Entries[2*i+1] + in, 1<<shift - in, nil
	}
	i, in := k.at(off)
	if i >= len(k.Entries)/2 {
		return 0, 0, 0, ErrBounds
	}
	size := k.Entries[2*i] >> 32
	return uint32(k.Entries[2*i]), k.Entries[2*i+1] + in, size - in, nil
}

// Read gathers len(p) bytes at addr of a key.
func (t *Table) Read(mem pci.Memory, p []byte, key uint32, addr uint64, u User) error {
	return t.Each(key, addr, len(p), u, pci.Read, func(bus uint64, n int) error {
		if mem.ReadAt(p[:n], bus) != nil {
			return ErrMemory
		}
		p = p[n:]
		return nil
	})
}

// Write scatters p to addr of a key.
func (t *Table) Write(mem pci.Memory, p []byte, key uint32, addr uint64, u User) error {
	return t.Each(key, addr, len(p), u, pci.Write, func(bus uint64, n int) error {
		if mem.WriteAt(p[:n], bus) != nil {
			return ErrMemory
		}
		p = p[n:]
		return nil
	})
}
