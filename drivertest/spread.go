package drivertest

import (
	"bytes"
	"encoding/binary"
	"sync"

	"cxkit/driver"
)

func spreadTests() []Test {
	return []Test{
		{Name: "RSSKeepsFlowsInOrderOnOneQueue", Config: driver.Config{Queues: 4}, Run: rssKeepsFlows},
		{Name: "RSSSendsBothDirectionsToOneQueue", Config: driver.Config{Queues: 4}, Run: func(e *Env) {
			for i := range 20 {
				f := Flow{Dst: e.NIC.MAC(), Src: peer(), SrcIP: byte(i), DstIP: 200, SrcPort: uint16(i * 7), DstPort: 80}
				a := f.Packet(10, 1)
				b := bytes.Clone(a)
				ip := b[14:]
				copy(ip[12:16], a[14+16:14+20])
				copy(ip[16:20], a[14+12:14+16])
				copy(ip[20:22], a[14+22:14+24])
				copy(ip[22:24], a[14+20:14+22])
				e.Send(a, b)
				qa, qb := e.whichQueue(a), e.whichQueue(b)
				if qa != qb {
					e.Errorf("flow %d: queues %d and %d", i, qa, qb)
				}
			}
		}},
		{Name: "ReportsTheToeplitzHash", Config: driver.Config{RSS: driver.RSS{Asymmetric: true}}, Run: func(e *Env) {
			// Microsoft, "Verifying the RSS hash calculation": 66.9.149.187:2794 -> 161.142.100.80:1766.
			f := Flow{Dst: e.NIC.MAC(), Src: peer(), SrcPort: 2794, DstPort: 1766}.Packet(10, 1)
			copy(f[14+12:], []byte{66, 9, 149, 187, 161, 142, 100, 80})
			e.Send(f)
			e.ReceiveEach(0, 1, func(p *driver.Packet) {
				if p.RSSHash != 0x51ccc178 || p.HashType.L3() != driver.L3IPv4 || p.HashType.L4() != driver.L4TCP {
					e.Errorf("hash %#08x of %v, %v", p.RSSHash, p.HashType.L3(), p.HashType.L4())
				}
			})
		}},
		{Name: "FramesWithoutIPGoToQueueZero", Config: driver.Config{Queues: 4}, Run: func(e *Env) {
			want := Frames(e.NIC.MAC(), 20, 60)
			e.Send(want...)
			e.Same(e.Receive(0, 20), want)
		}},
		{Name: "QueuesSendAtTheSameTime", Config: driver.Config{Queues: 4}, Run: func(e *Env) {
			const each = 500
			for q := range 4 {
				e.Background(func(e *Env) {
					for i := range each {
						e.Transmit(q, Frame(driver.MAC{2, 0, 0, 0, 1, byte(q)}, 60+i%100, uint32(i)))
					}
				})
			}
			var next [4]uint32
			for _, f := range e.Arrived(4 * each) {
				q := f[5]
				if int(q) >= len(next) || binary.BigEndian.Uint32(f[14:]) != next[q] {
					e.Fatalf("queue %d: frame %d came out of order", q, binary.BigEndian.Uint32(f[14:]))
				}
				next[q]++
			}
		}},
	}
}

// rssKeepsFlows sends many flows and checks that each stays on one queue, in order, and that every queue
// gets some.
func rssKeepsFlows(e *Env) {
	const flows, each = 64, 20
	flow := func(i int) Flow {
		return Flow{Dst: e.NIC.MAC(), Src: peer(), V6: i%2 == 1, UDP: i%4 > 1, SrcIP: byte(i), DstIP: byte(i * 3), SrcPort: uint16(1000 + i), DstPort: 443}
	}
	e.Background(func(e *Env) {
		for n := range each {
			for i := range flows {
				f := flow(i).Packet(20+n, uint32(n))
				e.Send(f)
			}
		}
	})
	var mu sync.Mutex
	queueOf := map[string]int{}
	seen := map[string]int{}
	total := 0
	done := make(chan struct{})
	var workers sync.WaitGroup
	for q := range 4 {
		workers.Go(func() {
			e.receiveUntil(q, done, func(p *driver.Packet) {
				mu.Lock()
				defer mu.Unlock()
				off := 14 + 12
				key := string(p.Data[off : off+12])
				if p.Rx.L3() == driver.L3IPv6 {
					key = string(p.Data[14+8 : 14+44])
				}
				if old, ok := queueOf[key]; ok && old != q {
					e.Errorf("a flow on queues %d and %d", old, q)
				}
				queueOf[key] = q
				if n := flowStep(p); n != seen[key] {
					e.Errorf("frame %d of a flow came as number %d", n, seen[key])
				}
				seen[key]++
				if total++; total == flows*each {
					close(done)
				}
			})
		})
	}
	workers.Wait()
	used := map[int]bool{}
	for _, q := range queueOf {
		used[q] = true
	}
	if len(queueOf) != flows || len(used) != 4 {
		e.Errorf("%d flows on %d queues, want %d on 4", len(queueOf), len(used), flows)
	}
}

// flowStep tells which frame of its flow this is: rssKeepsFlows makes each one byte longer.
func flowStep(p *driver.Packet) int {
	var length int
	if p.Rx.L3() == driver.L3IPv6 {
		length = int(binary.BigEndian.Uint16(p.Data[14+4:]))
	} else {
		length = int(binary.BigEndian.Uint16(p.Data[14+2:])) - ipv4Length
	}
	if p.Rx.L4() == driver.L4UDP {
		return length - 8 - 20
	}
	return length - 20 - 20
}
