package cmdif

import "time"

// maxSlots is the most entries a command queue may have (Linux cmd.c).
const maxSlots = 32

// state is where a slot is, see the package comment.
type state uint8

const (
	free    state = iota // in its lane's free mask
	filling              // owned by a command that is not posted yet
	posted               // firmware owns the entry, the command has a caller
	done                 // firmware gave the entry back, the output has not been taken
	flushed              // as posted, but the caller is to give up
	stuck                // firmware owns the entry and nobody waits
)

// slot is one entry of the command queue and what belongs to it. Fields below the state are used by the
// command that owns the slot, or under the interface's lock while it is stuck.
type slot struct {
	index int
	entry []byte // in the command queue page
	lane  *lane
	wake  chan struct{} // something about state has changed
	timer *time.Timer

	state state     // guarded by Interface.mu
	event bool      // the command will be announced by an event; guarded by Interface.mu
	end   time.Time // when firmware was seen to be done; guarded by Interface.mu
	seen  time.Time // when a look found it so and no event had told; guarded by Interface.mu

	command Command
	token   uint8
	signed  bool     // its blocks carry signatures, and so must the answer's
	in, out []uint32 // mailbox blocks
	inLen   int
	outLen  int
	scratch []byte // input to send, then output received
	header  [inline]byte
	start   time.Time // of posting
	item    *item     // of a callback command, else nil
}

// wakeUp makes the waiting caller look at the slot's state.
func (s *slot) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// tokens hands out the 8-bit numbers that tie mailboxes to commands: never 0, and never one that a slot
// in use has.
type tokens struct {
	last uint8
	used [4]uint64
}

func (t *tokens) take() uint8 {
	for {
		t.last++
		// At most maxSlots of 255 are in use, so this ends.
		if t.last != 0 && t.used[t.last>>6]>>(t.last&63)&1 == 0 {
			t.used[t.last>>6] |= 1 << (t.last & 63)
			return t.last
		}
	}
}

func (t *tokens) put(token uint8) { t.used[token>>6] &^= 1 << (token & 63) }
