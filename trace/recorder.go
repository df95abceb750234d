package trace

import (
	"io"
	"sync"
	"time"
)

// Config sizes a recorder. The zero value works.
type Config struct {
	// Records is how many records the ring keeps at most; 0 means 8192.
	Records int
	// Bytes is how many bytes of commands and events the ring keeps at most; 0 means 4 MiB. The data of
	// one record may take a quarter of it; what is longer is cut there and its length kept.
	Bytes int
	// Kinds are the kinds recorded; 0 means Control.
	Kinds Kinds
	// Clock gives the time since some start; nil means the real time since New.
	Clock func() time.Duration
	// Writer, if set, gets every record in text form as it happens, uncut. It is called with the
	// recorder locked: give it a bufio.Writer over a file. After its first error it gets no more.
	Writer io.Writer
}

// Recorder is a bounded ring of records. All methods may be called from any goroutine, and on nil.
type Recorder struct {
	clock func() time.Duration
	kinds Kinds

	mu      sync.Mutex // guards all below
	entries []entry    // ring by sequence number
	seq     uint64     // of the next record
	data    []byte     // ring by position
	pos     uint64     // of the next byte; runs free
	w       io.Writer
	line    []byte // scratch for the text form
	err     error
}

// entry is a record with its data in the byte ring. The strings are those the caller gave.
type entry struct {
	Record
	at  uint64 // position of the data
	len int    // kept bytes
}

// New makes a recorder.
func New(c Config) *Recorder {
	if c.Records <= 0 {
		c.Records = 8192
	}
	if c.Bytes <= 0 {
		c.Bytes = 4 << 20
	}
	if c.Kinds == 0 {
		c.Kinds = Control
	}
	if c.Clock == nil {
		start := time.Now()
		c.Clock = func() time.Duration { return time.Since(start) }
	}
	r := &Recorder{
		clock: c.Clock, kinds: c.Kinds, w: c.Writer,
		entries: make([]entry, c.Records), data: make([]byte, c.Bytes),
	}
	if r.w != nil {
		_, r.err = io.WriteString(r.w, header)
	}
	return r
}

// For returns the log of one side of one function. A nil recorder returns a nil log.
func (r *Recorder) For(side Side, function string) *Log {
	if r == nil {
		return nil
	}
	return &Log{r: r, kinds: r.kinds, side: side, function: function}
}

// Last returns the latest n records still held, oldest first; their data are copies. n < 0 means all.
func (r *Recorder) Last(n int) []Record {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	held := r.held()
	if n >= 0 {
		held = min(held, n)
	}
	out := make([]Record, 0, held)
	for seq := r.seq - uint64(held); seq < r.seq; seq++ {
		e := &r.entries[seq%uint64(len(r.entries))]
		rec := e.Record
		if e.len > 0 {
			from := e.at % uint64(len(r.data))
			rec.Data = append([]byte(nil), r.data[from:from+uint64(e.len)]...)
		}
		out = append(out, rec)
	}
	return out
}

// held counts the records whose entry and data are still whole. The data of newer records lie behind
// those of older ones, so the first lost one ends the search.
func (r *Recorder) held() int {
	n := int(min(r.seq, uint64(len(r.entries))))
	for i := range n {
		e := &r.entries[(r.seq-1-uint64(i))%uint64(len(r.entries))]
		if e.len > 0 && r.pos-e.at > uint64(len(r.data)) {
			return i
		}
	}
	return n
}

// Lost counts the records that Last can't return any more.
func (r *Recorder) Lost() uint64 {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seq - uint64(r.held())
}

// Err returns the first error of Config.Writer.
func (r *Recorder) Err() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// add takes rec with the data that belong to it. They are a parameter of their own, and only copied, so
// that the compiler sees that callers may keep them on their stacks.
func (r *Recorder) add(rec *Record, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec.Time = r.clock() // under the lock, so that order and times agree
	rec.Seq = r.seq
	rec.Length = len(data)
	if r.w != nil && r.err == nil {
		r.line = appendRecord(r.line[:0], rec, data)
		_, r.err = r.w.Write(r.line)
	}
	e := &r.entries[r.seq%uint64(len(r.entries))]
	r.seq++
	e.Record = *rec
	e.at, e.len = r.keep(data)
}

// keep copies p, or its first part, to the byte ring in one piece.
func (r *Recorder) keep(p []byte) (at uint64, n int) {
	n = min(len(p), max(1, len(r.data)/4))
	size := uint64(len(r.data))
	if from := r.pos % size; from+uint64(n) > size {
		r.pos += size - from
	}
	at = r.pos
	copy(r.data[at%size:], p[:n])
	r.pos += uint64(n)
	return at, n
}
