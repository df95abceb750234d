package rig_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"sync"
	"testing"
	"time"

	"cxkit/device/wire"
	"cxkit/dma"
	"cxkit/driver"
	"cxkit/internal/rig"
	"cxkit/transport/inproc"
)

// playTime bounds a play; it is long because machines that test are slow.
const playTime = 50 * time.Second

// closeTime bounds Close. Firmware takes a second a command in some bubbles.
const closeTime = 5 * time.Minute

// played is what became of a port's frames.
type played struct {
	nic *driver.NIC
	// frames of each queue, in order; nil if play was told to keep none.
	frames [][][]byte
	// flags of each of them.
	flags [][]driver.RxFlags
}

// play brings a NIC up on heap memory, lets prepare change it (nil: nothing to change), plugs port in,
// receives want frames and waits for the port's end. The rig ends with the test.
func play(t *testing.T, port wire.Ender, c driver.Config, want int, prepare func(*driver.NIC)) *played {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), playTime)
	defer cancel()
	r, nic := open(t, rig.Config{Transport: inproc.Config{Kind: dma.Heap}}, c)
	if prepare != nil {
		prepare(nic)
	}
	if _, err := r.Card.Plug(0, port); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := port.Close(); err != nil {
			t.Error(err)
		}
	})
	p := &played{nic: nic, frames: make([][][]byte, nic.Queues()), flags: make([][]driver.RxFlags, nic.Queues())}
	p.receive(ctx, t, want)
	select {
	case <-port.Done():
	case <-ctx.Done():
		t.Fatal("the port does not come to its end")
	}
	if err := port.Err(); err != nil {
		t.Errorf("the port ended with %v", err)
	}
	return p
}

// open makes a rig and opens a NIC on its function 0; both end with the test.
func open(t *testing.T, rc rig.Config, c driver.Config) (*rig.Rig, *driver.NIC) {
	t.Helper()
	c.CheckBuffers = true
	return openUnchecked(t, rc, c)
}

// openUnchecked is open for a measurement, which the checks of buffers would be most of.
func openUnchecked(t *testing.T, rc rig.Config, c driver.Config) (*rig.Rig, *driver.NIC) {
	t.Helper()
	r, err := rig.New(rc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	f, err := r.Function(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	nic, err := driver.Open(t.Context(), f, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		if err := nic.Close(ctx); err != nil {
			t.Error(err)
		}
		if b := r.Card.Books().Functions[0]; !b.Clean() {
			t.Errorf("the card's books after close: %+v", b)
		}
	})
	return r, nic
}

// receive takes want frames from all queues, each served by a goroutine of its own.
func (p *played) receive(ctx context.Context, t *testing.T, want int) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex // guards got
	got := 0
	var workers sync.WaitGroup
	for q := range p.nic.Queues() {
		workers.Go(func() {
			rx := p.nic.RxQueue(q)
			pkts := make([]driver.Packet, 32)
			for {
				n := rx.Poll(pkts)
				for i := range pkts[:n] {
					p.frames[q] = append(p.frames[q], bytes.Clone(pkts[i].Data))
					p.flags[q] = append(p.flags[q], pkts[i].Rx)
				}
				rx.Release(pkts[:n])
				mu.Lock()
				got += n
				if got >= want {
					cancel()
				}
				mu.Unlock()
				if n == 0 && rx.Wait(ctx) != nil {
					return
				}
			}
		})
	}
	workers.Wait()
	if got != want {
		t.Fatalf("%d frames arrived, want %d", got, want)
	}
}

// counters compares counters with wanted values, once every frame the port gave out has been judged:
// passed by the port or counted as too short or too long.
func (p *played) counters(t *testing.T, given uint64, want map[string]uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), playTime)
	defer cancel()
	for {
		s, err := p.nic.Stats(ctx)
		if err != nil {
			t.Fatal(err)
		}
		judged := s.Get("rx_packets_phy") + s.Get("rx_undersize_pkts_phy") + s.Get("rx_oversize_pkts_phy")
		if judged > given {
			t.Fatalf("%d frames judged of %d", judged, given)
		}
		if judged < given {
			continue // reading the counters takes commands: the engine works meanwhile
		}
		for name, v := range want {
			if got, ok := s.Lookup(name); !ok {
				t.Errorf("no counter %s", name)
			} else if got != v {
				t.Errorf("%s: %d, want %d", name, got, v)
			}
		}
		break
	}
	for q := range p.nic.Queues() {
		var one [1]driver.Packet
		if p.nic.RxQueue(q).Poll(one[:]) != 0 {
			t.Errorf("queue %d has a frame too many:\n%s", q, hex.Dump(one[0].Data))
			p.nic.RxQueue(q).Release(one[:])
		}
	}
}

// tags counts the VLAN tags of a frame, two at most, and says where its Ethertype is.
func tags(frame []byte) (n, at int) {
	at = 12
	for n < 2 && len(frame) >= at+6 {
		if t := binary.BigEndian.Uint16(frame[at:]); t != 0x8100 && t != 0x88a8 {
			break
		}
		n++
		at += 4
	}
	return n, at
}

// fate is what has to become of a frame on a promiscuous NIC with an MTU of 1500.
type fate int

const (
	arrives fate = iota
	tooShort
	tooLong
)

// judge applies the rules on length, and pads what arrives.
func judge(frame []byte) (fate, []byte) {
	if len(frame) < 14 {
		return tooShort, nil
	}
	if n, _ := tags(frame); len(frame) > 14+1500+4*n {
		return tooLong, nil
	}
	if len(frame) < 60 {
		frame = append(bytes.Clone(frame), make([]byte, 60-len(frame))...)
	}
	return arrives, frame
}

// flowOf names the flow of a frame: frames of a flow keep their order. Both directions are one flow, as
// symmetric RSS makes them, and what is not TCP or UDP in a whole datagram is told apart by addresses.
func flowOf(frame []byte) string {
	src, dst, ports := endpoints(frame)
	if src == nil {
		return "no IP"
	}
	a, b := string(src), string(dst)
	if ports != nil {
		a, b = a+string(ports[:2]), b+string(ports[2:])
	}
	return min(a, b) + max(a, b)
}

// endpoints returns IP addresses and the four bytes of the TCP or UDP ports; nil for what is not there.
func endpoints(frame []byte) (src, dst, ports []byte) {
	_, at := tags(frame)
	var l4 []byte
	switch typ, p := binary.BigEndian.Uint16(frame[at:]), frame[at+2:]; {
	case typ == 0x0800 && len(p) >= 20:
		src, dst = p[12:16], p[16:20]
		if binary.BigEndian.Uint16(p[6:])&0x3fff == 0 && (p[9] == 6 || p[9] == 17) {
			l4 = p[min(len(p), int(p[0]&15)*4):]
		}
	case typ == 0x86dd && len(p) >= 40:
		src, dst = p[8:24], p[24:40]
		if p[6] == 6 || p[6] == 17 {
			l4 = p[40:]
		}
	}
	if len(l4) >= 4 {
		ports = l4[:4]
	}
	return src, dst, ports
}

func hasPorts(frame []byte) bool {
	_, _, ports := endpoints(frame)
	return ports != nil
}

// sameFrames compares frames byte for byte, in order.
func sameFrames(t *testing.T, what string, got, want [][]byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d frames, want %d", what, len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		if !bytes.Equal(got[i], want[i]) {
			t.Errorf("%s, frame %d:\ngot\n%swant\n%s", what, i, hex.Dump(got[i]), hex.Dump(want[i]))
			return
		}
	}
}

// sameFlows checks that each flow of want arrived whole, in order and on one queue.
func (p *played) sameFlows(t *testing.T, want [][]byte) {
	t.Helper()
	got, queue := map[string][][]byte{}, map[string]int{}
	for q, frames := range p.frames {
		for _, f := range frames {
			flow := flowOf(f)
			if old, ok := queue[flow]; ok && old != q {
				t.Fatalf("flow %x is on queues %d and %d", flow, old, q)
			}
			queue[flow] = q
			got[flow] = append(got[flow], f)
		}
	}
	sent := map[string][][]byte{}
	for _, f := range want {
		sent[flowOf(f)] = append(sent[flowOf(f)], f)
	}
	for flow, frames := range sent {
		sameFrames(t, "flow "+hex.EncodeToString([]byte(flow)), got[flow], frames)
	}
	if len(got) != len(sent) {
		t.Errorf("%d flows arrived, want %d", len(got), len(sent))
	}
}
