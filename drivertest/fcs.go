package drivertest

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"

	"cxkit/driver"
)

// Frames with their check sequences.
func fcsTests() []Test {
	var tests []Test
	for name, c := range map[string]driver.Config{
		"":              {},
		"Striding":      {Offloads: driver.Offloads{Striding: true}},
		"Linked":        {Offloads: driver.Offloads{LinkedReceive: true}},
		"Compressed":    {Offloads: driver.Offloads{CompressCompletions: true}},
		"InExactMemory": {BufferSize: 1500 + 22 + 4},
	} {
		c.RxRing, c.TxRing, c.VLANStrip, c.ReceiveFCS = 64, 64, true, true
		tests = append(tests, Test{Name: "FramesEndWithTheirCheckSequence" + name, Config: c, Run: checkSequences})
	}
	return tests
}

// checkSequences receives frames of every length, with tags and without.
func checkSequences(e *Env) {
	var frames, want [][]byte
	sent := 0
	add := func(frame, arrives []byte) {
		frames = append(frames, frame)
		want = append(want, binary.LittleEndian.AppendUint32(bytes.Clone(arrives), crc32.ChecksumIEEE(frame)))
		sent += len(want[len(want)-1])
	}
	for n := 60; n <= 1514; n += 7 {
		f := Frame(e.NIC.MAC(), n, uint32(n))
		add(f, f)
	}
	add(Frame(e.NIC.MAC(), 1514, 1), Frame(e.NIC.MAC(), 1514, 1))
	plain := Flow{Dst: e.NIC.MAC(), Src: peer(), UDP: true}
	tagged := plain
	tagged.VLANs = []uint16{0x6007}
	for n := 30; n <= 1472; n += 103 { // the sequence is the wire's, with the tag
		add(tagged.Packet(n, uint32(n)), plain.Packet(n, uint32(n)))
	}
	e.Background(func(e *Env) { e.Send(frames...) })
	var got [][]byte
	e.ReceiveEach(0, len(frames), func(p *driver.Packet) {
		got = append(got, bytes.Clone(p.Data))
		if l3 := p.Rx.L3() != driver.L3None; l3 && (!p.Rx.ChecksumOK() || p.Checksum != 0 && !sameSum(p.Checksum, sum(p.Data[14:]))) {
			e.Errorf("%d bytes: flags %#x, sum %#x, want %#x", len(p.Data), p.Rx, p.Checksum, sum(p.Data[14:]))
		}
	})
	e.Same(got, want)
	e.Counters(map[string]uint64{"rx_packets": uint64(len(frames)), "rx_bytes": uint64(sent)})
	if err := e.NIC.SetMTU(e.Ctx, e.NIC.Config().BufferSize-22-3); err == nil {
		e.Error("an MTU whose frames have no room for their check sequence was accepted")
	}
}
