package wire

import "errors"

// Port is what a card's port is plugged into. Transmit and Receive belong to one goroutine, the card's
// engine; the other methods may be called from any goroutine. No method but Close blocks.
//
// How to poll without losing a wake-up: poll until there is nothing to do. Only a Receive that returned
// nothing, and a Transmit that took fewer frames than it was given, promise that wake is called when
// there is something to receive, or room. wake is also called when the link changes, and may be called
// for nothing.
type Port interface {
	// Attach says whom to wake. wake never blocks and calls no method of the port; it runs on any
	// goroutine. nil detaches. A wake-up under way when Attach is called may still arrive. Poll once
	// after Attach: what came before woke nobody.
	Attach(wake func())

	// Transmit sends frames and returns how many it took, from the first. The frames are valid during
	// the call only: the port copies what must stay. Frames sent while the link is down, or longer than
	// MaxFrame, are taken, dropped and counted.
	Transmit(frames [][]byte) int

	// Receive fills frames with at most len(frames) frames and returns how many. They are read only and
	// valid until the next Receive or Close. A frame may have any length from 0 to MaxFrame: the receiver
	// checks.
	Receive(frames [][]byte) int

	// Link reports the carrier.
	Link() bool

	// Lossless reports what a receiver without buffers does with a frame. true: it keeps the frame until
	// it has a buffer, and the port holds what follows (a player, a cable with flow control). false: it
	// drops the frame and counts it. The answer never changes.
	Lossless() bool

	// Close unplugs: the port's goroutines have ended when it returns, and slices given out by Receive
	// are invalid, so the engine must have stopped polling. Calls after Close find the link down and no
	// frames. A second Close returns nil.
	Close() error
}

// Signaler is a Port whose far end notices what a card's port sends: a port that is off gives it no link, nor does
// one that shares no speed with it. Other ports take a card for a partner that always has a link.
type Signaler interface {
	Port
	// Signal says in which modes the card's port sends, one bit each; 0 is a port that is off.
	Signal(modes uint32)
	// Far is what the far end sends in; an end that no card has sends in all modes.
	Far() uint32
}

// Corrector is a Signaler whose ends have to agree on how errors are corrected. Its link does not depend on that:
// cards see both ends' codes, and have no link where they have none in common at their speed.
type Corrector interface {
	Signaler
	// SignalFEC says which codes the card's port takes, one bit each; Signal after it lets the far end know.
	SignalFEC(codes uint32)
	// FarFEC is what the far end takes; an end that no card has takes all.
	FarFEC() uint32
}

// Ender is a Port that comes to an end by itself, such as a capture that was played.
type Ender interface {
	Port
	// Done is closed after the last frame was given out by Receive, or at an error.
	Done() <-chan struct{}
	// Err says what ended the port early; nil before Done and after a complete run.
	Err() error
}

// MaxFrame is the longest frame a port carries, in bytes. It holds the 64 KiB super-frames that captures
// made with segmentation offload contain, so that the card can count them.
const MaxFrame = 256 << 10

// ErrClosed: the port, or the end of the cable, was closed.
var ErrClosed = errors.New("port closed")

// Counters are what a port saw since it was made. Received and sent are seen from the card.
type Counters struct {
	RxFrames, RxBytes uint64 // given out by Receive
	TxFrames, TxBytes uint64 // taken by Transmit and passed on
	RxDropped         uint64 // came for the card, but the ring was full or the link down
	TxDropped         uint64 // taken by Transmit and not passed on: ring full, link down, too long
}
