package drivertest

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"slices"

	"cxkit/driver"
	"cxkit/stats"
)

// Broadcast is the address of all stations.
func Broadcast() driver.MAC { return driver.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff} }

// Frame returns an Ethernet frame of n bytes (at least 14) to dst with a body that tells frames apart.
func Frame(dst driver.MAC, n int, seq uint32) []byte {
	f := make([]byte, max(n, 18))
	copy(f, dst[:])
	copy(f[6:], []byte{0x02, 0, 0, 0, 0, 0x01})
	f[12], f[13] = 0x88, 0xb5 // IEEE 802 local experimental EtherType 1
	binary.BigEndian.PutUint32(f[14:], seq)
	for i := 18; i < n; i++ {
		f[i] = byte(uint32(i) * (seq + 7) >> 2)
	}
	return f[:n]
}

// Frames returns n frames of size bytes to dst.
func Frames(dst driver.MAC, n, size int) [][]byte {
	all := make([][]byte, n)
	for i := range all {
		all[i] = Frame(dst, size, uint32(i))
	}
	return all
}

// Send sends frames from the far end.
func (e *Env) Send(frames ...[]byte) {
	e.Helper()
	if err := e.Bench.Far.SendAll(e.Ctx, frames...); err != nil {
		e.Fatalf("far end: %v", err)
	}
}

// Receive takes n frames from receive queue q, releases their buffers and returns copies.
func (e *Env) Receive(q, n int) [][]byte {
	e.Helper()
	var got [][]byte
	e.ReceiveEach(q, n, func(p *driver.Packet) { got = append(got, bytes.Clone(p.Data)) })
	return got
}

// ReceiveEach takes n packets from receive queue q, shows each to f and releases its buffer.
func (e *Env) ReceiveEach(q, n int, f func(p *driver.Packet)) {
	e.Helper()
	var pkts [32]driver.Packet
	for n > 0 {
		k := e.Poll(q, pkts[:min(n, len(pkts))])
		for i := range pkts[:k] {
			f(&pkts[i])
		}
		e.NIC.RxQueue(q).Release(pkts[:k])
		n -= k
	}
}

// Poll takes at least one packet from receive queue q, waiting for it.
func (e *Env) Poll(q int, pkts []driver.Packet) int {
	e.Helper()
	rx := e.NIC.RxQueue(q)
	for {
		if k := rx.Poll(pkts); k > 0 {
			return k
		}
		if err := rx.Wait(e.Ctx); err != nil {
			e.Fatalf("receive on queue %d: %v", q, err)
		}
	}
}

// Transmit sends frames on transmit queue q, waiting for room.
func (e *Env) Transmit(q int, frames ...[]byte) {
	e.Helper()
	e.TransmitEach(q, frames, func(*driver.Packet) {})
}

// TransmitEach sends frames on transmit queue q after f has seen each packet.
func (e *Env) TransmitEach(q int, frames [][]byte, f func(p *driver.Packet)) {
	e.Helper()
	tx := e.NIC.TxQueue(q)
	var pkts [32]driver.Packet
	for len(frames) > 0 {
		n := tx.Get(pkts[:min(len(frames), len(pkts))])
		if n == 0 {
			e.waitTx(q)
			continue
		}
		for i := range pkts[:n] {
			pkts[i].Data = append(pkts[i].Data[:0], frames[i]...)
			f(&pkts[i])
		}
		e.SendPackets(q, pkts[:n])
		frames = frames[n:]
	}
}

// SendPackets sends all of pkts on transmit queue q, waiting for room.
func (e *Env) SendPackets(q int, pkts []driver.Packet) {
	e.Helper()
	tx := e.NIC.TxQueue(q)
	for pkts = pkts[tx.Send(pkts):]; len(pkts) > 0; pkts = pkts[tx.Send(pkts):] {
		e.waitTx(q)
	}
}

func (e *Env) waitTx(q int) {
	e.Helper()
	if err := e.NIC.TxQueue(q).Wait(e.Ctx); err != nil {
		e.Fatalf("transmit on queue %d: %v", q, err)
	}
}

// Flush waits until transmit queue q has sent everything.
func (e *Env) Flush(q int) {
	e.Helper()
	if err := e.NIC.TxQueue(q).Flush(e.Ctx); err != nil {
		e.Fatalf("flush of queue %d: %v", q, err)
	}
}

// Arrived takes n frames at the far end.
func (e *Env) Arrived(n int) [][]byte {
	e.Helper()
	got := make([][]byte, 0, n)
	for range n {
		f, err := e.Bench.Far.Recv(e.Ctx)
		if err != nil {
			e.Fatalf("far end: %d of %d frames: %v", len(got), n, err)
		}
		got = append(got, f)
	}
	return got
}

// Same compares frames byte for byte.
func (e *Env) Same(got, want [][]byte) {
	e.Helper()
	if len(got) != len(want) {
		e.Errorf("%d frames, want %d", len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		if !bytes.Equal(got[i], want[i]) {
			e.Errorf("frame %d:\ngot\n%swant\n%s", i, hex.Dump(got[i]), hex.Dump(want[i]))
			return
		}
	}
}

// OnlyArrives sends lost frames, then one that the NIC wants, and checks that the NIC receives the latter
// alone: frames keep their order, so what was sent before it has been judged when it arrives.
func (e *Env) OnlyArrives(wanted []byte, lost ...[]byte) {
	e.Helper()
	e.Send(append(slices.Clone(lost), wanted)...)
	e.Same(e.Receive(0, 1), [][]byte{wanted})
}

// Must fails the test on an error.
func (e *Env) Must(err error) {
	e.Helper()
	if err != nil {
		e.Fatalf("%v", err)
	}
}

// Counter reads one counter by its ethtool name; the name must exist.
func (e *Env) Counter(name string) uint64 {
	e.Helper()
	s, err := e.NIC.Stats(e.Ctx)
	e.Must(err)
	v, ok := e.since(s, name)
	if !ok {
		e.Fatalf("no counter %s", name)
	}
	return v
}

// begin takes what counters say before the test.
func (e *Env) begin() {
	e.Helper()
	if !e.Bench.Used {
		return
	}
	var err error
	e.before, err = e.NIC.Stats(e.Ctx)
	e.Must(err)
}

// since is how much a counter has grown since the test's start.
func (e *Env) since(s stats.Snapshot, name string) (v uint64, ok bool) {
	v, ok = s.Lookup(name)
	old, _ := e.before.Lookup(name)
	return v - old, ok
}

// Counters checks counters against wanted values.
func (e *Env) Counters(want map[string]uint64) {
	e.Helper()
	s, err := e.NIC.Stats(e.Ctx)
	e.Must(err)
	for name, v := range want {
		got, ok := e.since(s, name)
		if !ok {
			e.Errorf("no counter %s", name)
		} else if got != v {
			e.Errorf("%s: %d, want %d", name, got, v)
		}
	}
}

// receiveUntil serves receive queue q until done is closed.
func (e *Env) receiveUntil(q int, done <-chan struct{}, f func(p *driver.Packet)) {
	ctx, cancel := context.WithCancel(e.Ctx)
	defer cancel()
	go func() {
		select {
		case <-done:
			cancel()
		case <-ctx.Done():
		}
	}()
	rx := e.NIC.RxQueue(q)
	var pkts [32]driver.Packet
	for {
		n := rx.Poll(pkts[:])
		for i := range pkts[:n] {
			f(&pkts[i])
		}
		rx.Release(pkts[:n])
		if n > 0 {
			continue
		}
		if err := rx.Wait(ctx); err != nil {
			select {
			case <-done:
			default:
				e.Errorf("receive on queue %d: %v", q, err)
			}
			return
		}
	}
}

// whichQueue takes one frame from whichever queue has it and returns the queue's number.
func (e *Env) whichQueue(want []byte) int {
	e.Helper()
	queue := -1
	e.Until("frame on a queue", func() bool {
		var pkts [1]driver.Packet
		for q := range e.NIC.Queues() {
			rx := e.NIC.RxQueue(q)
			if rx.Poll(pkts[:]) == 1 {
				e.Same([][]byte{pkts[0].Data}, [][]byte{want})
				rx.Release(pkts[:])
				queue = q
				return true
			}
		}
		return false
	})
	return queue
}
