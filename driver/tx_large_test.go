package driver

import (
	"bytes"
	"testing"

	"cxkit/driver/internal/queue"
	"cxkit/prm"
)

// described is the frame that a send WQE describes: what is inlined and what its data segments name.
func (w *writer) described(t *testing.T, wqe []byte) (frame []byte, inline int) {
	t.Helper()
	eth := (*prm.WQEEthSeg)(wqe[0x10:])
	if !eth.InsertVLAN() {
		inline = int(eth.InlineHdrSz())
	}
	frame = append(frame, wqe[0x1e:0x1e+inline]...)
	at := 0x20 + (max(inline-2, 0)+15)&^15
	for end := int((*prm.WQECtrlSeg)(wqe).DS()) * 16; at < end; at += 16 {
		seg := (*prm.WQEDataSeg)(wqe[at:])
		off := seg.Addr() - w.pool.Bus
		frame = append(frame, w.pool.Bytes[off:off+uint64(seg.ByteCount())]...)
	}
	return frame, inline
}

// headersOf are frames and where their Ethernet, IP and transport headers end.
func headersOf() []struct {
	name       string
	frame      []byte
	l2, l3, l4 int
} {
	body := bytes.Repeat([]byte{0x5a}, 80)
	ether := func(tags ...byte) []byte {
		f := append([]byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2}, tags...)
		return f
	}
	ipv4 := func(protocol byte) []byte {
		return []byte{0x45, 0, 0, 120, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2}
	}
	ipv6 := append([]byte{0x60, 0, 0, 0, 0, 100, 17, 64}, make([]byte, 32)...)
	tcp := make([]byte, 20)
	tcp[12] = 0x50
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	return []struct {
		name       string
		frame      []byte
		l2, l3, l4 int
	}{
		{"TCP", join(ether(8, 0), ipv4(6), tcp, body), 14, 34, 54},
		{"UDP over IPv6, tagged", join(ether(0x81, 0, 0, 5, 0x86, 0xdd), ipv6, make([]byte, 8), body), 18, 58, 66},
		{"two tags", join(ether(0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 8, 0), ipv4(17), make([]byte, 8), body), 22, 42, 50},
		{"ICMP", join(ether(8, 0), ipv4(1), body), 14, 34, 34},
		{"no IP", join(ether(0x88, 0xb5), body), 14, 14, 14},
	}
}

func TestEveryInlineModePutsItsHeadersIntoTheWQE(t *testing.T) {
	for _, mode := range []prm.InlineMode{prm.InlineModeL2, prm.InlineModeIP, prm.InlineModeTCPUDP} {
		for _, h := range headersOf() {
			for _, tag := range []bool{false, true} {
				w := newWriter(t, small())
				w.tx.can.headers, w.tx.sq.Inline = mode, queue.InlineL2
				w.tx.sq.Named(testSQ)
				var pkts [1]Packet
				w.tx.Get(pkts[:])
				pkts[0].Data = append(pkts[0].Data, h.frame...)
				want, least := h.frame, map[prm.InlineMode]int{prm.InlineModeL2: h.l2, prm.InlineModeIP: h.l3, prm.InlineModeTCPUDP: h.l4}[mode]
				if mode == prm.InlineModeL2 {
					least = min(least, int(queue.InlineL2)) // an Ethernet header with one tag
				}
				if tag {
					pkts[0].TxFlags, pkts[0].VLAN = TxInsertVLAN, 0x6123
					want = append(append(bytes.Clone(h.frame[:12]), 0x81, 0, 0x61, 0x23), h.frame[12:]...)
					least += vlanTag
					if mode == prm.InlineModeL2 {
						least = int(queue.InlineL2)
					}
				}
				if n := w.tx.Send(pkts[:]); n != 1 || w.tx.Stats().Packets != 1 {
					t.Fatalf("%v, %s: sent %d, %+v", mode, h.name, n, w.tx.Stats())
				}
				got, inline := w.described(t, w.sq)
				if !bytes.Equal(got, want) || inline < least {
					t.Errorf("%v, %s, tag %v: %d bytes inlined of at least %d\n%x\nwant\n%x", mode, h.name, tag, inline, least, got, want)
				}
				w.complete()
				w.tx.Reap()
				w.census(t)
			}
		}
	}
}

// TestLargeSendsDescribeTheirFrame looks at the WQEs of large sends in parts, over wraps of the ring.
func TestLargeSendsDescribeTheirFrame(t *testing.T) {
	c := small()
	c.LargeSend = true
	w := newWriter(t, c)
	frame := headersOf()[0].frame
	for round := range 50 {
		pkts := make([]Packet, 3)
		if n := w.tx.Get(pkts); n != 3 {
			t.Fatalf("%d buffers", n)
		}
		cut := []int{60 + round%30, 90 + round%40, len(frame)}
		from := 0
		for i, to := range cut {
			pkts[i].Data = append(pkts[i].Data, frame[from:to]...)
			from = to
			pkts[i].TxFlags = TxMore
		}
		pkts[0].Segment, pkts[2].TxFlags = 20, 0
		for w.tx.Send(pkts) == 0 {
			w.complete()
		}
		slot := (w.tx.sq.Posted - 3) & w.tx.sq.Mask // 54 bytes inlined and three pieces are ten units
		wqe := w.sq[slot*queue.WQEBBSize:]
		got, inline := w.described(t, wqe)
		if c := (*prm.WQECtrlSeg)(wqe); c.Opcode() != prm.WQELSO || !bytes.Equal(got, frame) || inline != 54 || (*prm.WQEEthSeg)(wqe[0x10:]).MSS() != 20 {
			t.Fatalf("round %d: opcode %v, %d inlined\n%x\nwant\n%x", round, c.Opcode(), inline, got, frame)
		}
		w.complete()
		w.tx.Reap()
		if b := w.census(t); b.Sending != 0 {
			t.Fatalf("round %d: books %+v", round, b)
		}
	}
}

// TestFramesWhoseHeadersAreCutOffAreDropped: the driver reads nothing behind a frame's end.
func TestFramesWhoseHeadersAreCutOffAreDropped(t *testing.T) {
	c := small()
	c.LargeSend, c.Tunnels = true, true
	w := newWriter(t, c)
	sent := uint64(0)
	for _, h := range headersOf() {
		for n := ethernetHeader; n < len(h.frame); n++ {
			for _, flags := range []TxFlags{0, TxInnerChecksum} {
				var pkts [1]Packet
				w.tx.Get(pkts[:])
				pkts[0].Data = append(pkts[0].Data, h.frame[:n]...)
				pkts[0].Segment, pkts[0].TxFlags = 10, flags
				before := w.tx.Stats().LargePackets
				if w.tx.Send(pkts[:]) != 1 {
					t.Fatal("not taken")
				}
				if whole := n > h.l4 && h.l4 > h.l3 && flags == 0; (w.tx.Stats().LargePackets > before) != whole {
					t.Errorf("%s cut to %d bytes, flags %#x: sent %v", h.name, n, flags, !whole)
				} else if whole {
					sent++
				}
				w.complete()
				w.tx.Reap()
			}
		}
	}
	if sent == 0 {
		t.Error("nothing was sent")
	}
}
