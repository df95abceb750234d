package device

import (
	"testing"
	"time"

	"cxkit/prm"
)

// TestProfilesAreCardsOfTheirKind brings up each kind of card and moves a frame each way.
func TestProfilesAreCardsOfTheirKind(t *testing.T) {
	for name, want := range map[string]struct {
		device   uint16
		major    uint16
		mpw      bool
		realTime uint8
	}{
		"cx4lx": {0x1015, 14, false, 0},
		"cx5":   {0x1017, 16, true, 0},
		"cx6dx": {0x101d, 22, true, 2},
		"cx7":   {0x1021, 28, true, 2},
		"bf2":   {0xa2d6, 24, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			b := dataBenchOn(t, newBench(t, Config{Profile: name}))
			if got := b.fn.Info().Device; got != want.device {
				t.Errorf("device %#x", got)
			}
			if v := b.regs.Load32(regFWRev); uint16(v) != want.major {
				t.Errorf("firmware %d.%d", uint16(v), v>>16)
			}
			caps := &b.function().caps
			if caps.Ethernet.EnhancedMultiPktSendWQE != want.mpw || caps.General.RQTSFormat != want.realTime || caps.General.SQTSFormat != want.realTime {
				t.Errorf("multi-packet %v, time formats %d and %d", caps.Ethernet.EnhancedMultiPktSendWQE, caps.General.RQTSFormat, caps.General.SQTSFormat)
			}
			rq, sq := b.receiver(4, 256), b.sender(4)
			rq.post(1)
			b.receive(testFrame(60, 1))
			if n := len(rq.cq.take()); n != 1 {
				t.Errorf("%d frames received", n)
			}
			sq.put(prm.WQEEnhancedMPSW, prm.CompletionAlways, eth{segs: []any{b.place(testFrame(60, 2))}}.bytes(b))
			sq.ring0()
			c := sq.cq.take()
			if ok := len(c) == 1 && c[0].Opcode() == prm.CQERequester; ok != want.mpw {
				t.Errorf("a multi-packet WQE ended with %v", c)
			}
		})
	}
	if len(Profiles()) != 5 {
		t.Errorf("profiles %v", Profiles())
	}
	if _, err := New(Config{Profile: "cx9"}); err == nil {
		t.Error("a card of no kind")
	}
}

// TestRealTimeStamps: a queue of real-time format shows UTC, and so do the registers.
func TestRealTimeStamps(t *testing.T) {
	b := dataBenchOn(t, newBench(t, Config{Profile: "cx6dx"}))
	b.clock.now = time.Unix(1_700_000_000, 123_456_789)
	rq := b.receiver(4, 256, func(in *prm.CreateRQIn) { in.Context.TSFormat = prm.TSFormatRealTime })
	sq := b.sender(4, func(in *prm.CreateSQIn) { in.Context.TSFormat = prm.TSFormatRealTime })
	rq.post(1)
	b.receive(testFrame(60, 1))
	sq.send(eth{segs: []any{b.place(testFrame(60, 1))}})
	const want = 1_700_000_000<<32 | 123_456_789
	for _, c := range append(rq.cq.take(), sq.cq.take()...) {
		if c.Timestamp() != want {
			t.Errorf("time stamp %#x, want %#x", c.Timestamp(), uint64(want))
		}
	}
	if h, l := b.regs.Load32(prm.InitSegRealTimeHOff), b.regs.Load32(prm.InitSegRealTimeLOff); uint64(h)<<32|uint64(l) != want {
		t.Errorf("registers %#x %#x", h, l)
	}
}
