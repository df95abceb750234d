package device

import (
	"testing"
	"time"

	"cxkit/prm"
)

// held is a bench whose lossless wire has two frames of priority 5 for one receive buffer.
func held(t *testing.T, pause prm.RegPFCC) (*dataBench, *testRQ) {
	b := newDataBench(t)
	b.port.lossless = true
	if _, err := b.card.Plug(0, b.port); err != nil {
		t.Fatal(err)
	}
	pause.LocalPort, pause.PrioMaskTX, pause.PrioMaskRX = 1, 0xff, 0xff
	b.reg(prm.AccessRegWrite, prm.RegIDPFCC, &pause)
	q := b.receiver(4, 256)
	q.post(1)
	frame := udpFrame(0, 1, 2, 3, 4, 0x81000000|5<<13|1)
	b.receive(frame, frame)
	return b, q
}

// priorityCounters reads PPCNT.
func (b *bench) priorityCounters(priority uint8) (c prm.PPCNTPerPriority) {
	reg := prm.RegPPCNT{LocalPort: 1, Grp: prm.PPCNTGroupPerPriority, PrioTC: priority}
	b.reg(prm.AccessRegRead, prm.RegIDPPCNT, &reg)
	c.Get(reg.CounterSet[:])
	return c
}

// A frame that waits for a buffer is a pause of its priority, or of the port: a pause frame as it begins, one as
// it ends, and the time between them, which grows while it lasts.
func TestHeldFramesPauseThePeer(t *testing.T) {
	for name, c := range map[string]struct {
		set    prm.RegPFCC
		counts uint8
		frames uint64
	}{
		"of the priority":        {prm.RegPFCC{PFCTX: 1 << 5}, 5, 1},
		"of the port":            {prm.RegPFCC{PPTX: true}, 0, 1},
		"of another priority":    {prm.RegPFCC{PFCTX: 1 << 4}, 5, 0},
		"without leave to do so": {prm.RegPFCC{PPRX: true, PFCRX: 0xff}, 5, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b, q := held(t, c.set)
			b.clock.advance(3 * time.Millisecond)
			b.settle()
			if got := b.priorityCounters(c.counts); got.TXPause != c.frames || got.TXPauseDuration != 3000*c.frames {
				t.Errorf("while it lasts: %d frames, %d us", got.TXPause, got.TXPauseDuration)
			}
			b.clock.advance(2 * time.Millisecond)
			q.post(1)
			b.settle()
			b.clock.advance(time.Second)
			b.settle()
			if got := b.priorityCounters(c.counts); got.TXPause != 2*c.frames || got.TXPauseDuration != 5000*c.frames {
				t.Errorf("afterwards: %d frames, %d us", got.TXPause, got.TXPauseDuration)
			}
			if got := b.card.ports[0].ieee8023(); got.APauseMACCtrlFramesTransmitted != 2*c.frames || got.AMACControlFramesTransmitted != 2*c.frames {
				t.Errorf("802.3: %d pause frames of %d", got.APauseMACCtrlFramesTransmitted, got.AMACControlFramesTransmitted)
			}
		})
	}
}

// A link that goes down ends a pause, and tells nobody.
func TestPauseEndsWithTheLink(t *testing.T) {
	b, _ := held(t, prm.RegPFCC{PPTX: true})
	b.clock.advance(time.Millisecond)
	b.reg(prm.AccessRegWrite, prm.RegIDPAOS, &prm.RegPAOS{LocalPort: 1, ASE: true, AdminStatus: prm.PortAdminDown})
	b.clock.advance(time.Second)
	b.settle()
	if got := b.priorityCounters(0); got.TXPause != 1 || got.TXPauseDuration != 1000 {
		t.Errorf("%d frames, %d us, want 1 and 1000", got.TXPause, got.TXPauseDuration)
	}
}

// A peer's pause stops what is sent, of the port or of a priority, until its time is over or the peer says so.
func TestPausesOfThePeerStopSending(t *testing.T) {
	global := func(quanta byte) []byte { return pauseFrame(0, 1, quanta, 0) }
	first := func(quanta byte) []byte { return pauseFrame(1, 1, 0, 1, quanta, 0) }
	fourth := func(quanta byte) []byte { return pauseFrame(1, 1, 0, 1<<3, 0, 0, 0, 0, 0, 0, quanta, 0) }
	for name, c := range map[string]struct {
		set      prm.RegPFCC
		frame    func(quanta byte) []byte
		priority uint8
		stops    bool // what an SQ of the first priority sends
		counted  bool
	}{
		"of the port":         {prm.RegPFCC{PPRX: true}, global, 0, true, true},
		"of its priority":     {prm.RegPFCC{PFCRX: 1}, first, 0, true, true},
		"of another priority": {prm.RegPFCC{PFCRX: 0xff}, fourth, 3, false, true},
		"that is not obeyed":  {prm.RegPFCC{PFCRX: 1, PPTX: true}, global, 0, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newDataBench(t)
			c.set.LocalPort, c.set.PrioMaskTX, c.set.PrioMaskRX = 1, 0xff, 0xff
			b.reg(prm.AccessRegWrite, prm.RegIDPFCC, &c.set)
			sq := b.sender(4)
			b.receiver(4, 256)
			length := b.card.data.ports[0].quantum(b.card) << 15
			sends := func(want int) {
				t.Helper()
				b.settle()
				if b.port.sent != want {
					t.Fatalf("%d frames sent, want %d", b.port.sent, want)
				}
			}
			sent := func(n int, stopped bool) int {
				if stopped {
					return n - 1
				}
				return n
			}
			b.receive(c.frame(0x80))
			sq.send(eth{segs: []any{b.place(testFrame(60, 1))}})
			sq.ring0()
			sends(sent(1, c.stops))
			b.clock.advance(length / 2)
			sends(sent(1, c.stops))
			b.clock.advance(length)
			sends(1)
			b.receive(c.frame(0x80))
			sq.send(eth{segs: []any{b.place(testFrame(60, 2))}})
			sq.ring0()
			sends(sent(2, c.stops))
			b.clock.advance(length / 4)
			b.receive(c.frame(0))
			sends(2)
			got := b.priorityCounters(c.priority)
			want, ends := uint64((length + length/4).Microseconds()), uint64(2)
			if !c.counted {
				want, ends = 0, 0
			}
			if got.RXPauseDuration != want || got.RXPauseTransition != ends {
				t.Errorf("%d us, %d ends, want %d, %d", got.RXPauseDuration, got.RXPauseTransition, want, ends)
			}
		})
	}
}

func pauseFrame(body ...byte) []byte {
	f := make([]byte, 60)
	copy(f[12:], append([]byte{0x88, 0x08}, body...))
	return f
}
