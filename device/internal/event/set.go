package event

import (
	"encoding/binary"
	"slices"

	"cxkit/device/internal/object"
	"cxkit/pci"
	"cxkit/prm"
	"cxkit/trace"
)

// entrySize is the size of an EQE; its last dword holds the owner bit.
const entrySize = 64

// Writer puts an entry, but for its owner bit, into an EQ. A Set is the honest one.
type Writer interface {
	WriteEntry(eq *EQ, entry *[entrySize]byte)
}

// Set is the event queues of a function.
type Set struct {
	// Writer is what writes entries: the set itself, or what stands before it.
	Writer Writer

	config Config
	eqs    object.Table[*EQ]
	byType [256]*EQ // who subscribed to a type; completion events name their EQ instead
	entry  [entrySize]byte
	owing  []*EQ // with entries that have not interrupted yet; of an unarmed set

	// Counters of QUERY_VNIC_ENV and the books.
	AsyncOverruns, CompletionOverruns uint32
	// Unsubscribed counts events that nobody asked for.
	Unsubscribed uint64
}

// Config is what a set does to the outside.
type Config struct {
	// Memory is the function's memory, entered; nil while no host is attached.
	Memory func() pci.Memory
	// Raise raises an interrupt vector.
	Raise func(vector int)
	// Failed is told of an EQ that can take no more: overrun, or its ring can't be written.
	Failed func(eqn uint8, overrun bool)
	// Log gets every entry written.
	Log *trace.Log
	// Count is how many EQs there may be, at most 255.
	Count int
	// Unarmed: arms may be lost, so every entry interrupts: unarmed.go.
	Unarmed bool
}

// NewSet makes an empty set.
func NewSet(c Config) *Set {
	s := &Set{config: c, eqs: object.New[*EQ](1, min(c.Count, 255))}
	s.Writer = s
	return s
}

// Clear forgets all EQs, as a reset does.
func (s *Set) Clear() {
	s.eqs.Clear()
	s.byType = [256]*EQ{}
	clear(s.owing)
	s.owing = s.owing[:0]
}

// Add takes eq into the set and subscribes it to the types of its mask: the EQ created last gets a type
// that several ask for. ok is false when there are as many EQs as may be.
func (s *Set) Add(eq *EQ) (eqn uint8, ok bool) {
	n, ok := s.eqs.Add(eq)
	if !ok {
		return 0, false
	}
	eq.number = uint8(n)
	for t := range s.byType {
		if eq.Mask[t>>6]>>(t&63)&1 != 0 {
			s.byType[t] = eq
		}
	}
	return eq.number, true
}

// Remove takes an EQ out. The caller has checked that nobody holds it.
func (s *Set) Remove(eqn uint8) {
	eq, ok := s.eqs.Get(uint32(eqn))
	if !ok {
		return
	}
	s.eqs.Remove(uint32(eqn))
	s.owing = slices.DeleteFunc(s.owing, func(o *EQ) bool { return o == eq })
	for t := range s.byType {
		if s.byType[t] == eq {
			s.byType[t] = nil
			// An older EQ that asked for the type gets it back.
			s.eqs.Each(func(_ uint32, other *EQ) bool {
				if other.Mask[t>>6]>>(t&63)&1 != 0 {
					s.byType[t] = other
				}
				return true
			})
		}
	}
}

// Get returns an EQ, nil if there is none of that number.
func (s *Set) Get(eqn uint8) *EQ {
	eq, _ := s.eqs.Get(uint32(eqn))
	return eq
}

// Len is the number of EQs.
func (s *Set) Len() int { return s.eqs.Len() }

// Full reports whether Add would fail.
func (s *Set) Full() bool { return s.eqs.Full() }

// Subscribed reports whether an EQ takes events of the type.
func (s *Set) Subscribed(typ prm.EventType) bool { return s.byType[typ] != nil }

// Post raises an asynchronous event: fill, which may be nil, writes the entry's data (offsets are those
// of the whole entry) over zeros. An event that nobody subscribed to is counted and forgotten.
func (s *Set) Post(typ prm.EventType, subType uint8, fill func(entry []byte)) {
	eq := s.byType[typ]
	if eq == nil {
		s.Unsubscribed++
		return
	}
	s.entry = [entrySize]byte{1: byte(typ), 3: subType}
	if fill != nil {
		fill(s.entry[:])
	}
	s.Writer.WriteEntry(eq, &s.entry)
}

// Completion tells the EQ of a CQ that the CQ has something. Unknown EQs are ignored: a CQ holds its EQ,
// so there are none.
func (s *Set) Completion(eqn uint8, cqn uint32) {
	eq := s.Get(eqn)
	if eq == nil {
		return
	}
	s.entry = [entrySize]byte{} // type 0
	binary.BigEndian.PutUint32(s.entry[0x38:], cqn&0xffffff)
	s.Writer.WriteEntry(eq, &s.entry)
}

// CQError reports a CQ that overran or could not be written.
func (s *Set) CQError(cqn uint32, syndrome prm.CQErrorSyndrome) {
	s.Post(prm.EventCQError, 0, func(e []byte) {
		binary.BigEndian.PutUint32(e[0x20:], cqn&0xffffff)
		e[0x2b] = byte(syndrome)
	})
}

// QueueError reports an RQ or SQ that went wrong: EventWQCatastrophic, EventWQInvalidRequest or
// EventWQAccess.
func (s *Set) QueueError(typ prm.EventType, queue prm.EventQueueType, number uint32) {
	s.Post(typ, 0, func(e []byte) {
		e[0x34] = byte(queue)
		binary.BigEndian.PutUint32(e[0x38:], number&0xffffff)
	})
}

// Inject writes a given entry to an EQ, as GEN_EQE does. The owner bit is the EQ's.
func (s *Set) Inject(eq *EQ, entry []byte) {
	s.entry = [entrySize]byte{}
	copy(s.entry[:], entry)
	s.Writer.WriteEntry(eq, &s.entry)
}

// WriteEntry publishes an entry in eq and interrupts if the EQ is armed.
func (s *Set) WriteEntry(eq *EQ, entry *[entrySize]byte) {
	if eq.status != StatusOK {
		return
	}
	mem := s.config.Memory()
	if mem == nil {
		return
	}
	if !eq.OverrunIgnore && !s.config.Unarmed && eq.pending() >= 1<<eq.LogSize {
		s.fail(eq, StatusOverrun)
		return
	}
	slot := int(eq.producer & (1<<eq.LogSize - 1))
	entry[entrySize-1] = byte(eq.producer >> eq.LogSize & 1)
	if err := eq.Ring.Publish(mem, slot*entrySize, entry[:]); err != nil {
		s.fail(eq, StatusWriteFailure)
		return
	}
	eq.producer = (eq.producer + 1) & counterMask
	s.config.Log.Event(uint32(eq.number), entry[:], "")
	if s.config.Unarmed {
		s.owe(eq)
	} else if eq.armed {
		s.fire(eq)
	}
}

func (s *Set) fail(eq *EQ, status Status) {
	eq.status = status
	overrun := status == StatusOverrun
	if overrun {
		if eq.Mask == [4]uint64{} {
			s.CompletionOverruns++
		} else {
			s.AsyncOverruns++
		}
	}
	s.config.Failed(eq.number, overrun)
}

// fire interrupts once; the EQ does so again after it was armed again.
func (s *Set) fire(eq *EQ) {
	eq.armed, eq.fired = false, true
	s.config.Raise(eq.Vector)
}

// Doorbell takes a consumer counter and, if arm is set, asks for an interrupt at the next entry, or at
// once when there are entries that the driver has not consumed. It reports false for a counter that is
// ahead of the entries written or goes back, which changes nothing.
func (s *Set) Doorbell(eq *EQ, consumer uint32, arm bool) bool {
	consumer &= counterMask
	if (eq.producer-consumer)&counterMask > eq.pending() && !eq.OverrunIgnore {
		return false
	}
	eq.consumer = consumer
	eq.unseen = eq.pending()
	if arm {
		eq.armed, eq.fired = true, false
		if eq.pending() != 0 {
			s.fire(eq)
		}
	}
	return true
}
