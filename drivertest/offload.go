package drivertest

import (
	"bytes"
	"encoding/binary"

	"cxkit/driver"
)

// kinds are one flow of every kind whose checksums the card knows.
func kinds(dst driver.MAC) map[string]Flow {
	base := Flow{Dst: dst, Src: peer(), SrcIP: 1, DstIP: 2, SrcPort: 1000, DstPort: 2000}
	m := map[string]Flow{}
	for _, udp := range []bool{false, true} {
		for _, v6 := range []bool{false, true} {
			for _, vlans := range [][]uint16{nil, {7}} {
				f := base
				f.UDP, f.V6, f.VLANs = udp, v6, vlans
				name := "TCP"
				if udp {
					name = "UDP"
				}
				if v6 {
					name += "6"
				}
				if vlans != nil {
					name += "vlan"
				}
				m[name] = f
			}
		}
	}
	return m
}

func offloadTests() []Test {
	return []Test{
		{Name: "FlagsRightChecksums", Run: func(e *Env) {
			for name, f := range kinds(e.NIC.MAC()) {
				for _, n := range []int{0, 1, 63, 700, 1400} {
					e.Send(f.Packet(n, 9))
					e.ReceiveEach(0, 1, func(p *driver.Packet) {
						if !p.Rx.ChecksumOK() {
							e.Errorf("%s with %d bytes: flags %#x", name, n, p.Rx)
						}
						wantL3 := driver.L3IPv4
						if f.V6 {
							wantL3 = driver.L3IPv6
						}
						if p.Rx.L3() != wantL3 || (p.Rx.L4() == driver.L4UDP) != f.UDP || p.Rx.L4() == driver.L4None {
							e.Errorf("%s: headers found: %v, %v", name, p.Rx.L3(), p.Rx.L4())
						}
					})
				}
			}
		}},
		{Name: "DeliversAndFlagsBadChecksums", Run: func(e *Env) {
			for name, f := range kinds(e.NIC.MAC()) {
				bad := f.Packet(100, 9)
				bad[len(bad)-1] ^= 0x40
				e.Send(bad)
				e.ReceiveEach(0, 1, func(p *driver.Packet) {
					if p.Rx.L4OK() || !bytes.Equal(p.Data, bad) {
						e.Errorf("%s: a bad transport checksum: flags %#x", name, p.Rx)
					}
				})
				if f.V6 {
					continue
				}
				bad = f.Packet(100, 9)
				bad[14+4*len(f.VLANs)+8] ^= 1 // TTL
				e.Send(bad)
				e.ReceiveEach(0, 1, func(p *driver.Packet) {
					if p.Rx.L3OK() || !bytes.Equal(p.Data, bad) {
						e.Errorf("%s: a bad header checksum: flags %#x", name, p.Rx)
					}
				})
			}
		}},
		{Name: "ReportsTheCompleteChecksum", Run: func(e *Env) {
			for name, f := range kinds(e.NIC.MAC()) {
				frame := f.Packet(333, 4)
				e.Send(frame)
				e.ReceiveEach(0, 1, func(p *driver.Packet) {
					// Tags left in the frame may or may not be covered, as cap cqe_checksum_full says.
					if want, alt := sum(frame[14:]), sum(frame[14+4*len(f.VLANs):]); !sameSum(p.Checksum, want) && !sameSum(p.Checksum, alt) {
						e.Errorf("%s: checksum %#04x, want %#04x or %#04x", name, p.Checksum, want, alt)
					}
				})
			}
		}},
		{Name: "InsertsChecksums", Run: func(e *Env) {
			for name, f := range kinds(peer()) {
				for _, n := range []int{20, 21, 1000} {
					want := f.Packet(n, 3)
					blank := bytes.Clone(want)
					binary.BigEndian.PutUint16(blank[f.l4Offset()+f.checksumOffset():], 0xdead)
					if !f.V6 {
						binary.BigEndian.PutUint16(blank[f.l4Offset()-10:], 0xbeef)
					}
					e.TransmitEach(0, [][]byte{blank}, func(p *driver.Packet) { p.TxFlags = driver.TxChecksum })
					got := e.Arrived(1)
					if !bytes.Equal(got[0], want) {
						e.Errorf("%s, %d bytes", name, n)
						e.Same(got, [][]byte{want})
					}
				}
			}
		}},
		{Name: "LeavesChecksumsAloneUnlessAsked", Run: func(e *Env) {
			f := Flow{Dst: peer(), Src: e.NIC.MAC()}.Packet(100, 1)
			f[len(f)-1] ^= 1
			e.Transmit(0, f)
			e.Same(e.Arrived(1), [][]byte{f})
		}},
		{Name: "InsertsVLANTags", Run: func(e *Env) {
			plain := Flow{Dst: peer(), Src: e.NIC.MAC(), UDP: true}
			tagged := plain
			tagged.VLANs = []uint16{0x6123}
			e.TransmitEach(0, [][]byte{plain.Packet(80, 1)}, func(p *driver.Packet) {
				p.TxFlags, p.VLAN = driver.TxInsertVLAN, 0x6123
			})
			e.Same(e.Arrived(1), [][]byte{tagged.Packet(80, 1)})
		}},
		{Name: "StripsVLANTags", Config: driver.Config{VLANStrip: true}, Run: func(e *Env) {
			plain := Flow{Dst: e.NIC.MAC(), Src: peer()}
			tagged := plain
			tagged.VLANs = []uint16{0xa123}
			e.Send(tagged.Packet(80, 1), plain.Packet(80, 2))
			var got [][]byte
			var stripped []bool
			e.ReceiveEach(0, 2, func(p *driver.Packet) {
				got = append(got, bytes.Clone(p.Data))
				stripped = append(stripped, p.Rx.VLANStripped())
				if p.Rx.VLANStripped() && p.VLAN != 0xa123 {
					e.Errorf("tag %#x", p.VLAN)
				}
				if !p.Rx.ChecksumOK() {
					e.Errorf("flags %#x", p.Rx)
				}
			})
			e.Same(got, [][]byte{plain.Packet(80, 1), plain.Packet(80, 2)})
			if !stripped[0] || stripped[1] {
				e.Errorf("stripped: %v", stripped)
			}
		}},
		{Name: "TimestampsNeverRunBackwards", Run: func(e *Env) {
			e.Background(func(e *Env) { e.Send(Frames(e.NIC.MAC(), 500, 60)...) })
			var last uint64
			e.ReceiveEach(0, 500, func(p *driver.Packet) {
				if p.Timestamp < last {
					e.Errorf("timestamp %d after %d", p.Timestamp, last)
				}
				last = p.Timestamp
			})
			if last == 0 {
				e.Error("no timestamps")
			}
		}},
	}
}

// sameSum compares ones-complement sums, in which 0 and 0xffff are the same number.
func sameSum(a, b uint16) bool { return a%0xffff == b%0xffff }
