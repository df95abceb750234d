package driver

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
)

// MAC is an Ethernet address in wire order.
type MAC [6]byte

func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

func (m MAC) multicast() bool { return m[0]&1 != 0 }

// word is the address in the low 48 bits, as vport contexts list it.
func (m MAC) word() uint64 {
	var b [8]byte
	copy(b[2:], m[:])
	return binary.BigEndian.Uint64(b[:])
}

// randomMAC is an address that nobody else has, most likely: unicast and locally administered.
func randomMAC() (m MAC) {
	rand.Read(m[:]) // never fails
	m[0] = m[0]&^1 | 2
	return m
}
