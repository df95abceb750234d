package device

import (
	"bytes"
	"encoding/binary"
	"testing"

	"cxkit/prm"
)

// vxlanFrame puts a frame into a VXLAN tunnel over IPv4, without an outer UDP checksum.
func vxlanFrame(port uint16, vni uint32, inside []byte) []byte {
	f := udpFrame(8+len(inside), 0x0a000001, 0x0a000002, 0x1234, port)
	copy(f[42:], []byte{8, 0, 0, 0})
	binary.BigEndian.PutUint32(f[46:], vni<<8)
	copy(f[50:], inside)
	f[40], f[41] = 0, 0
	return f
}

// TestTunnelledFrames hashes and completes frames by what is in their tunnel, where the TIR says so.
func TestTunnelledFrames(t *testing.T) {
	b := newDataBench(t)
	q := b.newRQ(b.newCQ(6), 5, 2048)
	q.state(prm.QueueStateRST, prm.QueueStateRDY)
	var rqt prm.CreateRQTOut
	b.must(&prm.CreateRQTIn{Context: prm.RQTContext{RQTMaxSize: 1, RQTActualSize: 1}, RQNums: []uint32{q.n}}, &rqt)
	in := prm.CreateTIRIn{Context: prm.TIRContext{TransportDomain: b.td, DispType: prm.TIRDispIndirect, IndirectTable: rqt.RQTN,
		RXHashFn: prm.RXHashFnToeplitz, TunneledOffloadEn: true}}
	in.Context.RXHashFieldSelectorInner.SelectedFields = 15
	for i := range in.Context.RXHashToeplitzKey {
		in.Context.RXHashToeplitzKey[i] = byte(i*37 + 11)
	}
	var tir prm.CreateTIROut
	b.must(&in, &tir)
	in.Context.TunneledOffloadEn = false
	in.Context.RXHashFieldSelectorOuter.SelectedFields = 15
	var plainTIR prm.CreateTIROut
	b.must(&in, &plainTIR)

	inside := segmentOf(1, 0x10, part(100, 1))
	frame := vxlanFrame(4789, 5, inside)
	q.post(8)
	b.all(plainTIR.TIRN)
	b.receive(inside)
	want := q.cq.take()[0]
	b.receive(frame)
	if c := q.cq.take()[0]; c[0] != 0 || c[0x1d]>>4&7 != 2 {
		t.Errorf("a TIR without tunnels says %x", c[:0x20])
	}
	b.all(tir.TIRN)
	spoilt := bytes.Clone(frame)
	spoilt[len(spoilt)-1]++
	b.receive(frame, spoilt)
	got := q.cq.take()
	c := got[0]
	if c[0] != 1 || c.RSSHashResult() != want.RSSHashResult() || c[0x10] != want[0x10] || c[0x1d] != want[0x1d] || c[0x1c] != 7 {
		t.Errorf("tunnel:\n%x, that inside alone\n%x", c[:0x20], want[:0x20])
	}
	if c.Checksum() != refSum(frame[14:], 0) || !bytes.Equal(q.data(&c), frame) {
		t.Errorf("checksum %#x is not the frame's", c.Checksum())
	}
	if got[1][0x1c] != 3 {
		t.Errorf("checks of a spoilt segment: %#x", got[1][0x1c])
	}

	// Another port is a VXLAN port once it is added, and no more when it is deleted.
	other := vxlanFrame(9999, 5, inside)
	for _, on := range []bool{false, true, false} {
		b.receive(other)
		if c := q.cq.take()[0]; (c[0] == 1) != on {
			t.Errorf("port 9999: tunnelled %v, want %v", c[0] == 1, on)
		}
		if on {
			b.must(&prm.DeleteVXLANUDPDPortIn{VXLANUDPPort: 9999}, &prm.DeleteVXLANUDPDPortOut{})
		} else {
			b.must(&prm.AddVXLANUDPDPortIn{VXLANUDPPort: 9999}, &prm.AddVXLANUDPDPortOut{})
			b.must(&prm.AddVXLANUDPDPortIn{VXLANUDPPort: 9999}, &prm.AddVXLANUDPDPortOut{})
		}
	}
	b.refused(&prm.DeleteVXLANUDPDPortIn{VXLANUDPPort: 1}, &prm.DeleteVXLANUDPDPortOut{}, prm.StatusBadParameter, synVXLANPort)
	b.must(&prm.AddVXLANUDPDPortIn{VXLANUDPPort: 2}, &prm.AddVXLANUDPDPortOut{})
	b.must(&prm.AddVXLANUDPDPortIn{VXLANUDPPort: 3}, &prm.AddVXLANUDPDPortOut{})
	b.refused(&prm.AddVXLANUDPDPortIn{VXLANUDPPort: 4}, &prm.AddVXLANUDPDPortOut{}, prm.StatusLimitExceeded, synVXLANPort)
}

// TestRulesOnWhatIsInATunnel matches the VNI and an inner port.
func TestRulesOnWhatIsInATunnel(t *testing.T) {
	b := newDataBench(t)
	q := b.newRQ(b.newCQ(6), 5, 2048)
	q.state(prm.QueueStateRST, prm.QueueStateRDY)
	mask := prm.MatchParam{Misc: prm.MatchMisc{VXLANVNI: 0xffffff}, Inner: prm.MatchLayer24{IPProtocol: 0xff, TCPSPort: 0xffff}}
	value := prm.MatchParam{Misc: prm.MatchMisc{VXLANVNI: 77}, Inner: prm.MatchLayer24{IPProtocol: 6, TCPSPort: 80}}
	table, group := b.newTable(0, 2, 7, mask)
	b.rule(table, group, 0, value, 0x1234, toTIR(b.newTIR(q)))
	b.must(&prm.SetFlowTableRootIn{TableID: table}, &prm.SetFlowTableRootOut{})
	inside := segmentOf(1, 0x10, part(20, 1))
	q.post(4)
	b.receive(vxlanFrame(4789, 78, inside), inside, vxlanFrame(4789, 77, udpFrame(20, 1, 2, 80, 4)), vxlanFrame(4789, 77, inside))
	c := q.cq.take()
	if len(c) != 1 || c[0].FlowTag() != 0x1234 || !bytes.Equal(q.data(&c[0]), vxlanFrame(4789, 77, inside)) {
		t.Errorf("%d frames matched", len(c))
	}
}

// TestSendIntoATunnel has inner checksums inserted, and a large send in a tunnel cut.
func TestSendIntoATunnel(t *testing.T) {
	b := newDataBench(t)
	q := b.sender(6)
	inside := segmentOf(1, 0x10, part(100, 1))
	want := vxlanFrame(4789, 5, inside)
	f := bytes.Clone(want)
	f[24], f[50+24], f[50+50] = 1, 2, 3 // outer IP, inner IP and inner TCP checksum
	q.send(eth{cs: 0x70, segs: []any{b.place(f)}})
	b.sendsExactly(want)

	header := vxlanFrame(4789, 5, tcpHeader(0x18))
	data := b.place(testFrame(5000, 3))
	e := eth{cs: 0x70, inline: header, segs: []any{data}}.bytes(b)
	binary.BigEndian.PutUint16(e[6:], 1000)
	q.put(prm.WQELSO, prm.CompletionAlways, e)
	q.ring0()
	var inner [][]byte
	for i, f := range b.port.tx {
		if refSum(f[14:34], 0) != 0xffff || int(binary.BigEndian.Uint16(f[16:])) != len(f)-14 || int(binary.BigEndian.Uint16(f[38:])) != len(f)-34 {
			t.Errorf("segment %d: outer headers %x", i, f[14:42])
		}
		inner = append(inner, f[50:])
	}
	checkLarge(t, inner, data.Bytes, 1000)
}
