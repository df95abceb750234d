package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"time"

	"cxkit/device/wire"
)

const (
	// maxFrame is tcpdump's largest snapshot length: a record that claims more is damage.
	maxFrame = wire.MaxFrame
	// maxRecord bounds what is held in memory: a packet block with its options, an interface block.
	// Blocks that are skipped may have any length.
	maxRecord = 2 * maxFrame
	// chunk is what is read from the file at once: large enough to hide the cost of a read, small
	// enough to stay in a core's second-level cache.
	chunk = 128 << 10
)

// errMore: the record is not in the buffer as a whole; fill and parse again.
var errMore = errors.New("more bytes needed")

// Error says where a capture is damaged or cannot be played, and what was wrong. Frames before it were
// given out.
type Error struct {
	Name   string // the file
	Offset int64  // byte in the file where the record or field at fault starts
	Frames uint64 // frames given out before
	Err    error
}

func (e *Error) Error() string {
	return fmt.Sprintf("capture %s: at byte %d, after %d frames: %v", e.Name, e.Offset, e.Frames, e.Err)
}

// Unwrap returns the cause, such as io.ErrUnexpectedEOF for a file that is cut off.
func (e *Error) Unwrap() error { return e.Err }

// Frame is one frame of a capture.
type Frame struct {
	// Data are the captured bytes, from the destination MAC address.
	Data []byte
	// Length is the frame's length on the wire; more than len(Data) when the capture cut it short.
	Length int
	// Nanos is the time it was captured, in ns since 1970. 0 when the format has no time.
	Nanos int64
	// Interface numbers the section's interfaces from 0; always 0 in pcap.
	Interface int
}

// Time is when the frame was captured.
func (f Frame) Time() time.Time { return time.Unix(0, f.Nanos).UTC() }

// Reader reads frames from a pcap or pcapng capture. One goroutine uses it.
type Reader struct {
	name   string
	src    io.Reader
	srcErr error // what src ended with

	buf  []byte
	r, w int   // buf[r:w] is not parsed yet
	base int64 // offset in the file of buf[0]
	need int   // bytes the record at r needs, as far as known
	skip int64 // bytes of a block to throw away

	isNG bool // pcapng
	big  bool // big endian; pcapng: of this section
	last int  // bytes of the last record, for unread

	pcap   pcapFile
	ng     ngSection
	frames uint64
	err    error // sticky
}

// NewReader reads the file's header from src. name stands in errors.
func NewReader(name string, src io.Reader) (*Reader, error) {
	d := &Reader{name: name, src: src, buf: make([]byte, maxRecord+chunk)}
	for {
		err := d.start()
		if err == nil {
			return d, nil
		}
		if !errors.Is(err, errMore) {
			return nil, d.fail(err)
		}
		if err := d.fill(); err != nil {
			return nil, d.fail(err)
		}
	}
}

// Next returns the next frame; its bytes are valid until the next call. It returns io.EOF at the end of
// the capture and *Error where it is damaged, and the same again from then on.
func (d *Reader) Next() (Frame, error) {
	for {
		var f Frame
		err := d.next(&f)
		if err == nil {
			return f, nil
		}
		if err == errMore {
			err = d.fill()
		}
		if err != nil {
			return Frame{}, err
		}
	}
}

// Offset is how far the reader is in the file, in bytes.
func (d *Reader) Offset() int64 { return d.base + int64(d.r) }

// next parses a record that is in the buffer into f, which is undefined after an error. Frames stay valid
// until fill.
func (d *Reader) next(f *Frame) error {
	if d.err != nil {
		return d.err
	}
	var err error
	if d.isNG {
		err = d.parseBlock(f)
	} else {
		err = d.parsePcap(f)
	}
	if err == nil {
		d.frames++
		return nil
	}
	if err != errMore {
		err = d.fail(err)
	}
	return err
}

// unread takes back the frame that next returned last.
func (d *Reader) unread() {
	d.r -= d.last
	d.frames--
}

// fail makes err the reader's end and gives it its place in the file.
func (d *Reader) fail(err error) error {
	var placed *Error
	if err != io.EOF && !errors.As(err, &placed) {
		err = d.at(d.r, err)
	}
	if placed != nil {
		placed.Name, placed.Frames = d.name, d.frames
	}
	d.err = err
	return err
}

// at places err at buf[pos].
func (d *Reader) at(pos int, err error) *Error {
	return &Error{Name: d.name, Offset: d.base + int64(pos), Frames: d.frames, Err: err}
}

// want returns nil when n bytes from r are in the buffer. Otherwise errMore, io.EOF at the clean end of
// the file, or what is wrong with the end. what names the record for people.
func (d *Reader) want(n int, what string) error {
	have := d.w - d.r
	if have >= n {
		return nil
	}
	d.need = n
	switch {
	case d.srcErr == nil:
		return errMore
	case d.srcErr != io.EOF:
		return fmt.Errorf("read: %w", d.srcErr)
	case have == 0:
		return io.EOF
	}
	return fmt.Errorf("the file is cut off: %s of %d bytes, %d are there: %w", what, n, have, io.ErrUnexpectedEOF)
}

// fill reads on until the record at r is complete or the file ends. It invalidates frames. The only
// error is errNotYet of a source that reads ahead.
func (d *Reader) fill() error {
	if d.r > 0 {
		d.w = copy(d.buf, d.buf[d.r:d.w])
		d.base += int64(d.r)
		d.r = 0
	}
	empty := 0
	for d.w < d.need && d.srcErr == nil {
		n, err := d.src.Read(d.buf[d.w:min(d.w+chunk, len(d.buf))])
		if err == errNotYet {
			return err
		}
		d.w += n
		d.srcErr = err
		if n != 0 {
			empty = 0
		} else if empty++; empty == 100 && err == nil {
			d.srcErr = io.ErrNoProgress
		}
	}
	return nil
}

func (d *Reader) u16(pos int) uint16 {
	v := binary.LittleEndian.Uint16(d.buf[pos:])
	if d.big {
		return bits.ReverseBytes16(v)
	}
	return v
}

func (d *Reader) u32(pos int) uint32 {
	v := binary.LittleEndian.Uint32(d.buf[pos:])
	if d.big {
		return bits.ReverseBytes32(v)
	}
	return v
}

// start recognizes the format by the file's first bytes.
func (d *Reader) start() error {
	if err := d.want(4, "header"); err == io.EOF {
		return errors.New("the file is empty")
	} else if err != nil {
		return err
	}
	switch b := d.buf[d.r : d.r+4]; [4]byte(b) {
	case [4]byte{0x0a, 0x0d, 0x0d, 0x0a}:
		d.isNG = true
		return d.parseSection()
	case [4]byte{0xd4, 0xc3, 0xb2, 0xa1}:
		return d.startPcap(false, 1000)
	case [4]byte{0xa1, 0xb2, 0xc3, 0xd4}:
		return d.startPcap(true, 1000)
	case [4]byte{0x4d, 0x3c, 0xb2, 0xa1}:
		return d.startPcap(false, 1)
	case [4]byte{0xa1, 0xb2, 0x3c, 0x4d}:
		return d.startPcap(true, 1)
	default:
		return foreign(b)
	}
}

// foreign names what the file is instead of a capture.
func foreign(b []byte) error {
	known := []struct{ magic, what string }{
		{"\x1f\x8b", "compressed with gzip: decompress it first (gunzip -k FILE)"},
		{"\x28\xb5\x2f\xfd", "compressed with zstd: decompress it first (unzstd FILE)"},
		{"\xfd7zX", "compressed with xz: decompress it first (unxz -k FILE)"},
		{"BZh", "compressed with bzip2: decompress it first (bunzip2 -k FILE)"},
		{"\x04\x22\x4d\x18", "compressed with lz4: decompress it first (unlz4 FILE)"},
		{"snoo", "a snoop capture: convert it first (editcap -F pcapng FILE OUT)"},
		{"\x34\xcd\xb2\xa1", "a pcap of the Kuznetzov variant: convert it first (editcap -F pcapng FILE OUT)"},
		{"\xa1\xb2\xcd\x34", "a pcap of the Kuznetzov variant: convert it first (editcap -F pcapng FILE OUT)"},
	}
	for _, k := range known {
		if len(b) >= len(k.magic) && string(b[:len(k.magic)]) == k.magic {
			return fmt.Errorf("not a plain pcap or pcapng file: it is %s", k.what)
		}
	}
	return fmt.Errorf("neither pcap nor pcapng: it starts with % x", b)
}
