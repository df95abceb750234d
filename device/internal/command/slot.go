package command

import (
	"encoding/binary"
	"fmt"

	"cxkit/dma"
	"cxkit/pci"
	"cxkit/prm"
)

// Sizes of the command interface (reference 01 §1, §2).
const (
	// SlotSize is a command queue entry; Inline is how much of input and output it holds itself.
	SlotSize = 64
	Inline   = 16
	// MaxLength bounds input and output: the addresses of all pages that firmware takes (64 GiB). Drivers
	// that do not limit what they take back ask for millions in one command (reports R01).
	MaxLength = 128<<20 + Inline
	// keepLength is how much a slot keeps for the next command.
	keepLength = 1 << 20

	slotType     = 0x07 // PCI transport
	ownDword     = 0x3c
	blockSize    = 576
	blockData    = 512
	blockNext    = 0x230
	blockNumber  = 0x238
	blockToken   = 0x23d
	blockCtrlSig = 0x23e
	blockSig     = 0x23f
	mailboxAlign = 512 - 1
)

// Slot is a command between its doorbell and its answer. It keeps its buffers for the next command.
type Slot struct {
	// In and Out are the input and the output area.
	In, Out []byte
	token   byte
	in, out []byte   // what In and Out are cut from
	outputs []uint64 // bus addresses of the output mailboxes
	written int      // how many of them WritePart has filled
	addr    uint64   // of the queue entry
	scratch [blockSize]byte
}

// Error says why a command could not be read.
type Error struct {
	Delivery prm.DeliveryStatus
	Why      string
}

func (e *Error) Error() string { return e.Why }

func refuse(d prm.DeliveryStatus, format string, args ...any) *Error {
	return &Error{Delivery: d, Why: fmt.Sprintf(format, args...)}
}

// Owned reports whether the entry at addr belongs to the device. An entry that can't be read does not.
func Owned(mem pci.Memory, addr uint64) bool {
	if v := mem.View(addr, SlotSize, pci.Read); v != nil {
		return dma.LoadBE32(v, ownDword)&1 != 0 // partner: the driver's store that hands the entry over
	}
	var b [SlotSize]byte
	return mem.ReadAt(b[:], addr) == nil && b[ownDword+3]&1 != 0
}

// Size is how many bytes the command's input and output area take.
func (s *Slot) Size() int { return len(s.In) + len(s.Out) }

// Read takes the command from the queue entry at addr and its mailboxes. All work is bounded by the
// lengths in the entry, which are bounded by limit and MaxLength; links are followed only as far as a
// length reaches and as long as block numbers count up.
func (s *Slot) Read(mem pci.Memory, addr uint64, limit int, signatures bool) *Error {
	s.addr = addr
	s.outputs, s.written = s.outputs[:0], 0
	s.In, s.Out = nil, nil
	if cap(s.in)+cap(s.out) > keepLength {
		s.in, s.out, s.outputs = nil, nil, nil
	}
	most := uint32(max(min(limit, MaxLength), Inline))
	e := s.scratch[:SlotSize]
	if err := mem.ReadAt(e, addr); err != nil {
		return refuse(prm.DeliveryFirmwareInternal, "queue entry: %v", err)
	}
	s.token = e[ownDword]
	if e[0] != slotType {
		return refuse(prm.DeliveryBadType, "command type %#x is not PCI", e[0])
	}
	if signatures && xor(e) != 0xff {
		return refuse(prm.DeliverySignatureError, "signature of the queue entry")
	}
	inLen := binary.BigEndian.Uint32(e[0x04:])
	outLen := binary.BigEndian.Uint32(e[0x38:])
	if inLen < 8 || inLen > most {
		return refuse(prm.DeliveryInputLength, "input length %d", inLen)
	}
	if outLen < 8 || outLen > most {
		return refuse(prm.DeliveryOutputLength, "output length %d", outLen)
	}
	inPtr := binary.BigEndian.Uint64(e[0x08:])
	outPtr := binary.BigEndian.Uint64(e[0x30:])
	if inLen > Inline && inPtr&mailboxAlign != 0 {
		return refuse(prm.DeliveryInputPointerAlignment, "input mailbox at %#x is not aligned", inPtr)
	}
	if outLen > Inline && outPtr&mailboxAlign != 0 {
		return refuse(prm.DeliveryOutputPointerAlignment, "output mailbox at %#x is not aligned", outPtr)
	}
	s.in = append(s.in[:0], e[0x10:0x20]...)
	if err := s.readInput(mem, inPtr, blocks(inLen), signatures); err != nil {
		return err
	}
	s.In = s.in[:inLen]
	if err := s.checkOutput(mem, outPtr, blocks(outLen)); err != nil {
		return err
	}
	if uint32(cap(s.out)) < outLen {
		s.out = make([]byte, outLen)
	}
	s.Out = s.out[:outLen]
	clear(s.Out)
	return nil
}

// blocks is how many mailboxes hold what does not fit into the entry.
func blocks(length uint32) int {
	if length <= Inline {
		return 0
	}
	return int((length - Inline + blockData - 1) / blockData)
}

func (s *Slot) readInput(mem pci.Memory, ptr uint64, n int, signatures bool) *Error {
	for i := range n {
		b := mem.View(ptr, blockSize, pci.Read)
		if b == nil {
			b = s.scratch[:]
			if err := mem.ReadAt(b, ptr); err != nil {
				return refuse(prm.DeliveryFirmwareInternal, "input mailbox %d: %v", i, err)
			}
		}
		if err := s.checkBlock(b, i, "input"); err != nil {
			return err
		}
		if signatures && (xor(b[blockData:blockSig]) != 0xff || xor(b) != 0xff) {
			return refuse(prm.DeliverySignatureError, "signature of input mailbox %d", i)
		}
		s.in = append(s.in, b[:blockData]...)
		ptr = binary.BigEndian.Uint64(b[blockNext:])
		if i+1 < n && ptr&mailboxAlign != 0 {
			return refuse(prm.DeliveryInputPointerAlignment, "input mailbox %d at %#x is not aligned", i+1, ptr)
		}
	}
	return nil
}

// checkOutput walks the output chain and remembers where it lies.
func (s *Slot) checkOutput(mem pci.Memory, ptr uint64, n int) *Error {
	for i := range n {
		b := mem.View(ptr, blockSize, pci.Read|pci.Write)
		if b == nil {
			b = s.scratch[:]
			if err := mem.ReadAt(b, ptr); err != nil {
				return refuse(prm.DeliveryFirmwareInternal, "output mailbox %d: %v", i, err)
			}
		}
		if err := s.checkBlock(b, i, "output"); err != nil {
			return err
		}
		s.outputs = append(s.outputs, ptr)
		ptr = binary.BigEndian.Uint64(b[blockNext:])
		if i+1 < n && ptr&mailboxAlign != 0 {
			return refuse(prm.DeliveryOutputPointerAlignment, "output mailbox %d at %#x is not aligned", i+1, ptr)
		}
	}
	return nil
}

func (s *Slot) checkBlock(b []byte, i int, chain string) *Error {
	if b[blockToken] != s.token {
		return refuse(prm.DeliveryTokenError, "token %#x in %s mailbox %d, %#x in the entry", b[blockToken], chain, i, s.token)
	}
	if n := binary.BigEndian.Uint32(b[blockNumber:]); n != uint32(i) {
		return refuse(prm.DeliveryBadBlockNumber, "block number %d in %s mailbox %d", n, chain, i)
	}
	return nil
}

// Write answers: the output, and then the dword that gives the entry back to the driver.
func (s *Slot) Write(mem pci.Memory, d prm.DeliveryStatus, signatures bool) error {
	if err := s.WriteOutput(mem, len(s.Out), signatures); err != nil {
		return err
	}
	return s.HandBack(mem, Last{Delivery: d}, signatures)
}

// WritePart fills the next n output mailboxes if more than n are left, and reports whether it did: Write
// does the rest. Their part of the output does not change any more.
func (s *Slot) WritePart(mem pci.Memory, n int, signatures bool) bool {
	if len(s.outputs)-s.written <= n {
		return false
	}
	for _, ptr := range s.outputs[s.written:][:n] {
		data := s.Out[Inline+s.written*blockData:][:blockData] // not the last mailbox: it is full
		if writeBlock(mem, ptr, data, signatures) != nil {
			return false // Write will meet the error, too
		}
		s.written++
	}
	return true
}

// WriteOutput writes the first limit bytes of the output to entry and mailboxes. Nothing is written
// beyond the output length, nor to the links, numbers and tokens of mailboxes. A mailbox that limit cuts
// is not signed.
func (s *Slot) WriteOutput(mem pci.Memory, limit int, signatures bool) error {
	out := s.Out[:min(limit, len(s.Out))]
	rest := out[min(Inline, len(out)):]
	whole := len(s.Out) - Inline // what rest would be without the limit
	if done := s.written * blockData; done > 0 {
		rest = rest[min(done, len(rest)):]
		whole -= done
	}
	for _, ptr := range s.outputs[s.written:] {
		n := min(len(rest), blockData)
		cut := n < min(whole, blockData)
		if n == 0 && cut {
			break
		}
		if err := writeBlock(mem, ptr, rest[:n], signatures && !cut); err != nil {
			return err
		}
		rest = rest[n:]
		whole -= n
	}
	inline := out[:min(Inline, len(out))]
	if v := mem.View(s.addr, SlotSize, pci.Read|pci.Write); v != nil {
		copy(v[0x20:], inline)
		return nil
	}
	return mem.WriteAt(inline, s.addr+0x20)
}

// Last is what the last dword of an entry says when the driver gets it back.
type Last struct {
	Delivery prm.DeliveryStatus
	// Token and Signature are what is wrong in these bytes, to be XORed in: 0 in an honest answer.
	Token, Signature byte
}

// HandBack gives the entry back to the driver with one atomic store of its last dword (partner: the
// driver's load of it).
func (s *Slot) HandBack(mem pci.Memory, l Last, signatures bool) error {
	wrong := uint32(l.Token)<<24 | uint32(l.Signature)<<16
	if v := mem.View(s.addr, SlotSize, pci.Read|pci.Write); v != nil {
		own := dma.LoadBE32(v, ownDword)&0xffffff00 | uint32(l.Delivery)<<1
		if signatures {
			own = sign(v, own)
		}
		dma.StoreBE32(v, ownDword, own^wrong)
		return nil
	}
	var e [SlotSize]byte
	if err := mem.ReadAt(e[:], s.addr); err != nil {
		return err
	}
	own := binary.BigEndian.Uint32(e[ownDword:])&0xffffff00 | uint32(l.Delivery)<<1
	if signatures {
		own = sign(e[:], own)
	}
	binary.BigEndian.PutUint32(e[ownDword:], own^wrong)
	return mem.WriteAt(e[ownDword:], s.addr+ownDword)
}

// Spoil XORs x into the byte at off of the last output mailbox. ok is false if there is none.
func (s *Slot) Spoil(mem pci.Memory, off int, x byte) (ok bool) {
	if len(s.outputs) == 0 {
		return false
	}
	var b [1]byte
	at := s.outputs[len(s.outputs)-1] + uint64(off)
	if mem.ReadAt(b[:], at) != nil {
		return false
	}
	b[0] ^= x
	return mem.WriteAt(b[:], at) == nil
}

// Bytes of a mailbox, for Spoil.
const (
	TokenByte     = blockToken
	SignatureByte = blockSig
)

// sign puts an entry's signature into its last dword.
func sign(e []byte, own uint32) uint32 {
	own &^= 0xff << 16
	x := xor(e[:ownDword]) ^ byte(own>>24) ^ byte(own>>8) ^ byte(own)
	return own | uint32(^x)<<16
}

// writeBlock writes the data and the signatures of an output mailbox: zero where signatures are off, as
// a real card does.
func writeBlock(mem pci.Memory, ptr uint64, data []byte, signatures bool) error {
	if v := mem.View(ptr, blockSize, pci.Read|pci.Write); v != nil {
		copy(v, data)
		v[blockCtrlSig], v[blockSig] = 0, 0
		if signatures {
			v[blockCtrlSig] = ^xor(v[blockData:blockCtrlSig])
			v[blockSig] = ^xor(v[:blockSig])
		}
		return nil
	}
	var b [blockSize]byte
	if err := mem.ReadAt(b[:], ptr); err != nil {
		return err
	}
	copy(b[:], data)
	b[blockCtrlSig], b[blockSig] = 0, 0
	if signatures {
		b[blockCtrlSig] = ^xor(b[blockData:blockCtrlSig])
		b[blockSig] = ^xor(b[:blockSig])
	}
	if err := mem.WriteAt(b[:blockData], ptr); err != nil {
		return err
	}
	return mem.WriteAt(b[blockCtrlSig:], ptr+blockCtrlSig)
}

func xor(b []byte) (x byte) {
	for _, v := range b {
		x ^= v
	}
	return x
}
