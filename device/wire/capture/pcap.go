package capture

import "fmt"

const (
	pcapHeader = 24
	pcapRecord = 16
)

// pcapFile is what the header of a pcap file says.
type pcapFile struct {
	nanos uint32 // ns of one unit of a record's fraction: 1 or 1000
	fcs   int    // bytes of frame check sequence at the end of each frame
}

// startPcap reads the header (draft-ietf-opsawg-pcap).
func (d *Reader) startPcap(big bool, nanos uint32) error {
	if err := d.want(pcapHeader, "pcap header"); err != nil {
		return err
	}
	d.big, d.pcap.nanos = big, nanos
	if major, minor := d.u16(d.r+4), d.u16(d.r+6); major != 2 || minor != 4 {
		return d.at(d.r+4, fmt.Errorf("pcap version %d.%d, only 2.4 is known", major, minor))
	}
	// The upper six bits say whether frames end with a check sequence, and how long it is in words.
	link := d.u32(d.r + 20)
	if link&(1<<26) != 0 {
		d.pcap.fcs = int(link>>28) * 2
	}
	if err := checkLink(link & 0x03ffffff); err != nil {
		return d.at(d.r+20, err)
	}
	d.r += pcapHeader
	return nil
}

// parsePcap reads one record.
func (d *Reader) parsePcap(f *Frame) error {
	if d.w-d.r < pcapRecord {
		return d.want(pcapRecord, "record header")
	}
	captured, length := d.u32(d.r+8), d.u32(d.r+12)
	if captured > maxFrame || captured > length || length > maxLength {
		return d.at(d.r+8, badLengths(captured, length))
	}
	size := pcapRecord + int(captured)
	if d.w-d.r < size {
		return d.want(size, "record")
	}
	f.Data = d.buf[d.r+pcapRecord : d.r+size : d.r+size]
	f.Length = int(length)
	f.Nanos = int64(d.u32(d.r))*1e9 + int64(d.u32(d.r+4))*int64(d.pcap.nanos)
	f.Interface = 0
	if d.pcap.fcs != 0 {
		f.dropFCS(d.pcap.fcs)
	}
	d.r += size
	d.last = size
	return nil
}

// maxLength bounds what a record may give as a frame's length on the wire.
const maxLength = 1<<31 - 1

// badLengths says what is wrong with lengths that no capture program writes.
func badLengths(captured, length uint32) error {
	switch {
	case captured > maxFrame:
		return fmt.Errorf("a frame of %d captured bytes, more than the %d that captures hold: the file is damaged", captured, maxFrame)
	case captured > length:
		return fmt.Errorf("%d bytes captured of a frame of %d: the file is damaged", captured, length)
	}
	return fmt.Errorf("a frame of %d bytes: the file is damaged", length)
}

// dropFCS takes a check sequence of n bytes off a frame. Nothing is left of it in a frame cut shorter.
func (f *Frame) dropFCS(n int) {
	f.Length = max(f.Length-n, 0)
	f.Data = f.Data[:min(len(f.Data), f.Length)]
}
