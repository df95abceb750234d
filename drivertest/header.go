package drivertest

import (
	"bytes"
	"encoding/binary"

	"cxkit/driver"
)

// What the card finds in headers, and what it hashes.
func headerTests() []Test {
	return []Test{
		{Name: "TellsHeadersApart", Run: tellsHeadersApart},
		{Name: "FlagsFragmentsAndOptions", Run: flagsFragments},
		{Name: "HashesByTheConfiguredKey", Config: driver.Config{RSS: driver.RSS{Asymmetric: true, Key: testKey()}}, Run: func(e *Env) {
			hashesAre(e, testKey(), true, true)
		}},
		{Name: "HashesAddressesOnly", Config: driver.Config{RSS: driver.RSS{Asymmetric: true, AddressesOnly: true}}, Run: func(e *Env) {
			hashesAre(e, driver.DefaultRSSKey(), false, true)
		}},
		{Name: "HashesBothDirectionsAlike", Config: driver.Config{RSS: driver.RSS{Key: testKey()}}, Run: func(e *Env) {
			hashesAre(e, testKey(), true, false)
		}},
		{Name: "AddressesOnlyKeepsPortsTogether", Config: driver.Config{Queues: 4, RSS: driver.RSS{AddressesOnly: true}}, Run: func(e *Env) {
			used := map[int]bool{}
			for ip := range 16 {
				first := -1
				for port := range 6 {
					f := Flow{Dst: e.NIC.MAC(), Src: peer(), SrcIP: byte(ip), DstIP: 9, SrcPort: uint16(port * 11), DstPort: 80}.Packet(40, 1)
					e.Send(f)
					q := e.whichQueue(f)
					if first < 0 {
						first = q
					}
					if q != first {
						e.Fatalf("port %d of address %d is on queue %d, others on %d", port, ip, q, first)
					}
				}
				used[first] = true
			}
			if len(used) < 2 {
				e.Error("all addresses are on one queue")
			}
		}},
	}
}

func testKey() (key [40]byte) {
	for i := range key {
		key[i] = byte(i*37 + 11)
	}
	return key
}

// toeplitz is the hash bit by bit (Microsoft, "RSS hashing functions").
func toeplitz(key [40]byte, input []byte) (hash uint32) {
	for i := range len(input) * 8 {
		if input[i/8]>>(7-i%8)&1 == 0 {
			continue
		}
		for b := range 32 {
			if at := i + b; key[at/8]>>(7-at%8)&1 != 0 {
				hash ^= 1 << (31 - b)
			}
		}
	}
	return hash
}

// hashesAre compares the card's hashes with toeplitz. Without asymmetric, the card XORs source with
// destination and hashes that; both directions are then alike, which is all that is asked here.
func hashesAre(e *Env, key [40]byte, ports, asymmetric bool) {
	e.Helper()
	for name, f := range kinds(e.NIC.MAC()) {
		f.SrcIP, f.DstIP, f.SrcPort, f.DstPort = 77, 88, 1234, 443
		there, back := f, f
		there.Dst, back.Dst = e.NIC.MAC(), e.NIC.MAC()
		frame := there.Packet(50, 1)
		l3, size := 14+4*len(f.VLANs)+12, 4
		if f.V6 {
			l3, size = 14+4*len(f.VLANs)+8, 16
		}
		input := bytes.Clone(frame[l3 : l3+2*size])
		if ports {
			input = append(input, frame[f.l4Offset():f.l4Offset()+4]...)
		}
		turned := bytes.Clone(frame)
		copy(turned[l3:], frame[l3+size:l3+2*size])
		copy(turned[l3+size:], frame[l3:l3+size])
		copy(turned[f.l4Offset():], frame[f.l4Offset()+2:f.l4Offset()+4])
		copy(turned[f.l4Offset()+2:], frame[f.l4Offset():f.l4Offset()+2])
		e.Send(frame, turned)
		var hashes []uint32
		e.ReceiveEach(0, 2, func(p *driver.Packet) {
			hashes = append(hashes, p.RSSHash)
			if (p.HashType.L4() != driver.L4None) != ports || p.HashType.L3() == driver.L3None {
				e.Errorf("%s: hashed over %v, %v", name, p.HashType.L3(), p.HashType.L4())
			}
		})
		switch want := toeplitz(key, input); {
		case asymmetric && hashes[0] != want:
			e.Errorf("%s: hash %#08x, want %#08x", name, hashes[0], want)
		case asymmetric && hashes[1] == hashes[0]:
			e.Errorf("%s: both directions have hash %#08x", name, hashes[0])
		case !asymmetric && hashes[1] != hashes[0]:
			e.Errorf("%s: the directions have hashes %#08x and %#08x", name, hashes[0], hashes[1])
		}
	}
}

// received sends one frame and shows the packet.
func (e *Env) received(frame []byte, f func(p *driver.Packet)) {
	e.Helper()
	e.Send(frame)
	e.ReceiveEach(0, 1, func(p *driver.Packet) {
		e.Same([][]byte{p.Data}, [][]byte{frame})
		f(p)
	})
}

func tellsHeadersApart(e *Env) {
	tcp := func(flags byte, n int) []byte {
		f := Flow{Dst: e.NIC.MAC(), Src: peer(), SrcPort: 1, DstPort: 2}
		b := f.Packet(n, 1)
		b[f.l4Offset()+13] = flags
		return b
	}
	udp := Flow{Dst: e.NIC.MAC(), Src: peer(), UDP: true, V6: true}.Packet(30, 1)
	icmp := Flow{Dst: e.NIC.MAC(), Src: peer(), UDP: true}.Packet(30, 1)
	icmp[14+9] = 1
	for name, c := range map[string]struct {
		frame []byte
		l3    driver.L3Type
		l4    driver.L4Type
	}{
		"SYN":           {tcp(0x02, 10), driver.L3IPv4, driver.L4TCP},
		"ACK":           {tcp(0x10, 0), driver.L3IPv4, driver.L4TCPAck},
		"ACK with data": {tcp(0x10, 20), driver.L3IPv4, driver.L4TCPAckData},
		"UDP over IPv6": {udp, driver.L3IPv6, driver.L4UDP},
		"ICMP":          {icmp, driver.L3IPv4, driver.L4None},
		"no IP":         {Frame(e.NIC.MAC(), 60, 1), driver.L3None, driver.L4None},
	} {
		// A SYN or ACK without data is shorter than a wire allows.
		frame := append(c.frame, make([]byte, max(0, 60-len(c.frame)))...)
		e.received(frame, func(p *driver.Packet) {
			if p.Rx.L3() != c.l3 || p.Rx.L4() != c.l4 {
				e.Errorf("%s: %v, %v", name, p.Rx.L3(), p.Rx.L4())
			}
		})
	}
}

func flagsFragments(e *Env) {
	plain := Flow{Dst: e.NIC.MAC(), Src: peer(), UDP: true}.Packet(100, 1)
	fragment := bytes.Clone(plain)
	fragment[14+6] = 0x20 // more fragments
	fragment[14+10], fragment[14+11] = 0, 0
	binary.BigEndian.PutUint16(fragment[14+10:], ^sum(fragment[14:34]))

	options := bytes.Clone(plain[:34])
	options = append(append(options, 1, 1, 1, 0), plain[34:]...) // no-operations, end of list
	options[14] = 0x46
	binary.BigEndian.PutUint16(options[14+2:], uint16(len(options)-14))
	options[14+10], options[14+11] = 0, 0
	binary.BigEndian.PutUint16(options[14+10:], ^sum(options[14:38]))

	e.received(plain, func(p *driver.Packet) {
		if p.Rx.Fragment() || p.Rx.IPOptions() || !p.Rx.ChecksumOK() {
			e.Errorf("plain: flags %#x", p.Rx)
		}
	})
	e.received(fragment, func(p *driver.Packet) {
		if !p.Rx.Fragment() || !p.Rx.L3OK() || p.Rx.L4OK() {
			e.Errorf("fragment: flags %#x", p.Rx)
		}
	})
	e.received(options, func(p *driver.Packet) {
		if p.Rx.Fragment() || !p.Rx.IPOptions() || !p.Rx.ChecksumOK() {
			e.Errorf("options: flags %#x", p.Rx)
		}
	})
}
