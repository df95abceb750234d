package device

import (
	"testing"
	"time"

	"cxkit/prm"

	faults "cxkit/device/fault"
)

// FuzzDeviceWithFaults is FuzzDevice on a card that breaks: the input begins with a few faults.
func FuzzDeviceWithFaults(f *testing.F) {
	for i := range faults.Kinds() {
		f.Add(append([]byte{0, byte(i), 1, 0}, fuzzTraffic()...))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		b := newSizedBench(t, Config{Seed: 1, OtherLatency: Latency{Max: time.Microsecond}}, 512<<10, 128)
		h := &hostile{bench: b, input: input}
		p := faults.Plan{Seed: 1}
		for range 1 + h.byte()>>6 {
			p.Faults = append(p.Faults, h.fault())
		}
		if err := p.Check(); err != nil {
			t.Fatalf("%+v: %v", p, err)
		}
		h.setUp()
		if err := b.card.Inject(p); err != nil {
			t.Fatal(err)
		}
		for len(h.input) > 0 {
			h.act()
		}
		for range 3 {
			b.clock.advance(time.Second)
			b.settle()
		}
		if err := b.fn.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		if books := b.card.Books().Functions[0]; !books.Clean() {
			t.Errorf("books after a reset: %+v", books)
		}
	})
}

// fault makes a valid fault of bytes.
func (h *hostile) fault() faults.Fault {
	kinds := faults.Kinds()
	f := faults.Fault{Kind: kinds[int(h.byte())%len(kinds)]}
	small, flags := int(h.byte()), h.byte()
	f.Skip, f.Times = small&7, small>>3&3
	if flags&1 != 0 {
		f.For = time.Duration(small) * time.Millisecond
	}
	if flags&2 != 0 {
		f.Probability = 0.5
	}
	switch f.Kind {
	case faults.Late, faults.Ghost, faults.LateCQE:
		f.Delay = time.Duration(1+small) * time.Millisecond
	case faults.WrongSlot, faults.MisdirectedInterrupt:
		f.To = small & 31
	case faults.HalfOutput:
		f.Bytes = small
	case faults.Storm:
		f.Pages = 1 + small*32
	case faults.PortErrors:
		all := []faults.LineError{faults.BadFCS, faults.BadAlignment, faults.BadSymbol, faults.Fragment, faults.Jabber, faults.UncorrectedSymbol, faults.CorrectedBit}
		f.What, f.Count = all[small%len(all)], 1+small
	case faults.PCIeErrors:
		f.What, f.Count = []faults.LineError{faults.OwnRecovery, faults.PeerRecovery}[small&1], 1+small
	case faults.LostDoorbell:
		f.Doorbell = []faults.Doorbell{"", faults.SQBell, faults.CQBell, faults.EQBell}[flags>>2&3]
	case faults.LostEQE:
		f.Events = []prm.EventType{prm.EventType(small)}
	}
	return f
}
