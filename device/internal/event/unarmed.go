package event

// Where doorbell pages are memory that the host maps, arms get lost: all EQs of a page are armed at one
// register, EQs have no doorbell record, and only the last write is there when the engine looks. An unarmed
// set therefore interrupts for every entry, once a step for all of an EQ. That costs interrupts without an
// entry, and loses none. Nor is the consumer counter known, so an overrun goes unnoticed; Linux's EQs are
// larger than what can be outstanding (reference 03 §12).

// drain is how many entries Linux takes at an interrupt at most. It then arms and relies on the next one.
const drain = 128

// owe takes note that eq has an entry to interrupt for.
func (s *Set) owe(eq *EQ) {
	eq.unseen++
	if !eq.owing {
		eq.owing = true
		s.owing = append(s.owing, eq)
	}
}

// Interrupt raises what entries since the last call are owed. remind tells that an EQ has more entries than a
// driver takes at one interrupt: Remind is to be called after a while.
func (s *Set) Interrupt() (remind bool) {
	for i, eq := range s.owing {
		s.owing[i] = nil
		eq.owing = false
		s.fire(eq)
		remind = remind || eq.unseen >= drain
	}
	s.owing = s.owing[:0]
	return remind
}

// Remind interrupts again for EQs from which a driver may have taken only a part, each time for as many
// entries as a driver takes. It reports whether that has to go on.
func (s *Set) Remind() (more bool) {
	s.eqs.Each(func(_ uint32, eq *EQ) bool {
		if eq.unseen >= drain {
			s.fire(eq)
			eq.unseen -= drain
			more = more || eq.unseen >= drain
		}
		return true
	})
	return more
}
