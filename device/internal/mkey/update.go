package mkey

import (
	"encoding/binary"

	"cxkit/prm"
)

// Update is a change of a key by a work request of its own queue (UMR, reference 03 §7).
type Update struct {
	// Key is the key with its variant as it is before.
	Key uint32
	// Free and NotFree are the state that the request demands the key to be in.
	Free, NotFree bool
	// Mask says which fields of Context are taken: bits of mkey_mask.
	Mask    uint64
	Context prm.MKeyContext
}

// Bits of mkey_mask.
const (
	maskLen                  = 1 << 0
	maskPageSize             = 1 << 1
	maskStartAddr            = 1 << 6
	maskKey                  = 1 << 13
	maskQPN                  = 1 << 14
	maskLR                   = 1 << 17
	maskLW                   = 1 << 18
	maskRR                   = 1 << 19
	maskRW                   = 1 << 20
	maskA                    = 1 << 21
	maskRelaxedOrderingWrite = 1 << 25
	maskFree                 = 1 << 29
	maskRelaxedOrderingRead  = 1 << 47
)

// settable are the fields that an update may change. The protection domain and the access mode are not
// among them: they are what the queue's right to change the key is made of.
const settable = maskLen | maskPageSize | maskStartAddr | maskKey | maskQPN |
	maskLR | maskLW | maskRR | maskRW | maskA | maskFree |
	maskRelaxedOrderingWrite | maskRelaxedOrderingRead

// Find returns the key that an update names, if the queue may change it.
func (t *Table) Find(u *Update, user User) (*Key, error) {
	k, ok := t.keys.Get(u.Key >> 8)
	switch {
	case !ok || k.Context.MKey7_0 != uint8(u.Key):
		return nil, ErrKey
	case k.Context.PD != user.PD:
		return nil, ErrPD
	case !k.Context.UMREn || k.mode == prm.MKeyAccessPA:
		return nil, ErrRights
	case u.Free && !k.Context.Free || u.NotFree && k.Context.Free:
		return nil, ErrFree
	}
	return k, nil
}

// Room is how many words of translations k may have.
func (k *Key) Room() int { return min(int(k.Context.TranslationsOctwordSize)*2, maxWords) }

// Replace replaces translations of k from word at on; words is big endian as in memory, at most what Room
// leaves. The caller ends with Apply.
func (t *Table) Replace(k *Key, at int, words []byte) error {
	n := len(words) / 8
	if at < 0 || at > k.Room() || n > k.Room()-at {
		return ErrSize
	}
	if at+n > len(k.Entries) {
		// All there may be, so that it happens once.
		more := k.Room() - len(k.Entries)
		if more > maxWords-t.words {
			return ErrSize
		}
		t.words += more
		k.Entries = append(k.Entries, make([]uint64, more)...)
		if k.mode == prm.MKeyAccessKLM {
			k.sum()
		}
	}
	for i := range n {
		k.set(at+i, binary.BigEndian.Uint64(words[8*i:]))
	}
	return nil
}

// set changes a word and, in a KLM, where entries end.
func (k *Key) set(i int, v uint64) {
	old := k.Entries[i]
	k.Entries[i] = v
	if k.mode == prm.MKeyAccessKLM && i&1 == 0 {
		k.resize(i/2, v>>32-old>>32)
	}
}

// Apply changes the fields that u selects. If they make no key, nothing changes.
func (t *Table) Apply(k *Key, u *Update) error {
	t.hot = grant{}
	if u.Mask&^settable != 0 {
		return ErrMode
	}
	if u.Mask == 0 {
		return nil
	}
	old, from, to := k.Context, &u.Context, &k.Context
	take := func(bit uint64) bool { return u.Mask&bit != 0 }
	if take(maskLen) {
		to.Length, to.Length64 = from.Length, from.Length64
	}
	if take(maskPageSize) {
		to.LogPageSize = from.LogPageSize
	}
	if take(maskStartAddr) {
		to.StartAddr = from.StartAddr
	}
	if take(maskKey) {
		to.MKey7_0 = from.MKey7_0
	}
	if take(maskQPN) {
		to.QPN = from.QPN
	}
	if take(maskLR) {
		to.LR = from.LR
	}
	if take(maskLW) {
		to.LW = from.LW
	}
	if take(maskRR) {
		to.RR = from.RR
	}
	if take(maskRW) {
		to.RW = from.RW
	}
	if take(maskA) {
		to.A = from.A
	}
	if take(maskFree) {
		to.Free = from.Free
	}
	if err := k.checkShape(); err != nil {
		k.Context = old
		return err
	}
	return nil
}
