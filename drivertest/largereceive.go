package drivertest

import (
	"bytes"
	"encoding/binary"
	"slices"
	"time"

	"cxkit/driver"
)

// Large receives: the card puts TCP segments together.

func largeReceiveTests() []Test {
	with := func(change func(c *driver.Config)) driver.Config {
		c := driver.Config{RxRing: 64, TxRing: 64, Buffers: 512, Offloads: driver.Offloads{Striding: true, LargeReceive: true}}
		if change != nil {
			change(&c)
		}
		return c
	}
	return []Test{
		{Name: "LargeReceivesAreWholePackets", Config: with(nil), Run: func(e *Env) { e.untilMerged(wholePackets) }},
		{Name: "LargeReceivesWithoutTagsAndWithCompressedCompletions", Config: with(func(c *driver.Config) {
			c.VLANStrip, c.CompressCompletions, c.LargeReceiveTimeout = true, true, time.Millisecond
		}), Run: func(e *Env) { e.untilMerged(wholePackets) }},
		{Name: "LargeReceivesOfLinkedQueues", Config: with(func(c *driver.Config) { c.LinkedReceive = true }), Run: func(e *Env) { e.untilMerged(wholePackets) }},
		{Name: "LargeReceivesGoWithGRO", Config: with(func(c *driver.Config) { c.GRO = true }), Run: func(e *Env) { e.untilMerged(wholePackets) }},
		{Name: "LargeReceivesKeepToTheirLength", Config: with(func(c *driver.Config) { c.LargeReceiveMax = 4096 }), Run: func(e *Env) {
			e.untilMerged(func(e *Env, l *largeReceiver) {
				l.send(e, l.train(e, Flow{SrcPort: 1, DstPort: 2}, 30_000, 1000))
				l.receive(e)
				if l.longest > 14+ipv4Length+4096 {
					e.Errorf("a large receive of %d bytes", l.longest)
				}
			})
		}},
		{Name: "LargeReceivesOfManyQueues", Config: with(func(c *driver.Config) { c.Queues, c.Buffers = 4, 1024 }), Run: largeOfManyQueues},
		{Name: "LargeReceivesWhileRingsAndChannelsChange", Config: with(func(c *driver.Config) { c.MaxChannels = 2 }), Run: largeWhileChanged},
		{Name: "LargeReceivesWhileTheMTUChanges", Config: with(func(c *driver.Config) { c.BufferSize = 9728 }), Run: func(e *Env) {
			e.Background(func(e *Env) {
				for i := range 20 {
					e.Must(e.NIC.SetMTU(e.Ctx, []int{9000, 1500, 4000}[i%3]))
				}
			})
			e.untilMerged(func(e *Env, l *largeReceiver) {
				l.send(e, l.train(e, Flow{SrcPort: 1, DstPort: 2}, 50_000, 900))
				l.receive(e)
			})
		}},
		{Name: "LargeReceivesWaitForBuffers", Config: with(func(c *driver.Config) { c.RxRing, c.TxRing, c.Buffers = 8, 8, 40 }), Run: func(e *Env) {
			e.untilMerged(func(e *Env, l *largeReceiver) {
				l.keep = true
				l.send(e, l.train(e, Flow{SrcPort: 1, DstPort: 2}, 60_000, 1448), l.train(e, Flow{SrcPort: 3, DstPort: 4}, 60_000, 1448))
				l.receive(e)
			})
		}},
		{Name: "LargeReceivesAreCutAgain", Config: with(func(c *driver.Config) { c.LargeSend = true }), Run: func(e *Env) {
			e.untilMerged(func(e *Env, l *largeReceiver) {
				l.forward = true
				l.send(e, l.train(e, Flow{SrcPort: 1, DstPort: 2}, 40*1000, 1000))
				l.receive(e)
				e.Same(e.Arrived(40), l.cut)
				e.Flush(0)
			})
		}},
	}
}

// sentSegment is a frame on its way to the NIC.
type sentSegment struct {
	flow          Flow // as it arrives
	sent, arrives []byte
	taken         bool
}

// largeReceiver sends trains of segments and compares what becomes of them.
type largeReceiver struct {
	keep    bool // packets are kept until there are no buffers
	forward bool // packets are sent back, cut as they came
	turns   bool // trains are sent by turns
	spread  int  // how many queues are polled, if not one

	cut [][]byte // what goes back

	segments []*sentSegment
	index    map[string]int // by ports and sequence number
	queues   map[uint16]int // where a flow arrived, by its source port
	left     int

	packets, bytes, merged, mergedBytes uint64
	longest                             int // of merged ones
}

// untilMerged runs a test until the card has merged something: it merges only segments that come at once. Counters
// are compared.
func (e *Env) untilMerged(run func(e *Env, l *largeReceiver)) {
	e.Helper()
	var packets, bytes, merged, mergedBytes uint64
	for merged == 0 && !e.Failed() {
		l := &largeReceiver{index: map[string]int{}, queues: map[uint16]int{}}
		run(e, l)
		e.Must(e.Ctx.Err())
		packets += l.packets
		bytes += l.bytes
		merged += l.merged
		mergedBytes += l.mergedBytes
		e.Counters(map[string]uint64{"rx_packets": packets, "rx_bytes": bytes, "rx_lro_packets": merged, "rx_lro_bytes": mergedBytes})
	}
}

// train is the segments of one connection, the last one with PSH; of a datagram, one frame.
func (l *largeReceiver) train(e *Env, f Flow, payload, size int) (t []*sentSegment) {
	f.Dst, f.Src = e.NIC.MAC(), peer()
	arrives := f
	if e.NIC.Config().VLANStrip {
		arrives.VLANs = nil
	}
	cut := func(f Flow) [][]byte {
		if f.UDP {
			return [][]byte{f.Packet(max(size, 30), 0)} // no padding
		}
		list := f.Segments(f.Packet(payload, 0xfffff000), size)
		for i, s := range list { // each says something else
			l4 := f.l4Offset()
			binary.BigEndian.PutUint32(s[l4+8:], uint32(1000+i))
			binary.BigEndian.PutUint16(s[l4+14:], uint16(2000+i))
			if i%2 == 1 {
				setTTL(f, s, 40)
			}
			f.fixChecksum(s, 14+4*len(f.VLANs), l4)
		}
		return list
	}
	want := cut(arrives)
	for i, s := range cut(f) {
		t = append(t, &sentSegment{flow: arrives, sent: s, arrives: want[i]})
	}
	return t
}

// setTTL sets the time to live or hop limit of a frame of f.
func setTTL(f Flow, s []byte, ttl byte) {
	l3 := 14 + 4*len(f.VLANs)
	if f.V6 {
		s[l3+7] = ttl
		return
	}
	s[l3+8] = ttl
	binary.BigEndian.PutUint16(s[l3+10:], 0)
	binary.BigEndian.PutUint16(s[l3+10:], ^sum(s[l3:l3+ipv4Length]))
}

func ttlOf(f Flow, s []byte) byte {
	if f.V6 {
		return s[14+4*len(f.VLANs)+7]
	}
	return s[14+4*len(f.VLANs)+8]
}

// send sends trains in the background, one after the other or by turns.
func (l *largeReceiver) send(e *Env, trains ...[]*sentSegment) {
	var frames [][]byte
	for _, t := range trains {
		for _, s := range t {
			l.index[string(s.arrives[s.flow.l4Offset():][:8])] = len(l.segments)
			l.segments = append(l.segments, s)
			if !l.turns {
				frames = append(frames, s.sent)
			}
		}
		l.left += len(t)
	}
	if l.turns {
		for i := range trains[0] {
			for _, t := range trains {
				frames = append(frames, t[i].sent)
			}
		}
	}
	e.Background(func(e *Env) { e.Send(frames...) })
}

// receive takes packets until everything that was sent is there.
func (l *largeReceiver) receive(e *Env) {
	e.Helper()
	if l.spread > 0 {
		e.Until("segments", func() bool {
			for q := range l.spread {
				for l.poll(e, q) {
				}
			}
			return l.left == 0
		})
		return
	}
	for l.left > 0 {
		if l.poll(e, 0) {
			continue
		}
		if err := e.NIC.RxQueue(0).Wait(e.Ctx); err != nil {
			e.Fatalf("%d of %d segments are missing: %v", l.left, len(l.segments), err)
		}
	}
}

// poll takes what is there on a queue now.
func (l *largeReceiver) poll(e *Env, q int) bool {
	e.Helper()
	rx := e.NIC.RxQueue(q)
	var held []driver.Packet
	for {
		var pkts [16]driver.Packet
		n := rx.Poll(pkts[:])
		held = append(held, pkts[:n]...)
		if n == 0 || !l.keep {
			break
		}
	}
	for i := range held {
		l.take(e, &held[i], q)
	}
	if l.forward {
		for i := range held {
			held[i].Segment = uint16(held[i].SegmentSize())
		}
		e.SendPackets(0, held)
	}
	rx.Release(held)
	return len(held) > 0
}

// take compares a packet with the segments that it says it is of.
func (l *largeReceiver) take(e *Env, p *driver.Packet, q int) {
	e.Helper()
	data := bytes.Join(slices.Collect(p.Fragments()), nil)
	at, known := 0, false
	for _, off := range []int{14, 18} {
		for _, ip := range []int{ipv4Length, ipv6Length} {
			if len(data) < off+ip+8 {
				continue
			}
			if i, ok := l.index[string(data[off+ip:][:8])]; ok && l.segments[i].flow.l4Offset() == off+ip {
				at, known = i, true
			}
		}
	}
	n := p.Segments()
	if !known || at+n > len(l.segments) {
		e.Fatalf("packet of %d segments that was not sent: %x", n, data[:min(len(data), 80)])
	}
	segments := l.segments[at:][:n]
	f := segments[0].flow
	for _, s := range segments {
		if s.taken || s.flow.SrcPort != f.SrcPort {
			e.Fatalf("segment %d of port %d came twice, or in a packet of another connection", at, s.flow.SrcPort)
		}
		s.taken = true
	}
	if at > 0 && l.segments[at-1].flow.SrcPort == f.SrcPort && !l.segments[at-1].taken {
		e.Errorf("segment %d came before the one in front of it", at)
	}
	l.left -= n
	l.packets += uint64(n)
	l.bytes += uint64(len(data))
	if n > 1 {
		l.merged++
		l.mergedBytes += uint64(len(data))
		l.longest = max(l.longest, len(data))
	}
	if old, ok := l.queues[f.SrcPort]; ok && old != q {
		e.Errorf("a connection on queues %d and %d", old, q)
	}
	l.queues[f.SrcPort] = q
	if !p.Rx.ChecksumOK() || p.Len() != len(data) || len(p.Data) > e.NIC.Config().BufferSize {
		e.Errorf("flags %#x, %d bytes, %d of them in the first buffer", p.Rx, p.Len(), len(p.Data))
	}
	whole := wholePacket(segments)
	e.Same([][]byte{data}, [][]byte{whole})
	if l.forward && n > 1 {
		l.cut = append(l.cut, f.Segments(whole, p.SegmentSize())...)
	} else if l.forward {
		l.cut = append(l.cut, whole)
	}
	if size := len(segments[0].arrives) - f.l4Offset() - 20; n > 1 && p.SegmentSize() > size || n == 1 && p.SegmentSize() != 0 {
		e.Errorf("segments of %d bytes, the packet of %d says %d", size, n, p.SegmentSize())
	}
}

// wholePacket is what a receiver makes of segments: the first one's headers, with the length of all, the lowest
// time to live, PSH of any, and the last one's acknowledgement and window.
func wholePacket(segments []*sentSegment) []byte {
	f, b := segments[0].flow, bytes.Clone(segments[0].arrives)
	if len(segments) == 1 {
		return b
	}
	l3, l4 := 14+4*len(f.VLANs), f.l4Offset()
	ttl := ttlOf(f, b)
	for _, s := range segments[1:] {
		b = append(b, s.arrives[l4+20:]...)
		b[l4+13] |= s.arrives[l4+13] & 8
		copy(b[l4+8:l4+12], s.arrives[l4+8:])
		copy(b[l4+14:l4+16], s.arrives[l4+14:])
		ttl = min(ttl, ttlOf(f, s.arrives))
	}
	if f.V6 {
		binary.BigEndian.PutUint16(b[l3+4:], uint16(len(b)-l4))
	} else {
		binary.BigEndian.PutUint16(b[l3+2:], uint16(len(b)-l3))
	}
	setTTL(f, b, ttl)
	f.fixChecksum(b, l3, l4)
	return b
}

// wholePackets sends connections of all kinds, of long and short segments, and datagrams, which stay as they are.
func wholePackets(e *Env, l *largeReceiver) {
	var trains [][]*sentSegment
	port := uint16(0)
	for _, f := range kinds(e.NIC.MAC()) {
		for _, c := range []struct{ payload, size int }{{40_000, 1440}, {3000, 100}, {90, 9}, {1500, 1400}} {
			port++
			f.SrcPort = port
			trains = append(trains, l.train(e, f, c.payload, c.size))
		}
	}
	l.send(e, trains...)
	l.receive(e)
	// By turns: the card puts several connections together at once.
	trains = trains[:0]
	for i := range 3 {
		trains = append(trains, l.train(e, Flow{SrcPort: port + uint16(i) + 1}, 9000, 1000))
	}
	l.turns = true
	l.send(e, trains...)
	l.receive(e)
}

// largeOfManyQueues spreads connections by hash, by a rule and by a group.
func largeOfManyQueues(e *Env) {
	g, err := e.NIC.NewQueueGroup(e.Ctx, driver.GroupConfig{Queues: []int{1, 2}})
	e.Must(err)
	port := func(p uint16) driver.Match {
		return driver.Match{Headers: driver.Headers{Protocol: driver.Exactly[uint8](protoTCP), DstPort: driver.Exactly(p)}}
	}
	e.add(driver.Rule{Match: port(80), Action: driver.RuleQueue, Queue: 3})
	e.add(driver.Rule{Priority: 1, Match: port(81), Action: driver.RuleGroup, Group: g})
	e.untilMerged(func(e *Env, l *largeReceiver) {
		l.spread = e.NIC.Queues()
		var trains [][]*sentSegment
		for i := range uint16(24) {
			trains = append(trains, l.train(e, Flow{V6: i%2 == 1, SrcPort: i, DstPort: 79 + i%3}, 8000, 500))
		}
		l.send(e, trains...)
		l.receive(e)
		used := map[int]bool{}
		for i := range uint16(24) {
			switch q := l.queues[i]; {
			case i%3 == 0:
				used[q] = true
			case i%3 == 1 && q != 3, i%3 == 2 && q != 1 && q != 2:
				e.Errorf("a connection to port %d on queue %d", 79+i%3, q)
			}
		}
		if len(used) < 2 {
			e.Errorf("8 connections on %v", used)
		}
	})
}

// largeWhileChanged gives the queue other rings, and the NIC other numbers of channels, while segments come.
func largeWhileChanged(e *Env) {
	e.add(driver.Rule{Action: driver.RuleQueue})
	stop := make(chan struct{})
	changed := make(chan int, 1)
	e.Background(func(e *Env) {
		n := 0
		defer func() { changed <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			lost, err := e.NIC.SetChannels(e.Ctx, 1+(n+1)%2)
			if e.Must(err); lost != (driver.Lost{}) {
				e.Errorf("lost %+v of queues that nothing was led to", lost)
			}
			n++
		}
	})
	sizes, i := []int{128, 8, 512, 32, 64, 16}, 0
	e.untilMerged(func(e *Env, l *largeReceiver) {
		for range 6 {
			l.send(e, l.train(e, Flow{SrcPort: uint16(i), DstPort: 1}, 40_000, 1000), l.train(e, Flow{SrcPort: uint16(i), DstPort: 2, V6: true}, 9000, 100))
			e.Must(e.NIC.RxQueue(0).Resize(e.Ctx, sizes[i%len(sizes)])) // with whatever is in the old ring
			i++
			l.receive(e)
		}
	})
	close(stop)
	if n := <-changed; n == 0 {
		e.Error("no change was made meanwhile")
	}
}
