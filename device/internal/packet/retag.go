package packet

import "encoding/binary"

// Retag appends to dst the frame with at most pops of its VLAN tags taken away, outer ones first, and tags
// (Ethertype and TCI each) put in front of what is left, each in front of those before.
func Retag(dst, frame []byte, pops int, tags []uint32) []byte {
	at := addressLen
	for ; pops > 0 && len(frame) >= at+TagLen+2; pops-- {
		if t := binary.BigEndian.Uint16(frame[at:]); t != TypeCVID && t != TypeSVID {
			break
		}
		at += TagLen
	}
	dst = append(dst, frame[:addressLen]...)
	for i := len(tags) - 1; i >= 0; i-- {
		dst = binary.BigEndian.AppendUint32(dst, tags[i])
	}
	return append(dst, frame[at:]...)
}
