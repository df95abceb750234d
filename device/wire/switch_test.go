package wire

import (
	"bytes"
	"encoding/binary"
	"sync"
	"testing"
	"time"
)

// stationFrame is a frame between two stations; station 0 is everybody.
func stationFrame(to, from byte, n int, mark uint32) []byte {
	f := make([]byte, max(n, 60))
	address := func(b []byte, s byte) {
		copy(b, []byte{0x02, 0, 0, 0, 0, s})
		if s == 0 {
			copy(b, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
		}
	}
	address(f, to)
	address(f[6:], from)
	binary.BigEndian.PutUint32(f[14:], mark)
	return f
}

// switchBench is a switch with some ports, each with a card that would be woken.
type switchBench struct {
	*testing.T
	sw    *Switch
	ports []*SwitchPort
	woken []chan struct{}
}

func newSwitchBench(t *testing.T, o SwitchOptions, n int) *switchBench {
	b := &switchBench{T: t, sw: NewSwitch(o)}
	t.Cleanup(func() { b.sw.Close() })
	for range n {
		p, err := b.sw.NewPort()
		if err != nil {
			t.Fatal(err)
		}
		woken := make(chan struct{}, 1)
		p.Attach(func() { signal(woken) })
		b.ports, b.woken = append(b.ports, p), append(b.woken, woken)
	}
	return b
}

func (b *switchBench) send(port int, frames ...[]byte) {
	b.Helper()
	if n := b.ports[port].Transmit(frames); n != len(frames) {
		b.Fatalf("port %d took %d of %d frames", port, n, len(frames))
	}
}

// receives checks what comes out of a port.
func (b *switchBench) receives(port int, want ...[]byte) {
	b.Helper()
	var got [][]byte
	frames := make([][]byte, 8)
	for {
		n := b.ports[port].Receive(frames)
		if n == 0 {
			break
		}
		for _, f := range frames[:n] {
			got = append(got, bytes.Clone(f))
		}
	}
	if len(got) != len(want) {
		b.Fatalf("port %d received %d frames, want %d", port, len(got), len(want))
	}
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			b.Errorf("port %d, frame %d:\n%x, want\n%x", port, i, got[i], want[i])
		}
	}
}

func TestSwitchFloodsUnknownAndGroupAddressesAndLearnsSources(t *testing.T) {
	b := newSwitchBench(t, SwitchOptions{}, 3)
	hello := stationFrame(2, 1, 60, 1)
	b.send(0, hello)
	b.receives(0)
	b.receives(1, hello)
	b.receives(2, hello)

	answer := stationFrame(1, 2, 100, 2)
	b.send(1, answer)
	b.receives(0, answer)
	b.receives(2)

	known := [][]byte{stationFrame(2, 1, 60, 3), stationFrame(2, 1, 1514, 4), stationFrame(9, 1, 60, 5), stationFrame(2, 1, 60, 6)}
	b.send(0, known...)
	b.receives(1, known...)
	b.receives(2, known[2])

	all := stationFrame(0, 3, 60, 7)
	b.send(2, all)
	b.receives(0, all)
	b.receives(1, all)

	own := stationFrame(1, 9, 60, 8) // station 1 is behind the port it comes from
	b.send(0, own)
	b.receives(1)
	b.receives(2)

	moved := stationFrame(2, 1, 60, 9) // station 1 is at port 2 now
	b.send(2, moved)
	b.receives(1, moved)
	b.send(1, answer)
	b.receives(2, answer)
	b.receives(0)
}

func TestSwitchForgetsOldAddressesAndThoseOfPortsThatGo(t *testing.T) {
	clock := &steppedClock{now: time.Unix(0, 0)}
	b := newSwitchBench(t, SwitchOptions{Clock: clock}, 3)
	b.send(0, stationFrame(0, 1, 60, 0))
	b.receives(1, stationFrame(0, 1, 60, 0))
	b.receives(2, stationFrame(0, 1, 60, 0))
	to1 := stationFrame(1, 2, 60, 1)
	clock.now = clock.now.Add(addressAge)
	b.send(1, to1)
	b.receives(0, to1)
	b.receives(2)
	clock.now = clock.now.Add(time.Second)
	b.send(1, to1)
	b.receives(0, to1)
	b.receives(2, to1)

	b.send(0, stationFrame(0, 1, 60, 2))
	b.receives(1, stationFrame(0, 1, 60, 2))
	b.receives(2, stationFrame(0, 1, 60, 2))
	b.ports[0].Close()
	b.send(1, to1)
	b.receives(2, to1)
	b.receives(0)
}

// steppedClock is a clock that tests move; the switch sets no timers.
type steppedClock struct {
	SystemClock
	now time.Time
}

func (c *steppedClock) Now() time.Time { return c.now }

func TestSwitchHoldsTheSenderOfOneReceiverAndDropsFloods(t *testing.T) {
	b := newSwitchBench(t, SwitchOptions{Ring: 4096}, 3)
	b.send(1, stationFrame(0, 2, 60, 0))
	b.receives(0, stationFrame(0, 2, 60, 0))
	b.receives(2, stationFrame(0, 2, 60, 0))
	var burst [][]byte
	for i := range uint32(10) {
		burst = append(burst, stationFrame(2, 1, 1000, i))
	}
	n := b.ports[0].Transmit(burst)
	if n == 0 || n >= len(burst) {
		t.Fatalf("a full ring took %d of %d frames", n, len(burst))
	}
	// Port 2 is another sender: it waits as well, and a flood waits for nobody.
	if b.ports[2].Transmit([][]byte{stationFrame(2, 3, 1500, 99)}) != 0 {
		t.Fatal("there was room for another sender")
	}
	b.send(0, stationFrame(0, 1, 1000, 50))
	for _, w := range b.woken {
		select {
		case <-w:
		default:
		}
	}
	b.receives(1, burst[:n]...)
	for _, i := range []int{0, 2} {
		select {
		case <-b.woken[i]:
		default:
			t.Errorf("port %d was not woken when there was room", i)
		}
	}
	b.send(0, burst[n])
	b.receives(1, burst[n])
	if c := b.ports[1].Counters(); c.RxDropped == 0 {
		t.Errorf("the flood's frame was not counted: %+v", c)
	}
}

func TestSwitchDropsForPortsThatNobodyEmpties(t *testing.T) {
	for name, leave := range map[string]func(p *SwitchPort){
		"detached": func(p *SwitchPort) { p.Attach(nil) },
		"pulled":   func(p *SwitchPort) { p.SetLink(false) },
		"closed":   func(p *SwitchPort) { p.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			b := newSwitchBench(t, SwitchOptions{Ring: 4096}, 2)
			b.send(1, stationFrame(0, 2, 60, 0))
			b.receives(0, stationFrame(0, 2, 60, 0))
			for b.ports[0].Transmit([][]byte{stationFrame(2, 1, 1000, 0)}) == 1 {
			}
			signal(b.woken[0])
			<-b.woken[0]
			leave(b.ports[1])
			select {
			case <-b.woken[0]:
			default:
				t.Error("the sender that waits was not told")
			}
			for i := range uint32(20) {
				b.send(0, stationFrame(2, 1, 1000, i))
			}
		})
	}
}

func TestSwitchIgnoresFramesThatAreNone(t *testing.T) {
	b := newSwitchBench(t, SwitchOptions{}, 2)
	group := stationFrame(2, 1, 60, 0)
	group[6] |= 1 // no station sends from a group address: it is not learnt
	b.send(0, nil, make([]byte, 13), group)
	b.receives(1, group)
	back := stationFrame(2, 3, 60, 0)
	copy(back, group[6:12])
	b.send(1, back)
	b.receives(0, back)
	if c := b.ports[0].Counters(); c.TxDropped != 2 || c.TxFrames != 1 {
		t.Errorf("%+v", c)
	}
}

func TestSwitchLearnsABoundedNumberOfAddresses(t *testing.T) {
	b := newSwitchBench(t, SwitchOptions{}, 2)
	frame := stationFrame(0, 1, 60, 0)
	for i := range uint32(2 * maxSwitchAddresses) {
		binary.BigEndian.PutUint32(frame[8:], i)
		b.ports[0].Transmit([][]byte{frame})
	}
	if n := len(b.sw.addresses); n != maxSwitchAddresses {
		t.Errorf("%d addresses, want %d", n, maxSwitchAddresses)
	}
	for {
		if _, err := b.sw.NewPort(); err != nil {
			break
		}
		if len(*b.sw.ports.Load()) > maxSwitchPorts {
			t.Fatal("ports without bound")
		}
	}
}

// TestSwitchCarriesManySendersInOrder: every sender's frames arrive in its order, none twice, none lost.
func TestSwitchCarriesManySendersInOrder(t *testing.T) {
	const senders, each = 3, 5000
	b := newSwitchBench(t, SwitchOptions{Ring: 16 << 10}, senders+1)
	b.send(senders, stationFrame(0, senders+1, 60, 0))
	var wg sync.WaitGroup
	for s := range senders {
		b.receives(s, stationFrame(0, senders+1, 60, 0))
		wg.Go(func() {
			for i := uint32(0); i < each; {
				burst := [][]byte{stationFrame(senders+1, byte(s+1), 60, i)}
				for k := i + 1; k < each && len(burst) < 16; k++ {
					burst = append(burst, stationFrame(senders+1, byte(s+1), 60+int(k%200), k))
				}
				if n := b.ports[s].Transmit(burst); n > 0 {
					i += uint32(n)
				} else {
					<-b.woken[s]
				}
			}
		})
	}
	next := make(map[byte]uint32)
	frames := make([][]byte, 32)
	for total := 0; total < senders*each; {
		n := b.ports[senders].Receive(frames)
		if n == 0 {
			<-b.woken[senders]
		}
		for _, f := range frames[:n] {
			s, mark := f[11], binary.BigEndian.Uint32(f[14:])
			if mark != next[s] {
				t.Fatalf("sender %d: frame %d, want %d", s, mark, next[s])
			}
			next[s]++
		}
		total += n
	}
	wg.Wait()
}

func TestSwitchAllocatesNothing(t *testing.T) {
	b := newSwitchBench(t, SwitchOptions{}, 2)
	b.send(0, stationFrame(0, 1, 60, 0))
	b.send(1, stationFrame(1, 2, 60, 0))
	burst := [][]byte{stationFrame(2, 1, 60, 0), stationFrame(2, 1, 60, 1), stationFrame(0, 1, 60, 2)}
	frames := make([][]byte, 8)
	if n := testing.AllocsPerRun(100, func() {
		b.ports[0].Transmit(burst)
		for b.ports[1].Receive(frames) > 0 {
		}
	}); n != 0 {
		t.Errorf("%v allocations a burst", n)
	}
}
