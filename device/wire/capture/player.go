package capture

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"cxkit/device/wire"
)

// DefaultMaxGap is Options.MaxGap when that is 0.
const DefaultMaxGap = time.Minute

// fillsPerReceive bounds how much of the file one Receive reads in search of a frame.
const fillsPerReceive = 8

// Options say how a capture is played. The zero value plays as fast as the receiver takes the frames;
// wire.Pace plays it at a rate.
type Options struct {
	// Recorded keeps the gaps between frames that the capture recorded.
	Recorded bool
	// Speed divides recorded gaps: 2 is twice as fast. 0 means 1.
	Speed float64
	// MaxGap shortens longer recorded gaps, so that a damaged time does not stop the player for years.
	// 0 means DefaultMaxGap, a negative value no limit.
	MaxGap time.Duration
	// Clock is the time recorded gaps are kept in; nil is the system's.
	Clock wire.Clock
	// ReadAhead reads the source on a goroutine, so that Receive does not block on a pipe or a network
	// file. Open sets it for everything but regular files. Close then needs a source whose Close ends
	// its Read.
	ReadAhead bool
}

// Progress is how far a player is.
type Progress struct {
	Frames, Bytes uint64 // given out
	Cut           uint64 // of these, frames that the capture cut short
	Offset, Size  int64  // position in the file and its length, in bytes; Size is 0 when unknown
}

// Player is a port that plays a capture and discards what is sent into it. It is lossless: a frame
// waits until the card has a buffer. Frames that the capture cut short are played as captured.
//
// Reading a regular file happens inside Receive.
type Player struct {
	name   string
	src    io.Reader
	reader *Reader
	ahead  *ahead
	size   int64
	gaps   *gaps // nil: as fast as possible

	frames, bytes, cut, offset atomic.Uint64
	sent, sentBytes, sentDrops atomic.Uint64

	wake     atomic.Pointer[func()]
	closed   atomic.Bool
	doneOnce sync.Once
	done     chan struct{}
	mu       sync.Mutex
	err      error
}

var _ wire.Ender = (*Player)(nil)

// Open opens a capture file and reads its header. A file that is no capture, or whose first frame is not
// Ethernet, is an error at once.
func Open(path string, o Options) (*Player, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("play a capture: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("play a capture: %w", err)
	}
	var size int64
	if info.Mode().IsRegular() {
		size = info.Size()
	} else {
		o.ReadAhead = true
	}
	return NewPlayer(path, f, size, o)
}

// NewPlayer plays the capture that src holds. name stands in errors; size is the capture's length in
// bytes for Progress, 0 if unknown. Close closes src if it is an io.Closer; so does an error.
func NewPlayer(name string, src io.Reader, size int64, o Options) (*Player, error) {
	p := &Player{name: name, src: src, size: size, done: make(chan struct{})}
	fail := func(err error) (*Player, error) {
		p.closeSource()
		return nil, err
	}
	if o.Speed < 0 {
		return fail(fmt.Errorf("play capture %s: speed %v is negative", name, o.Speed))
	}
	var err error
	if p.reader, err = NewReader(name, src); err != nil {
		return fail(err)
	}
	if o.Recorded {
		p.gaps = newGaps(o, p.poke)
	}
	if o.ReadAhead {
		p.ahead = newAhead(src, p.poke)
		p.reader.src = p.ahead
		return p, nil
	}
	// A look at the first frame. Damage behind the header is reported when it is reached, but a foreign
	// link type now.
	switch _, err := p.reader.Next(); {
	case err == nil:
		p.reader.unread()
	case errors.Is(err, errLink):
		return fail(err)
	}
	return p, nil
}

// Attach says whom to wake; see wire.Port.
func (p *Player) Attach(wake func()) {
	if wake == nil {
		p.wake.Store(nil)
		return
	}
	p.wake.Store(&wake)
}

func (p *Player) poke() {
	if w := p.wake.Load(); w != nil {
		(*w)()
	}
}

// Transmit counts frames and forgets them.
func (p *Player) Transmit(frames [][]byte) int {
	if p.closed.Load() {
		p.sentDrops.Store(p.sentDrops.Load() + uint64(len(frames)))
		return len(frames)
	}
	bytes := 0
	for _, f := range frames {
		bytes += len(f)
	}
	p.sent.Store(p.sent.Load() + uint64(len(frames)))
	p.sentBytes.Store(p.sentBytes.Load() + uint64(bytes))
	return len(frames)
}

// Receive gives out the next frames of the capture; see wire.Port.
func (p *Player) Receive(frames [][]byte) int {
	if p.closed.Load() || len(frames) == 0 {
		return 0
	}
	n, fills := 0, 0
	var bytes, cut uint64
	var f Frame
	for n < len(frames) {
		err := p.reader.next(&f)
		if err == errMore {
			// Filling the buffer would move what was given out in this call.
			if n > 0 {
				break
			}
			if fills++; fills > fillsPerReceive {
				p.poke() // go on at the next call
				break
			}
			if p.reader.fill() != nil {
				break // errNotYet: ahead wakes
			}
			continue
		}
		if err != nil {
			p.end(err)
			break
		}
		if p.gaps != nil && !p.gaps.due(f.Nanos) {
			p.reader.unread()
			break
		}
		frames[n] = f.Data
		n++
		bytes += uint64(len(f.Data))
		if len(f.Data) < f.Length {
			cut++
		}
	}
	p.offset.Store(uint64(p.reader.Offset()))
	if n > 0 {
		p.frames.Store(p.frames.Load() + uint64(n))
		p.bytes.Store(p.bytes.Load() + bytes)
	}
	if cut > 0 {
		p.cut.Store(p.cut.Load() + cut)
	}
	return n
}

// end books why the capture ended and closes Done, once.
func (p *Player) end(err error) {
	p.doneOnce.Do(func() {
		p.mu.Lock()
		if err != io.EOF {
			p.err = err
		}
		p.mu.Unlock()
		close(p.done)
	})
}

// Done is closed when the last frame was given out, at damage, and by Close.
func (p *Player) Done() <-chan struct{} { return p.done }

// Err says what ended the player early: an *Error with the place in the file, or wire.ErrClosed when it
// was closed before the end. It is nil while the player plays and after a complete run.
func (p *Player) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Progress is how far the player is; any goroutine may ask.
func (p *Player) Progress() Progress {
	return Progress{
		Frames: p.frames.Load(), Bytes: p.bytes.Load(), Cut: p.cut.Load(),
		Offset: int64(p.offset.Load()), Size: p.size,
	}
}

// Counters are the port's.
func (p *Player) Counters() wire.Counters {
	return wire.Counters{
		RxFrames: p.frames.Load(), RxBytes: p.bytes.Load(),
		TxFrames: p.sent.Load(), TxBytes: p.sentBytes.Load(), TxDropped: p.sentDrops.Load(),
	}
}

// Link is up until Close.
func (p *Player) Link() bool { return !p.closed.Load() }

// Lossless is true.
func (p *Player) Lossless() bool { return true }

// Close ends the player and closes its file.
func (p *Player) Close() error {
	if p.closed.Swap(true) {
		return nil
	}
	if p.gaps != nil {
		p.gaps.timer.Stop()
	}
	err := p.closeSource()
	if p.ahead != nil {
		err = errors.Join(err, p.ahead.close())
	}
	p.end(wire.ErrClosed)
	p.poke()
	if err != nil {
		return fmt.Errorf("close capture %s: %w", p.name, err)
	}
	return nil
}

func (p *Player) closeSource() error {
	if c, ok := p.src.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
