package steer

import "cxkit/device/internal/packet"

const (
	cacheSize = 1024 // decisions kept; a power of two
	// cachedWords bounds the key: masks that touch more words are looked up the long way.
	cachedWords = 8
	// cachedCounters bounds the counters a kept decision adds to.
	cachedCounters = 2
)

// cache keeps decisions by the words of a frame that any mask touches. A mask that is gone still counts
// until the last group is: a key that tells more than necessary is right, too.
type cache struct {
	epoch uint64 // of valid decisions; starts at 1
	mask  [packet.KeyWords]uint64
	words [cachedWords]uint8
	n     int // words in use; more than cachedWords: the cache is off
	slots []decision
}

type decision struct {
	valid    uint64
	key      [cachedWords]uint64
	to       Delivery
	edit     *Edit // of a frame that is allowed, as registers
	counters [cachedCounters]*Counter

	registers Registers

	counted uint8 // of them
	missed  bool
	allowed bool
}

// flush forgets all decisions.
func (c *cache) flush() { c.epoch++ }

// widen makes the key hold what mask looks at.
func (c *cache) widen(mask *[packet.KeyWords]uint64) {
	c.flush()
	c.n = 0
	for i := range c.mask {
		c.mask[i] |= mask[i]
		if c.mask[i] != 0 {
			if c.n < cachedWords {
				c.words[c.n] = uint8(i)
			}
			c.n++
		}
	}
}

// narrow starts over with a key of nothing.
func (c *cache) narrow() {
	c.mask = [packet.KeyWords]uint64{}
	c.n = 0
	c.flush()
}

// find returns the place of a frame's decision, nil if it can have none. If the place holds a decision
// for other frames, it is emptied and its key set.
func (c *cache) find(h *packet.Headers, seed uint64) *decision {
	if c.n > cachedWords {
		return nil
	}
	if c.slots == nil {
		c.slots = make([]decision, cacheSize)
	}
	var key [cachedWords]uint64
	hash := seed
	for i, w := range c.words[:c.n] {
		w &= packet.KeyWords - 1
		k := h.Key[w] & c.mask[w]
		key[i&(cachedWords-1)] = k
		hash = mix(hash, k)
	}
	s := &c.slots[hash&(cacheSize-1)]
	if s.valid == c.epoch {
		// Words that are not in use are 0 in both.
		d := (key[0] ^ s.key[0]) | (key[1] ^ s.key[1]) | (key[2] ^ s.key[2]) | (key[3] ^ s.key[3])
		if c.n > 4 {
			d |= (key[4] ^ s.key[4]) | (key[5] ^ s.key[5]) | (key[6] ^ s.key[6]) | (key[7] ^ s.key[7])
		}
		if d == 0 {
			return s
		}
	}
	s.valid, s.key = 0, key
	return s
}

// fill keeps a decision at the place that find gave.
func (c *cache) fill(s *decision, v *Verdict) {
	s.valid = c.epoch
	s.missed, s.allowed, s.edit, s.registers = v.Missed, v.Allowed, v.Edit, v.Registers
	s.to = Delivery{}
	if len(v.To) == 1 {
		s.to = v.To[0]
	}
	s.counted = uint8(copy(s.counters[:], v.Counters))
}
