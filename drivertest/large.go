package drivertest

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"cxkit/driver"
)

// Large sends, frames in parts, and what is inside tunnels.
func largeTests() []Test {
	large := driver.Offloads{LargeSend: true}
	both := driver.Offloads{LargeSend: true, Tunnels: true}
	return []Test{
		{Name: "CutsLargeSends", Config: driver.Config{BufferSize: 1 << 16, Buffers: 256, RxRing: 64, TxRing: 64, Offloads: large}, Run: cutsLargeSends},
		{Name: "CutsLargeSendsOnCardsThatWantHeaders", Options: Options{Card: "cx4lx"}, Config: driver.Config{BufferSize: 1 << 16, Buffers: 256, RxRing: 64, TxRing: 64, Offloads: large}, Run: cutsLargeSends},
		{Name: "SendsPartsOnCardsThatWantHeaders", Options: Options{Card: "cx4lx"}, Config: driver.Config{TxRing: 8, RxRing: 8, Buffers: 128}, Run: sendsParts},
		{Name: "SendsOnCardsThatWantHeaders", Options: Options{Card: "cx4lx"}, Run: func(e *Env) {
			var frames, want [][]byte
			for n := 14; n <= 1514; n += 5 {
				frames = append(frames, Frame(peer(), n, uint32(n)))
			}
			want = append(want, padAll(bytesClone(frames))...)
			sent := make(chan struct{})
			e.Background(func(e *Env) {
				defer close(sent)
				e.Transmit(0, frames...)
				e.Flush(0)
			})
			e.Same(e.Arrived(len(want)), want)
			<-sent
			plain := Flow{Dst: peer(), Src: e.NIC.MAC(), UDP: true}
			tagged := plain
			tagged.VLANs = []uint16{0x6123}
			blank := plain.Packet(80, 1)
			blank[14+10] ^= 0xff
			e.TransmitEach(0, [][]byte{blank}, func(p *driver.Packet) {
				p.TxFlags, p.VLAN = driver.TxInsertVLAN|driver.TxChecksum, 0x6123
			})
			e.Same(e.Arrived(1), [][]byte{tagged.Packet(80, 1)})
		}},
		{Name: "CutsLargeSendsInSmallRings", Config: driver.Config{BufferSize: 1 << 13, Buffers: 64, RxRing: 8, TxRing: 8, Offloads: large}, Run: func(e *Env) {
			f := Flow{Dst: peer(), Src: e.NIC.MAC(), SrcPort: 1, DstPort: 2}
			var frames, want [][]byte
			for i := range 200 {
				whole := f.Packet(100+37*i, uint32(i))
				frames = append(frames, whole)
				want = append(want, padAll(f.Segments(whole, 500))...)
			}
			e.Background(func(e *Env) {
				e.TransmitEach(0, frames, func(p *driver.Packet) { p.Segment = 500 })
				e.Flush(0)
			})
			e.Same(e.Arrived(len(want)), want)
		}},
		{Name: "CutsLargeSendsInParts", Config: driver.Config{Buffers: 512, RxRing: 64, TxRing: 64, Offloads: large}, Run: cutsParts},
		{Name: "SendsFramesInParts", Config: driver.Config{TxRing: 8, RxRing: 8, Buffers: 128}, Run: sendsParts},
		{Name: "CutsLargeSendsInTunnels", Config: driver.Config{BufferSize: 1 << 14, Buffers: 128, RxRing: 64, TxRing: 64, Offloads: both}, Run: cutsTunnels},
		{Name: "InsertsChecksumsInTunnels", Config: driver.Config{Offloads: driver.Offloads{Tunnels: true}}, Run: func(e *Env) {
			for _, t := range tunnels() {
				want := t.wrap(Flow{Dst: peer(), Src: e.NIC.MAC(), UDP: true, SrcIP: 1, DstIP: 2}.Packet(200, 1))
				blank := bytes.Clone(want)
				at := t.inner() + 14 + ipv4Length
				binary.BigEndian.PutUint16(blank[at-10:], 0xdead)
				binary.BigEndian.PutUint16(blank[at+6:], 0xbeef)
				e.TransmitEach(0, [][]byte{blank}, func(p *driver.Packet) { p.TxFlags = driver.TxInnerChecksum })
				e.Same(e.Arrived(1), [][]byte{want})
			}
		}},
		{Name: "TellsOfFramesInTunnels", Config: driver.Config{Offloads: driver.Offloads{Tunnels: true}}, Run: func(e *Env) {
			for _, t := range tunnels() {
				good := t.wrap(Flow{Dst: peer(), Src: peer()}.Packet(100, 1))
				copy(good, macBytes(e.NIC.MAC()))
				e.received(good, func(p *driver.Packet) {
					if !p.Tunnel.Tunnelled() || p.Tunnel.OuterIPv6() || !p.Rx.ChecksumOK() || p.Rx.L4() != driver.L4TCPAckData {
						e.Errorf("%s: tunnel %#x, flags %#x", t.name, p.Tunnel, p.Rx)
					}
				})
				bad := bytes.Clone(good)
				bad[len(bad)-1] ^= 1
				e.received(bad, func(p *driver.Packet) {
					if !p.Tunnel.Tunnelled() || p.Rx.L4OK() {
						e.Errorf("%s: a bad inner checksum: tunnel %#x, flags %#x", t.name, p.Tunnel, p.Rx)
					}
				})
			}
		}},
		{Name: "SpreadsTunnelsByTheirOuterPorts", Config: driver.Config{Queues: 4, Offloads: driver.Offloads{Tunnels: true}}, Run: func(e *Env) {
			used := map[int]bool{}
			for port := range 32 {
				t := tunnels()[0]
				t.outer.Dst, t.outer.SrcPort = e.NIC.MAC(), uint16(50000+port*13)
				frame := t.wrap(Flow{Dst: peer(), Src: peer()}.Packet(100, 1))
				e.Send(frame)
				used[e.whichQueue(frame)] = true
			}
			if len(used) != 4 {
				e.Errorf("32 VXLAN flows are on %d queues", len(used))
			}
		}},
		{Name: "DropsLargeSendsThatItCannotCut", Config: driver.Config{Offloads: large}, Run: func(e *Env) {
			f := Flow{Dst: peer(), Src: e.NIC.MAC()}
			arp := Frame(peer(), 200, 1)
			e.TransmitEach(0, [][]byte{arp}, func(p *driver.Packet) { p.Segment = 50 })                                  // no TCP
			e.TransmitEach(0, [][]byte{f.Packet(0, 1)}, func(p *driver.Packet) { p.Segment = 50 })                       // no payload
			e.TransmitEach(0, [][]byte{f.Packet(1900, 1)}, func(p *driver.Packet) { p.Segment = 1800 })                  // beyond the MTU
			e.TransmitEach(0, [][]byte{f.Packet(9, 1)}, func(p *driver.Packet) { p.TxFlags = driver.TxMore })            // an end is missing
			e.TransmitEach(0, [][]byte{f.Packet(9, 1)}, func(p *driver.Packet) { p.TxFlags = driver.TxInnerL4Checksum }) // left out
			good := f.Packet(100, 7)
			e.Transmit(0, good)
			e.Same(e.Arrived(1), [][]byte{good})
			e.Flush(0)
			if n := e.NIC.TxQueue(0).Stats().Dropped; n != 5 {
				e.Errorf("%d dropped, want 5", n)
			}
		}},
	}
}

// bytesClone copies frames.
func bytesClone(frames [][]byte) [][]byte {
	c := make([][]byte, len(frames))
	for i := range frames {
		c[i] = bytes.Clone(frames[i])
	}
	return c
}

// padAll lengthens frames to what a wire wants.
func padAll(frames [][]byte) [][]byte {
	for i, f := range frames {
		frames[i] = append(f, make([]byte, max(0, 60-len(f)))...)
	}
	return frames
}

func macBytes(m driver.MAC) []byte { return m[:] }

// Segments cuts a frame of the flow as RFC 9293 and Linux's GSO do: lengths, IP identification, sequence
// number, FIN and PSH on the last one only, checksums.
func (f Flow) Segments(frame []byte, mss int) (out [][]byte) {
	l3, l4 := 14+4*len(f.VLANs), f.l4Offset()
	header := l4 + 20
	if f.UDP {
		header = l4 + 8
	}
	payload := frame[header:]
	be := binary.BigEndian
	for k := 0; k*mss < len(payload); k++ {
		part := payload[k*mss : min(len(payload), (k+1)*mss)]
		s := append(bytes.Clone(frame[:header]), part...)
		if f.V6 {
			be.PutUint16(s[l3+4:], uint16(len(s)-l3-ipv6Length))
		} else {
			be.PutUint16(s[l3+2:], uint16(len(s)-l3))
			be.PutUint16(s[l3+4:], be.Uint16(frame[l3+4:])+uint16(k))
			be.PutUint16(s[l3+10:], 0)
			be.PutUint16(s[l3+10:], ^sum(s[l3:l3+ipv4Length]))
		}
		if f.UDP {
			be.PutUint16(s[l4+4:], uint16(len(s)-l4))
		} else {
			be.PutUint32(s[l4+4:], be.Uint32(frame[l4+4:])+uint32(k*mss))
			if (k+1)*mss < len(payload) {
				s[l4+13] &^= 0x09
			}
		}
		f.fixChecksum(s, l3, l4)
		out = append(out, s)
	}
	return out
}

// fixChecksum writes the transport checksum of a frame.
func (f Flow) fixChecksum(s []byte, l3, l4 int) {
	addresses, protocol := s[l3+12:l3+20], byte(protoTCP)
	if f.V6 {
		addresses = s[l3+8 : l3+40]
	}
	if f.UDP {
		protocol = protoUDP
	}
	binary.BigEndian.PutUint16(s[l4+f.checksumOffset():], 0)
	pseudo := binary.BigEndian.AppendUint32(bytes.Clone(addresses), uint32(len(s)-l4))
	pseudo = append(append(pseudo, 0, 0, 0, protocol), s[l4:]...)
	check := ^sum(pseudo)
	if f.UDP && check == 0 {
		check = 0xffff
	}
	binary.BigEndian.PutUint16(s[l4+f.checksumOffset():], check)
}

func cutsLargeSends(e *Env) {
	type cut struct {
		what string
		mss  int
	}
	var cuts []cut
	var frames, want [][]byte
	var of []int // per segment: which cut
	for name, f := range kinds(peer()) {
		for _, c := range []struct{ payload, mss int }{{1, 1}, {1000, 1000}, {1001, 1000}, {60000, 1400}, {5000, 100}, {3, 1}} {
			frames = append(frames, f.Packet(c.payload, 0xfffffff0))
			for _, s := range padAll(f.Segments(frames[len(frames)-1], c.mss)) {
				want, of = append(want, s), append(of, len(cuts))
			}
			cuts = append(cuts, cut{fmt.Sprintf("%s: %d bytes by %d", name, c.payload, c.mss), c.mss})
		}
	}
	done := make(chan struct{})
	e.Background(func(e *Env) {
		defer close(done)
		i := 0
		e.TransmitEach(0, frames, func(p *driver.Packet) { p.Segment = uint16(cuts[i].mss); i++ })
	})
	for i, got := range e.Arrived(len(want)) {
		if !bytes.Equal(got, want[i]) {
			e.Errorf("%s", cuts[of[i]].what)
			e.Same([][]byte{got}, want[i:i+1])
			break
		}
	}
	<-done
	// The card's tag goes into every segment.
	f := Flow{Dst: peer(), Src: e.NIC.MAC()}
	tagged := f
	tagged.VLANs = []uint16{0x6005}
	e.TransmitEach(0, [][]byte{f.Packet(5000, 3)}, func(p *driver.Packet) {
		p.Segment, p.TxFlags, p.VLAN = 1000, driver.TxInsertVLAN, 0x6005
	})
	e.Same(e.Arrived(5), tagged.Segments(tagged.Packet(5000, 3), 1000))
	s := e.NIC.TxQueue(0).Stats()
	if s.LargePackets == 0 || s.LargeBytes == 0 || s.Packets <= s.LargePackets {
		e.Errorf("counters %+v", s)
	}
}

// parts copies a frame into packets of at most size bytes each, which belong together.
func (e *Env) parts(frame []byte, size int) []driver.Packet {
	e.Helper()
	pkts := make([]driver.Packet, (len(frame)+size-1)/size)
	if n := e.NIC.TxQueue(0).Get(pkts); n != len(pkts) {
		e.Fatalf("%d buffers of %d", n, len(pkts))
	}
	for i := range pkts {
		part := frame[i*size : min(len(frame), (i+1)*size)]
		pkts[i].Data = append(pkts[i].Data, part...)
		if i < len(pkts)-1 {
			pkts[i].TxFlags = driver.TxMore
		}
	}
	return pkts
}

func cutsParts(e *Env) {
	f := Flow{Dst: peer(), Src: e.NIC.MAC(), SrcPort: 5, DstPort: 6}
	lengths := []int{3000, 20_000, 60_000}
	e.Background(func(e *Env) {
		for _, n := range lengths {
			pkts := e.parts(f.Packet(n, 9), 2000)
			pkts[0].Segment = 1448
			e.SendPackets(0, pkts)
			e.Flush(0)
		}
	})
	for _, n := range lengths {
		want := f.Segments(f.Packet(n, 9), 1448)
		e.Same(e.Arrived(len(want)), want)
	}
}

func sendsParts(e *Env) {
	frame := Flow{Dst: peer(), Src: e.NIC.MAC()}.Packet(900, 1)
	var want [][]byte
	e.Background(func(e *Env) {
		for size := 100; size < 1000; size += 50 {
			pkts := e.parts(frame, size)
			e.SendPackets(0, append(pkts, e.parts(Frame(peer(), 70, uint32(size)), 100)...))
			e.Flush(0)
		}
	})
	for size := 100; size < 1000; size += 50 {
		want = append(want, frame, Frame(peer(), 70, uint32(size)))
	}
	e.Same(e.Arrived(len(want)), want)
}

// tunnel wraps frames.
type tunnel struct {
	name   string
	outer  Flow
	header []byte // behind the outer IP or UDP header
}

func tunnels() []tunnel {
	vxlan := Flow{Dst: peer(), Src: driver.MAC{2, 0, 0, 0, 0, 0x22}, UDP: true, SrcPort: 50000, DstPort: 4789, SrcIP: 9, DstIP: 8}
	gre := vxlan
	return []tunnel{
		{"VXLAN", vxlan, []byte{8, 0, 0, 0, 0, 0x12, 0x34, 0}},
		{"GRE", gre, []byte{0x20, 0, 0x65, 0x58, 0, 0, 0, 77}},
	}
}

// inner is where the inner frame begins.
func (t tunnel) inner() int {
	if t.name == "VXLAN" {
		return 14 + ipv4Length + 8 + len(t.header)
	}
	return 14 + ipv4Length + len(t.header)
}

// wrap puts a frame into the tunnel. A VXLAN's UDP header has no checksum.
func (t tunnel) wrap(frame []byte) []byte {
	b := t.outer.Packet(0, 0x0101)[:14+ipv4Length+8]
	if t.name != "VXLAN" {
		b = b[:14+ipv4Length]
		b[14+9] = 47
	} else {
		binary.BigEndian.PutUint16(b[14+ipv4Length+4:], uint16(8+len(t.header)+len(frame)))
		binary.BigEndian.PutUint16(b[14+ipv4Length+6:], 0)
	}
	b = append(append(b, t.header...), frame...)
	return fixOuter(b)
}

// fixOuter writes the outer IP header's length and checksum.
func fixOuter(b []byte) []byte {
	binary.BigEndian.PutUint16(b[14+2:], uint16(len(b)-14))
	binary.BigEndian.PutUint16(b[14+10:], 0)
	binary.BigEndian.PutUint16(b[14+10:], ^sum(b[14:14+ipv4Length]))
	return b
}

func cutsTunnels(e *Env) {
	for _, t := range tunnels() {
		for _, v6 := range []bool{false, true} {
			f := Flow{Dst: peer(), Src: e.NIC.MAC(), V6: v6, SrcPort: 1, DstPort: 2}
			whole := t.wrap(f.Packet(5000, 77))
			e.TransmitEach(0, [][]byte{whole}, func(p *driver.Packet) {
				p.Segment, p.TxFlags = 1200, driver.TxInnerChecksum
			})
			var want [][]byte
			for k, s := range f.Segments(f.Packet(5000, 77), 1200) {
				w := t.wrap(s)
				binary.BigEndian.PutUint16(w[14+4:], 0x0101+uint16(k))
				want = append(want, fixOuter(w))
			}
			got := e.Arrived(len(want))
			for i := range want {
				if !bytes.Equal(got[i], want[i]) {
					e.Errorf("%s", fmt.Sprint(t.name, " v6 ", v6, " segment ", i))
					e.Same(got[i:i+1], want[i:i+1])
					break
				}
			}
		}
	}
}

func packTests() []Test {
	pack := driver.Offloads{MultiPacket: true}
	return []Test{
		{Name: "PacksSmallSends", Config: driver.Config{Offloads: pack}, Run: func(e *Env) {
			want := Frames(peer(), 3000, 64)
			e.Background(func(e *Env) { e.Transmit(0, want...); e.Flush(0) })
			e.Same(e.Arrived(len(want)), want)
			if s := e.NIC.TxQueue(0).Stats(); s.MultiPackets < 2000 || s.MultiWQEs*4 > s.MultiPackets {
				e.Errorf("counters %+v", s)
			}
		}},
		{Name: "PacksInSmallRingsAndMixesOffloads", Config: driver.Config{TxRing: 8, RxRing: 8, Buffers: 256, Offloads: driver.Offloads{MultiPacket: true, LargeSend: true}}, Run: func(e *Env) {
			f := Flow{Dst: peer(), Src: e.NIC.MAC()}
			tagged := f
			tagged.VLANs = []uint16{9}
			var frames, want [][]byte
			for i := range 1000 {
				frames = append(frames, f.Packet(40+i%50, uint32(i)))
				switch i % 7 {
				case 3:
					want = append(want, tagged.Packet(40+i%50, uint32(i)))
				case 5:
					want = append(want, f.Segments(frames[i], 20)...)
				default:
					want = append(want, frames[i])
				}
			}
			padAll(want)
			e.Background(func(e *Env) {
				i := 0
				e.TransmitEach(0, frames, func(p *driver.Packet) {
					switch i % 7 {
					case 3:
						p.TxFlags, p.VLAN = driver.TxInsertVLAN, 9
					case 5:
						p.Segment = 20
					}
					i++
				})
				e.Flush(0)
			})
			e.Same(e.Arrived(len(want)), want)
		}},
	}
}
