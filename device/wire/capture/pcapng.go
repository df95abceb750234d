package capture

import (
	"fmt"
	"io"
	"math"
	"math/bits"
)

// Block types and sizes of draft-ietf-opsawg-pcapng.
const (
	blockSection   = 0x0a0d0d0a
	blockInterface = 1
	blockPacket    = 2 // obsolete
	blockSimple    = 3
	blockEnhanced  = 6

	blockHead = 8 // type, total length
	blockTail = 4 // total length again

	// maxInterfaces bounds the memory of a section. Packet blocks can name more; nobody has them.
	maxInterfaces = 1 << 16

	optEnd      = 0
	optTSResol  = 9
	optFCSLen   = 13
	optTSOffset = 14
)

// ngSection is what a section's blocks said so far.
type ngSection struct {
	interfaces []ngInterface
	nanos      int64 // of the last frame, for blocks without a time
}

// ngInterface is an interface block.
type ngInterface struct {
	link   uint32
	snap   uint32
	fcs    int    // bytes of frame check sequence at the end of each frame
	mul    uint64 // ns = time * mul / div, or time * mul >> shift
	div    uint64
	shift  uint
	offset int64 // seconds
}

// parseBlock reads blocks up to and including the next packet.
func (d *Reader) parseBlock(f *Frame) error {
	for {
		if d.skip != 0 {
			if err := d.skipOn(); err != nil {
				return err
			}
		}
		if d.w-d.r < blockHead {
			return d.want(blockHead, "block header")
		}
		typ := d.u32(d.r)
		if typ == blockSection {
			if err := d.parseSection(); err != nil {
				return err
			}
			continue
		}
		size := d.u32(d.r + 4)
		if size < blockHead+blockTail || size%4 != 0 {
			return d.at(d.r+4, fmt.Errorf("a block (type %#x) of %d bytes: the file is damaged", typ, size))
		}
		switch typ {
		case blockEnhanced, blockSimple, blockPacket:
			if err := d.wantBlock(size); err != nil {
				return err
			}
			if err := d.parsePacket(f, typ, int(size)); err != nil {
				return err
			}
			d.r += int(size)
			d.last = int(size)
			return nil
		case blockInterface:
			if err := d.wantBlock(size); err != nil {
				return err
			}
			if err := d.parseInterface(int(size)); err != nil {
				return err
			}
			d.r += int(size)
		default:
			d.skip = int64(size)
		}
	}
}

// skipOn throws away what is left of a block.
func (d *Reader) skipOn() error {
	n := min(d.skip, int64(d.w-d.r))
	d.r += int(n)
	d.skip -= n
	if d.skip == 0 {
		return nil
	}
	err := d.want(1, "block")
	if err == io.EOF {
		err = fmt.Errorf("the file is cut off: %d bytes of a block are missing: %w", d.skip, io.ErrUnexpectedEOF)
	}
	return err
}

// wantBlock asks for a whole block and compares the length at its end.
func (d *Reader) wantBlock(size uint32) error {
	if size > maxRecord {
		return d.at(d.r+4, fmt.Errorf("a block of %d bytes, more than the %d that this kind can have: the file is damaged", size, maxRecord))
	}
	if err := d.want(int(size), "block"); err != nil {
		return err
	}
	if end := d.r + int(size) - blockTail; d.u32(end) != size {
		return d.at(end, fmt.Errorf("a block says %d bytes at its start and %d at its end: the file is damaged", size, d.u32(end)))
	}
	return nil
}

// parseSection reads a section header, which sets the byte order and forgets the interfaces.
func (d *Reader) parseSection() error {
	if err := d.want(28, "section header"); err != nil {
		return err
	}
	switch magic := [4]byte(d.buf[d.r+8 : d.r+12]); magic {
	case [4]byte{0x1a, 0x2b, 0x3c, 0x4d}:
		d.big = true
	case [4]byte{0x4d, 0x3c, 0x2b, 0x1a}:
		d.big = false
	default:
		return d.at(d.r+8, fmt.Errorf("byte-order magic % x in a section header: the file is damaged", magic))
	}
	size := d.u32(d.r + 4)
	if size < 28 || size%4 != 0 {
		return d.at(d.r+4, fmt.Errorf("a section header of %d bytes: the file is damaged", size))
	}
	// 1.2 is written by some programs and differs in nothing.
	if major, minor := d.u16(d.r+12), d.u16(d.r+14); major != 1 || minor != 0 && minor != 2 {
		return d.at(d.r+12, fmt.Errorf("pcapng version %d.%d, only 1.0 is known", major, minor))
	}
	if err := d.wantBlock(size); err != nil {
		return err
	}
	d.ng.interfaces = d.ng.interfaces[:0]
	d.r += int(size)
	return nil
}

// parseInterface reads an interface block. Its link type is judged when a packet of it comes, because
// captures may list interfaces that saw none.
func (d *Reader) parseInterface(size int) error {
	if size < 20 {
		return d.at(d.r+4, fmt.Errorf("an interface block of %d bytes: the file is damaged", size))
	}
	if len(d.ng.interfaces) == maxInterfaces {
		return fmt.Errorf("more than %d interfaces in a section", maxInterfaces)
	}
	i := ngInterface{link: uint32(d.u16(d.r + 8)), snap: d.u32(d.r + 12), mul: 1000, div: 1}
	end := d.r + size - blockTail
	for pos := d.r + 16; pos+4 <= end; {
		code, length := d.u16(pos), int(d.u16(pos+2))
		if code == optEnd {
			break
		}
		if pos+4+length > end {
			return d.at(pos, fmt.Errorf("an option (code %d) of %d bytes that reaches out of its block: the file is damaged", code, length))
		}
		i.option(d, code, pos+4, length)
		pos += 4 + (length+3)&^3
	}
	d.ng.interfaces = append(d.ng.interfaces, i)
	return nil
}

// option takes what playing needs; values of a wrong length are ignored.
func (i *ngInterface) option(d *Reader, code uint16, pos, length int) {
	switch {
	case code == optTSResol && length == 1:
		i.resolution(d.buf[pos])
	case code == optTSOffset && length == 8:
		hi, lo := uint64(d.u32(pos)), uint64(d.u32(pos+4))
		if !d.big {
			hi, lo = lo, hi
		}
		i.offset = int64(hi<<32 | lo)
	case code == optFCSLen && length == 1:
		// The draft counts bits, Wireshark's writers bytes.
		if n := d.buf[pos]; n == 4 || n == 32 {
			i.fcs = 4
		}
	}
}

// resolution sets how times are turned into ns: units of 10^-v s, or of 2^-v s with the top bit set.
func (i *ngInterface) resolution(v byte) {
	i.mul, i.div, i.shift = 1, 1, 0
	if v&0x80 != 0 {
		i.mul, i.shift = 1e9, uint(v&0x7f)
		return
	}
	for range 9 - int(v) {
		i.mul *= 10
	}
	// Beyond 10^-28 s a 64-bit time is less than 1 ns.
	for range min(int(v)-9, 19) {
		i.div *= 10
	}
}

// nanos turns a block's time into ns since 1970. Times beyond the range of int64 stay at its end.
func (i *ngInterface) nanos(t uint64) int64 {
	hi, lo := bits.Mul64(t, i.mul)
	if i.shift != 0 {
		lo = shiftRight(hi, lo, i.shift)
	} else if hi != 0 {
		lo = math.MaxUint64
	}
	if i.div > 1 {
		lo /= i.div
	}
	ns := int64(min(lo, math.MaxInt64))
	if i.offset == 0 {
		return ns
	}
	const limit = int64(math.MaxInt64) / 1e9
	sum := min(max(i.offset, -limit), limit)*1e9 + ns
	if i.offset > 0 && sum < ns {
		return math.MaxInt64
	}
	return sum
}

// shiftRight is the low word of hi:lo >> n, all ones when it does not fit.
func shiftRight(hi, lo uint64, n uint) uint64 {
	if n >= 64 {
		return hi >> (n - 64)
	}
	if hi>>n != 0 {
		return math.MaxUint64
	}
	return hi<<(64-n) | lo>>n
}

// parsePacket reads a packet block of any of the three kinds.
func (d *Reader) parsePacket(f *Frame, typ uint32, size int) error {
	head, in := 28, uint32(0)
	switch typ {
	case blockEnhanced:
		in = d.u32(d.r + 8)
	case blockPacket:
		in = uint32(d.u16(d.r + 8))
	case blockSimple:
		head = 12
	}
	if size < head+blockTail {
		return d.at(d.r+4, fmt.Errorf("a packet block of %d bytes: the file is damaged", size))
	}
	if uint64(in) >= uint64(len(d.ng.interfaces)) {
		return d.at(d.r+8, fmt.Errorf("a packet of interface %d, the section has %d so far: the file is damaged", in, len(d.ng.interfaces)))
	}
	i := &d.ng.interfaces[in]
	if i.link != linkEthernet {
		return fmt.Errorf("a packet of interface %d: %w", in, checkLink(i.link))
	}
	var captured, length uint32
	if typ == blockSimple {
		length = d.u32(d.r + 8)
		captured = min(length, uint32(size-head-blockTail))
		if i.snap != 0 {
			captured = min(captured, i.snap)
		}
	} else {
		captured, length = d.u32(d.r+20), d.u32(d.r+24)
		d.ng.nanos = i.nanos(uint64(d.u32(d.r+12))<<32 | uint64(d.u32(d.r+16)))
	}
	if captured > maxFrame || captured > length || length > maxLength {
		return d.at(d.r+head-8, badLengths(captured, length))
	}
	if head+int(captured)+blockTail > size {
		return d.at(d.r+head-8, fmt.Errorf("%d captured bytes in a block of %d: the file is damaged", captured, size))
	}
	start := d.r + head
	f.Data = d.buf[start : start+int(captured) : start+int(captured)]
	f.Length = int(length)
	f.Nanos = d.ng.nanos
	f.Interface = int(in)
	if i.fcs != 0 {
		f.dropFCS(i.fcs)
	}
	return nil
}
