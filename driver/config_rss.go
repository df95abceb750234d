package driver

import (
	"fmt"

	"cxkit/prm"
)

// RSS is receive side scaling: the Toeplitz hash of header fields picks the queue. All queues share the
// hash results of a flow, so that one flow stays on one queue in order.
type RSS struct {
	// AddressesOnly hashes TCP and UDP over IP addresses without ports.
	AddressesOnly bool
	// Asymmetric gives the two directions of a connection different hashes, as Microsoft's definition
	// does. By default both directions go to one queue (Linux and the card: Symmetric-OR-XOR).
	Asymmetric bool
	// Fields are what is hashed; 0 means all. Ports count for TCP and UDP only. A hash that is not
	// Asymmetric takes both ends' addresses and both ends' ports or neither.
	Fields HashFields
	// Key is the Toeplitz key; all zero means DefaultRSSKey.
	Key [40]byte
}

// HashFields are header fields that a hash covers.
type HashFields uint8

const (
	HashSrcIP HashFields = 1 << iota
	HashDstIP
	HashSrcPort
	HashDstPort

	hashIPs   = HashSrcIP | HashDstIP
	hashPorts = HashSrcPort | HashDstPort
)

// check checks the choice of fields.
func (r *RSS) check() error {
	half := func(f HashFields) bool { return r.Fields&f != 0 && r.Fields&f != f }
	switch {
	case r.Fields&^(hashIPs|hashPorts) != 0:
		return fmt.Errorf("RSS: hash fields %#x: unknown", r.Fields)
	case !r.Asymmetric && (half(hashIPs) || half(hashPorts)):
		return fmt.Errorf("RSS: fields %#x of one end only: the hash must be Asymmetric", r.Fields)
	case r.AddressesOnly && r.Fields != 0 && r.Fields&hashIPs == 0:
		return fmt.Errorf("RSS: AddressesOnly with fields %#x leaves nothing to hash", r.Fields)
	}
	return nil
}

// selected is the fields of a kind of traffic, with ports or without, as the card knows them: the bits are
// the same.
func (r *RSS) selected(ports bool) uint32 {
	f := r.Fields
	if f == 0 {
		f = hashIPs | hashPorts
	}
	if !ports || r.AddressesOnly {
		f &^= hashPorts
	}
	return uint32(prm.RXHashField(f))
}

// DefaultRSSKey is the key of the Toeplitz verification suite, which published test vectors use
// (Microsoft, "Verifying the RSS hash calculation").
func DefaultRSSKey() [40]byte {
	return [40]byte{
		0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
		0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
		0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
	}
}
