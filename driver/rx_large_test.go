package driver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"cxkit/dma"
	"cxkit/driver/internal/queue"
	"cxkit/prm"
)

func largeConfig() Config {
	return Config{Arena: dma.Heap, RxRing: 8, TxRing: 8, Buffers: 64, Offloads: Offloads{Striding: true, LargeReceive: true}}
}

// largeFrame is a segment with n bytes of payload over IPv4, as cards write the first of a large receive: with the
// lengths and checksums of a short one.
func largeFrame(n int) []byte {
	f := []byte{
		2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0,
		0x45, 0, 0, 99, 0, 1, 0x40, 0, 64, 6, 0xaa, 0xbb, 192, 0, 2, 1, 192, 0, 2, 2,
		0, 80, 0x30, 0x39, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 2, 0xcc, 0xdd, 0, 0,
	}
	for i := range n {
		f = append(f, byte(i*11))
	}
	return f
}

// large makes a completion one of a large receive.
func large(frame []byte, segments uint8) func(e *prm.CQE) {
	return func(e *prm.CQE) {
		e.SetLRONumSeg(segments)
		e.SetLROMinTTL(9)
		e.SetLROFlags(largePushed)
		e.SetLROTCPWin(0x7788)
		e.SetLROAckSeq(0x01020304)
		e.SetL4L3HdrType(uint8(L4TCPAckData)<<4 | uint8(L3IPv4)<<2)
		e.SetChecksum(onesSum(frame[54:]))
	}
}

func onesSum(b []byte) uint16 {
	var s uint32
	for i, v := range b {
		s += uint32(v) << (8 * (1 - i&1))
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

func TestLargeReceiveIsMadeWhole(t *testing.T) {
	w := newWriter(t, largeConfig())
	frame := largeFrame(30_000)
	var pkts [4]Packet
	for range 40 { // chunks wrap and end with fillers
		w.receiveStrides(frame, large(frame, 21))
		w.receiveStrides(frame[:100], nil)
		n := w.rx.Poll(pkts[:])
		if n != 2 || pkts[0].Segments() != 21 || pkts[1].Segments() != 1 || pkts[1].SegmentSize() != 0 {
			t.Fatalf("%d packets, of %d and %d segments: %v", n, pkts[0].Segments(), pkts[1].Segments(), w.rx.Err())
		}
		parts := slices.Collect(pkts[0].Fragments())
		got := bytes.Join(parts, nil)
		if len(parts) != 15 || pkts[0].Len() != len(frame) || !bytes.Equal(got[54:], frame[54:]) || pkts[0].SegmentSize() != 1429 {
			t.Fatalf("%d parts, %d bytes, segments of %d", len(parts), pkts[0].Len(), pkts[0].SegmentSize())
		}
		ip := got[14:]
		pseudo := append(bytes.Clone(ip[12:20]), 0, 6)
		pseudo = binary.BigEndian.AppendUint16(pseudo, uint16(len(ip)-20))
		if binary.BigEndian.Uint16(ip[2:]) != uint16(len(ip)) || ip[8] != 9 || onesSum(ip[:20]) != 0xffff || onesSum(append(pseudo, ip[20:]...)) != 0xffff {
			t.Errorf("headers % x", got[14:54])
		}
		if binary.BigEndian.Uint32(ip[28:]) != 0x01020304 || ip[33] != 0x18 || binary.BigEndian.Uint16(ip[34:]) != 0x7788 {
			t.Errorf("TCP header % x", ip[20:40])
		}
		if !pkts[0].Rx.ChecksumOK() || pkts[0].Checksum != 0 || pkts[0].ChecksumState() != ChecksumUnnecessary {
			t.Errorf("flags %#x, checksum %#x", pkts[0].Rx, pkts[0].Checksum)
		}
		w.rx.Release(pkts[:n])
	}
	want := RxStats{Packets: 40 * 22, Bytes: 40 * (uint64(len(frame)) + 100), ChecksumOK: 80, LargePackets: 40, LargeBytes: 40 * uint64(len(frame))}
	if s := w.rx.Stats(); s != want {
		t.Errorf("counters %+v, want %+v", s, want)
	}
	if b := w.nic.bufferBooks(); b.Free != 64 || b.Application != 0 {
		t.Errorf("books %+v", b)
	}
}

// Every completion that cannot be stops the queue, with a name, and costs no buffer.
func TestLargeReceivesThatCannotBe(t *testing.T) {
	at := func(i int, v byte) func(f []byte) []byte { return func(f []byte) []byte { f[i] = v; return f } }
	cut := func(n int) func(f []byte) []byte { return func(f []byte) []byte { return f[:n] } }
	for name, c := range map[string]struct {
		frame func(f []byte) []byte
		edit  func(e *prm.CQE)
		off   bool // without large receives
	}{
		"not asked for":           {off: true},
		"no Ethernet header":      {frame: cut(13)},
		"no EtherType in its tag": {frame: func(f []byte) []byte { f[12], f[13] = 0x81, 0; return f[:17] }},
		"no IP":                   {frame: at(12, 9)},
		"half an IP header":       {frame: cut(33)},
		"IP options":              {frame: at(14, 0x46)},
		"IP version 5":            {frame: at(14, 0x55)},
		"a fragment":              {frame: at(21, 1)},
		"more fragments":          {frame: at(20, 0x20)},
		"UDP":                     {frame: at(23, 17)},
		"half a TCP header":       {frame: cut(53)},
		"no TCP data offset":      {frame: at(46, 0x40)},
		"TCP header too long":     {frame: func(f []byte) []byte { f[46] = 0xf0; return f[:90] }},
		"IPv6 header cut short":   {frame: func(f []byte) []byte { f[12], f[13], f[14] = 0x86, 0xdd, 0x60; return f[:53] }},
		"longer than its strides": {edit: func(e *prm.CQE) { e.SetStridingByteCnt(0xffff) }},
		"no strides":              {edit: func(e *prm.CQE) { e.SetConsumedStrides(0) }},
		"more strides than are":   {edit: func(e *prm.CQE) { e.SetConsumedStrides(queue.Strides + 1) }},
	} {
		t.Run(name, func(t *testing.T) {
			config := largeConfig()
			config.LargeReceive = !c.off
			w := newWriter(t, config)
			frame := largeFrame(3000)
			tell := large(frame, 3)
			if c.frame != nil {
				frame = c.frame(frame)
			}
			w.receiveStrides(frame, func(e *prm.CQE) {
				tell(e)
				if c.edit != nil {
					c.edit(e)
				}
			})
			var pkts [2]Packet
			var failed *QueueError
			if n := w.rx.Poll(pkts[:]); n != 0 || !errors.As(w.rx.Err(), &failed) || w.rx.Stats().Impossible != 1 {
				t.Errorf("%d packets, %v, %+v", n, w.rx.Err(), w.rx.Stats())
			}
			if b := w.nic.bufferBooks(); b.Free != 64 {
				t.Errorf("books %+v", b)
			}
		})
	}
}

// A session of compressed completions cannot be of large receives: each would say that it is one.
func TestCompressedLargeReceivesCannotBe(t *testing.T) {
	config := largeConfig()
	config.CompressCompletions = true
	w := newWriter(t, config)
	frame := largeFrame(3000)
	w.receiveStrides(frame, func(e *prm.CQE) {
		large(frame, 3)(e)
		e.SetByteCnt(2)
	})
	dma.StoreBE32(w.rxCQ.ring, prm.CQEOwnOff, prm.CQEOwnDword(0, 0, prm.CQEResponderSend, prm.CQEFormatCompressed, false, false))
	if n := w.rx.Poll(make([]Packet, 4)); n != 0 || w.rx.Stats().Impossible != 1 {
		t.Errorf("%d packets, %v", n, w.rx.Err())
	}
}

// Buffers come back one by one: a large receive waits until there are as many as it takes.
func TestLargeReceiveWaitsForAllItsBuffers(t *testing.T) {
	w := newWriter(t, largeConfig())
	held := make([]Packet, 64)
	if n := w.tx.Get(held); n != 64 {
		t.Fatalf("%d buffers", n)
	}
	frame := largeFrame(20_000)
	w.receiveStrides(frame, large(frame, 14))
	var pkts [2]Packet
	for i := range 10 {
		if n := w.rx.Poll(pkts[:]); n != 0 || w.rx.Err() != nil || !w.rx.starved() {
			t.Fatalf("with %d buffers: %d packets, %v", i, n, w.rx.Err())
		}
		w.rx.Release(held[i : i+1])
	}
	if n := w.rx.Poll(pkts[:]); n != 1 || pkts[0].Len() != len(frame) {
		t.Fatalf("%d packets with as many buffers as it takes", n)
	}
	w.rx.Release(pkts[:1])
	w.tx.Release(held)
}

func TestLargeReceivesDoNotAllocate(t *testing.T) {
	w := newWriter(t, largeConfig())
	frame := largeFrame(20_000)
	tell := large(frame, 14)
	pkts := make([]Packet, 4)
	if n := testing.AllocsPerRun(200, func() {
		w.receiveStrides(frame, tell)
		w.rx.Release(pkts[:w.rx.Poll(pkts)])
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestWrongCombinationsWithLargeReceivesAreNamed(t *testing.T) {
	program := Receiving{Program: func(*Frame) Verdict { return Pass }}
	on := Offloads{Striding: true, LargeReceive: true}
	with := func(f func(o *Offloads)) Offloads { o := on; f(&o); return o }
	for want, c := range map[string]Config{
		"config: large receives without Offloads.Striding: only striding receive queues take them": {Offloads: Offloads{LargeReceive: true}},
		"config: large receives with Offloads.Tunnels: what is in a tunnel must not be merged":     {Offloads: with(func(o *Offloads) { o.Tunnels = true })},
		"config: large receives with a program, which judges every frame":                          {Offloads: on, Receiving: program},
		"config: large receives of 300 bytes: want multiples of 256 up to 65280":                   {Offloads: with(func(o *Offloads) { o.LargeReceiveMax = 300 })},
		"config: large receives of 65536 bytes: want multiples of 256 up to 65280":                 {Offloads: with(func(o *Offloads) { o.LargeReceiveMax = 65536 })},
		"config: large receives held for 1.5µs: want whole microseconds":                           {Offloads: with(func(o *Offloads) { o.LargeReceiveTimeout = 1500 })},
		"config: large receives of 256 bytes, held for 0s, without Offloads.LargeReceive":          {Offloads: Offloads{LargeReceiveMax: 256}},
		"config: large receives of 0 bytes, held for 1ms, without Offloads.LargeReceive":           {Offloads: Offloads{LargeReceiveTimeout: time.Millisecond}},
		"config: large receives with buffers of 1536 bytes: want 2048 or more":                     {Offloads: on, BufferSize: 1536},
		"config: 16 buffers: a large receive on each queue takes 37":                               {Offloads: on, RxRing: 8, Buffers: 16},
		"config: 64 buffers: a large receive on each queue takes 74":                               {Offloads: on, Queues: 2, RxRing: 8, Buffers: 64},
		"config: receive layout halves with striding queues, which copy every frame: want stack":   {Offloads: on, RxPages: RxPages{RxLayout: RxHalves}},
	} {
		if _, err := c.complete(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if c, err := (Config{Offloads: on, RxRing: 8, TxRing: 8}).complete(); err != nil || c.Buffers != 37 {
		t.Errorf("the smallest rings have %d buffers, %v", c.Buffers, err)
	}
}

func TestCardsWithoutLargeReceives(t *testing.T) {
	periods := func(us ...uint32) (p [16]byte) {
		for i, v := range us {
			binary.BigEndian.PutUint32(p[4*i:], v)
		}
		return p
	}
	usual := periods(8, 16, 32, 1024)
	var lacks *UnsupportedError
	for name, c := range map[string]struct {
		eth     prm.CapEthernetOffloads
		timeout time.Duration
		want    string // "": it works, with this period
		period  uint16
	}{
		"none":          {want: "has no large receives"},
		"tunnels, too":  {eth: prm.CapEthernetOffloads{LROCap: true, TunnelLROVXLAN: true}, want: "has no large receives"},
		"GRE, too":      {eth: prm.CapEthernetOffloads{LROCap: true, TunnelLROGRE: true}, want: "has no large receives"},
		"usual":         {eth: prm.CapEthernetOffloads{LROCap: true, LROTimerSupportedPeriods: usual}, period: 32},
		"shortest":      {eth: prm.CapEthernetOffloads{LROCap: true, LROTimerSupportedPeriods: usual}, timeout: time.Microsecond, period: 8},
		"between":       {eth: prm.CapEthernetOffloads{LROCap: true, LROTimerSupportedPeriods: usual}, timeout: 33 * time.Microsecond, period: 1024},
		"longest":       {eth: prm.CapEthernetOffloads{LROCap: true, LROTimerSupportedPeriods: usual}, timeout: 1024 * time.Microsecond, period: 1024},
		"too long":      {eth: prm.CapEthernetOffloads{LROCap: true, LROTimerSupportedPeriods: usual}, timeout: time.Second, want: "large receives held for 1s: the card's longest is 1.024ms"},
		"short ones":    {eth: prm.CapEthernetOffloads{LROCap: true, LROTimerSupportedPeriods: periods(3, 7)}, period: 7},
		"no period":     {eth: prm.CapEthernetOffloads{LROCap: true}, period: 0},
		"wild periods":  {eth: prm.CapEthernetOffloads{LROCap: true, LROTimerSupportedPeriods: periods(0xffffffff, 0x10000, 500, 40)}, period: 40},
		"none is there": {eth: prm.CapEthernetOffloads{LROCap: true}, timeout: time.Millisecond, want: "the card's longest is 0s"},
	} {
		config := largeConfig()
		config.LargeReceiveTimeout = c.timeout
		n := newWriter(t, config).nic
		n.base.general.StridingRQ, n.base.eth = true, c.eth
		err := n.checkOffloads()
		if c.want != "" {
			if err == nil || !bytes.Contains([]byte(err.Error()), []byte(c.want)) || errors.As(err, &lacks) != (c.eth.LROTimerSupportedPeriods != usual && c.timeout == 0) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		var tir prm.TIRContext
		if err = errors.Join(err, n.mergeIn(&tir)); err != nil || tir.LROTimeoutPeriodUsecs != c.period || tir.LROMaxIPPayloadSize != 255 || tir.PacketMergeMask != 3 {
			t.Errorf("%s: %v, %d µs, %d units, mask %d", name, err, tir.LROTimeoutPeriodUsecs, tir.LROMaxIPPayloadSize, tir.PacketMergeMask)
		}
	}
}
