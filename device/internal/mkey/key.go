package mkey

import (
	"errors"
	"math/bits"

	"cxkit/device/internal/object"
	"cxkit/pci"
	"cxkit/prm"
)

// Numbers of keys that exist without being created. Index 1 is taken by the scatter list terminator.
const (
	// Reserved grants local access to the whole address space to queues that may use it (rlky).
	Reserved = 0x00000700
	// DumpFill and Null are only named.
	DumpFill = 0x00000600
	Null     = 0x00000500
	// firstIndex is the first index handed out.
	firstIndex = 0x20
)

// Errors of resolution; each makes a local protection error of a work request.
var (
	ErrKey      = errors.New("no such memory key")
	ErrReserved = errors.New("the queue may not use the reserved key")
	ErrPD       = errors.New("memory key of another protection domain")
	ErrQueue    = errors.New("memory key bound to another queue")
	ErrRights   = errors.New("memory key does not grant the access")
	ErrBounds   = errors.New("outside the memory key's range")
	ErrFree     = errors.New("memory key is in the free state")
	ErrMemory   = errors.New("memory key leads to memory that is not mapped")
	ErrMode     = errors.New("access mode is not supported")
	ErrDepth    = errors.New("memory key of memory keys refers to another such")
	ErrSize     = errors.New("translation table does not fit the key")
)

// Key is one memory key.
type Key struct {
	// Context is the key's context as created or changed.
	Context prm.MKeyContext
	// Entries are the translations: MTTs, or pairs of words for KLM and KSM.
	Entries []uint64

	mode prm.MKeyAccessMode
	tree []uint64 // KLM: sums of the lengths of entries, from 1 (a Fenwick tree)
}

// maxWords bounds the translations of all keys of a function, and with them the model's memory: 16 Mi
// words of 8 bytes, enough for 64 GiB in 4 KiB pages.
const maxWords = 16 << 20

// Table holds the keys of a function. The engine owns it.
type Table struct {
	keys  object.Table[*Key]
	words int // translations of all keys
	// hot is what the latest request was granted, where bus addresses equal the key's addresses and all
	// of them belong to it: most requests are like the one before.
	hot grant
}

// grant is a request that needs no more checks; the zero value grants nothing.
type grant struct {
	key    uint32
	user   User
	access pci.Access
}

// NewTable makes a table of at most count keys.
func NewTable(count int) *Table {
	return &Table{keys: object.New[*Key](firstIndex, count)}
}

// Create adds a key; entries is kept, and its length does not change as long as the key lives. ok is
// false when there are too many keys or translations. The error says what is wrong with the context.
func (t *Table) Create(c prm.MKeyContext, entries []uint64) (index uint32, ok bool, err error) {
	k := &Key{Context: c, mode: c.AccessMode(), Entries: entries}
	if err := k.check(); err != nil {
		return 0, false, err
	}
	if len(entries) > maxWords-t.words {
		return 0, false, nil
	}
	t.hot = grant{}
	if index, ok = t.keys.Add(k); ok {
		t.words += len(entries)
	}
	return index, ok, nil
}

// Get returns the key of an index (the key without its variant byte), nil if there is none.
func (t *Table) Get(index uint32) *Key {
	k, _ := t.keys.Get(index)
	return k
}

// Destroy removes a key and reports whether there was one.
func (t *Table) Destroy(index uint32) bool {
	t.hot = grant{}
	if k := t.Get(index); k != nil {
		t.words -= len(k.Entries)
	}
	return t.keys.Remove(index)
}

// Len is the number of keys; Full reports whether Create would fail.
func (t *Table) Len() int { return t.keys.Len() }

// Full reports whether there are as many keys as may be.
func (t *Table) Full() bool { return t.keys.Full() }

// check validates a new key and prepares it for use.
func (k *Key) check() error {
	if err := k.checkShape(); err != nil {
		return err
	}
	if k.mode == prm.MKeyAccessKLM {
		k.sum()
	}
	return nil
}

// checkShape validates a context.
func (k *Key) checkShape() error {
	c := &k.Context
	if c.Free {
		// A key that UMR will fill in: room for translations, no rights yet.
		if k.mode == prm.MKeyAccessPA {
			return ErrMode
		}
	}
	if !c.Length64 && c.StartAddr+c.Length < c.StartAddr {
		return ErrBounds
	}
	room := uint64(c.TranslationsOctwordSize) * 2
	if uint64(len(k.Entries)) > room {
		return ErrSize
	}
	switch k.mode {
	case prm.MKeyAccessPA:
		return nil
	case prm.MKeyAccessMTT:
		if c.Length64 || c.LogPageSize < 12 || c.LogPageSize > 31 {
			return ErrSize
		}
		// The first page may be entered at an offset.
		in := c.StartAddr & (1<<c.LogPageSize - 1)
		if pages := (in + c.Length + 1<<c.LogPageSize - 1) >> c.LogPageSize; c.Length > 1<<62 || pages > room {
			return ErrSize
		}
	case prm.MKeyAccessKLM:
	case prm.MKeyAccessKSM:
		if c.Length64 || c.LogPageSize < 12 || c.LogPageSize > 63 {
			return ErrSize
		}
	default:
		return ErrMode
	}
	return nil
}

// Changed tells that the context or the entries of a key were changed in place, and checks them.
func (t *Table) Changed(k *Key) error {
	t.hot = grant{}
	k.mode = k.Context.AccessMode()
	return k.check()
}

// sum adds up the lengths of a KLM's entries.
func (k *Key) sum() {
	n := len(k.Entries) / 2
	k.tree = make([]uint64, n+1)
	for i := 1; i <= n; i++ {
		k.tree[i] += k.Entries[2*i-2] >> 32
		if up := i + i&-i; up <= n {
			k.tree[up] += k.tree[i]
		}
	}
}

// resize adds to the length of an entry.
func (k *Key) resize(entry int, by uint64) {
	for i := entry + 1; i < len(k.tree); i += i & -i {
		k.tree[i] += by
	}
}

// at finds the entry that offset off lies in, and where in it. Entries of no length hold nothing. i is the
// number of entries when there is none.
func (k *Key) at(off uint64) (i int, in uint64) {
	n := len(k.tree) - 1
	if n <= 0 {
		return 0, off
	}
	for step := 1 << (bits.Len(uint(n)) - 1); step > 0; step >>= 1 {
		if i+step <= n && k.tree[i+step] <= off {
			i += step
			off -= k.tree[i]
		}
	}
	return i, off
}
