package queue

import (
	"encoding/binary"
	"errors"

	"cxkit/device/internal/mkey"
	"cxkit/prm"
)

// A UMR WQE (reference 03 §7): control segment, UMR control segment, the fields of the memory key to be
// set, then the translations, or a data segment that says where they are.
const (
	umrCtrl  = 0x10
	umrKey   = 0x40
	umrTable = 0x80

	umrUnit = 16 // bytes of an "octoword": two MTTs, or one KLM

	// umrPiece is how much of a list that is not inline is read at a time, in bytes.
	umrPiece = 4096
)

// umr executes a UMR WQE. It is the first of its batch that is not complete, so it is executed once.
func (q *SQ) umr(b *Batch, it *Item, wqe []byte) {
	if !q.config.RegUMR || len(wqe) < umrTable {
		it.syndrome = prm.CQESyndromeLocalQPOp
		return
	}
	c := (*prm.WQEUMRCtrlSeg)(wqe[umrCtrl:umrKey])
	u := mkey.Update{Key: binary.BigEndian.Uint32(wqe[0x0c:]), Mask: c.MKeyMask()}
	switch c.Check() {
	case 1:
		u.NotFree = true
	case 2:
		u.Free = true
	}
	u.Context.Get(wqe[umrKey:umrTable])
	it.syndrome = umrSyndrome(q.changeKey(b, &u, c, wqe[umrTable:]))
}

// umrSyndrome is the syndrome of a failed change of a key.
func umrSyndrome(err error) prm.CQESyndrome {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errUMRLayout):
		return prm.CQESyndromeLocalQPOp
	case errors.Is(err, mkey.ErrMemory):
		return prm.CQESyndromeLocalProtection
	}
	return prm.CQESyndromeMWBind
}

var errUMRLayout = errors.New("the list of translations is not in the WQE")

// changeKey replaces translations and then fields of a key.
func (q *SQ) changeKey(b *Batch, u *mkey.Update, c *prm.WQEUMRCtrlSeg, list []byte) error {
	keys := q.env.keys
	k, err := keys.Find(u, q.config.User)
	if err != nil {
		return err
	}
	if n := int(c.XLTOctowords()) * umrUnit; n > 0 {
		at := 0
		if c.TranslationOffsetEn() {
			// Bits 47:16 are valid with umr_extended_translation_offset only, and 0 otherwise.
			at = int(c.XLTOffset()) * umrUnit / 8
		}
		if at+n/8 > k.Room() {
			return mkey.ErrSize
		}
		if c.Inline() {
			if n > len(list) {
				return errUMRLayout
			}
			err = keys.Replace(k, at, list[:n])
		} else {
			err = q.replaceFrom(b, k, at, n, list)
		}
		if err != nil {
			return err
		}
	}
	return keys.Apply(k, u)
}

// replaceFrom is Replace with n bytes of translations that a data segment points to.
func (q *SQ) replaceFrom(b *Batch, k *mkey.Key, at, n int, list []byte) error {
	if len(list) < segmentSize || int(binary.BigEndian.Uint32(list)&^(segInline)) < n {
		return errUMRLayout
	}
	key, addr := binary.BigEndian.Uint32(list[4:]), binary.BigEndian.Uint64(list[8:])
	for done := 0; done < n; done += umrPiece {
		part := b.bytes[:min(umrPiece, n-done)] // no frame is in it
		if !q.read(part, key, addr+uint64(done)) {
			return mkey.ErrMemory
		}
		if err := q.env.keys.Replace(k, at+done/8, part); err != nil {
			return err
		}
	}
	return nil
}
