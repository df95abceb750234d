package drivertest

import (
	"encoding/binary"
	"errors"
	"slices"

	"cxkit/driver"
)

func portTests() []Test {
	return []Test{
		{Name: "LinkIsUpWithACable", Run: func(e *Env) {
			e.Until("link up", func() bool { return e.NIC.Link().Up })
			if e.NIC.Link().Speed == 0 {
				e.Error("an up link has no speed")
			}
		}},
		{Name: "LinkFollowsTheCable", Run: func(e *Env) {
			changes := e.NIC.LinkChanges(e.Ctx)
			e.waitLink(changes, true)
			for range 3 {
				e.Bench.Far.SetLink(false)
				e.waitLink(changes, false)
				e.Bench.Far.SetLink(true)
				e.waitLink(changes, true)
			}
			e.OnlyArrives(Frame(e.NIC.MAC(), 60, 1))
			want := Frames(peer(), 1, 60)
			e.Transmit(0, want...)
			e.Same(e.Arrived(1), want)
		}},
		{Name: "LinkCanBeSetDown", Run: func(e *Env) {
			changes := e.NIC.LinkChanges(e.Ctx)
			e.waitLink(changes, true)
			e.Must(e.NIC.SetLink(e.Ctx, false))
			e.waitLink(changes, false)
			e.Must(e.NIC.SetLink(e.Ctx, true))
			e.waitLink(changes, true)
			e.OnlyArrives(Frame(e.NIC.MAC(), 60, 1))
		}},
		{Name: "FECCanBeSet", Run: func(e *Env) {
			changes := e.NIC.LinkChanges(e.Ctx)
			e.waitLink(changes, true)
			before, err := e.NIC.FEC(e.Ctx)
			if errors.Is(err, driver.ErrNoFEC) {
				if err := e.NIC.SetFEC(e.Ctx, driver.FECRS); !errors.Is(err, driver.ErrNoFEC) {
					e.Errorf("a card without FEC lets it be set: %v", err)
				}
				return
			}
			e.Must(err)
			if !slices.Contains(before.Supported, before.Active) {
				e.Errorf("at first: %+v", before)
			}
			// A real far end may have to be told; the kind in force is one that it takes.
			for _, f := range []driver.FEC{before.Active, before.Configured} {
				e.Must(e.NIC.SetFEC(e.Ctx, f))
				e.Until("link up", func() bool { return e.NIC.Link().Up })
				e.Until("FEC in force", func() bool {
					s, err := e.NIC.FEC(e.Ctx)
					e.Must(err)
					return s.Configured == f && s.Active == before.Active
				})
			}
			for f := driver.FECOff; f <= driver.FECLLRS+1; f++ {
				if slices.Contains(before.Supported, f) {
					continue
				}
				if err := e.NIC.SetFEC(e.Ctx, f); err == nil {
					e.Errorf("%v is not refused", f)
				}
			}
			e.OnlyArrives(Frame(e.NIC.MAC(), 60, 1))
		}},
		{Name: "PausesCanBeSet", Run: func(e *Env) {
			e.Until("link up", func() bool { return e.NIC.Link().Up })
			before, err := e.NIC.Pauses(e.Ctx)
			e.Must(err)
			// Whether it is obeyed or not, a pause frame is counted and goes no further than the port; what it stops
			// goes on when its time is over.
			pause := pauseFrame(0xffff)
			for i, p := range []driver.Pauses{{}, {Rx: true}, {Tx: true}, {PrioritiesRx: 1 << 3, PrioritiesTx: 1 << 5}, before} {
				e.Must(e.NIC.SetPauses(e.Ctx, p))
				got, err := e.NIC.Pauses(e.Ctx)
				e.Must(err)
				if got != p {
					e.Errorf("set %v, read %v", p, got)
				}
				e.OnlyArrives(Frame(e.NIC.MAC(), 60, uint32(i)), pause)
				want := Frame(peer(), 60, uint32(i))
				e.Transmit(0, want)
				e.Same(e.Arrived(1), [][]byte{want})
				e.Counters(map[string]uint64{"rx_pause_ctrl_phy": uint64(i) + 1})
			}
		}},
		{Name: "SendingWhileTheLinkIsDownLosesOnlyFrames", Run: func(e *Env) {
			changes := e.NIC.LinkChanges(e.Ctx)
			e.waitLink(changes, true)
			e.Bench.Far.SetLink(false)
			e.waitLink(changes, false)
			e.Transmit(0, Frames(peer(), 100, 60)...)
			e.Flush(0)
			e.Bench.Far.SetLink(true)
			e.waitLink(changes, true)
			want := Frame(driver.MAC{2, 9, 9, 9, 9, 9}, 60, 7)
			e.Transmit(0, want)
			e.Same(e.Arrived(1), [][]byte{want})
		}},
		{Name: "MTUCanGrow", Config: driver.Config{BufferSize: 9728}, Run: func(e *Env) {
			mac := e.NIC.MAC()
			e.OnlyArrives(Frame(mac, 60, 0), Frame(mac, 1515, 0))
			e.Must(e.NIC.SetMTU(e.Ctx, 9000))
			if e.NIC.MTU() != 9000 {
				e.Errorf("MTU is %d", e.NIC.MTU())
			}
			e.OnlyArrives(Frame(mac, 9014, 1), Frame(mac, 9015, 0))
			big := Frame(peer(), 9014, 2)
			e.Transmit(0, big)
			e.Same(e.Arrived(1), [][]byte{big})
			e.Must(e.NIC.SetMTU(e.Ctx, 1000))
			e.OnlyArrives(Frame(mac, 1014, 3), Frame(mac, 1015, 0))
		}},
		{Name: "MTUBeyondTheBuffersIsRefused", Run: func(e *Env) {
			for _, mtu := range []int{9000, 0, -1, 10, 1 << 20} {
				if e.NIC.SetMTU(e.Ctx, mtu) == nil {
					e.Errorf("MTU %d is not refused", mtu)
				}
			}
			e.OnlyArrives(Frame(e.NIC.MAC(), 1514, 1))
		}},
		{Name: "JumboFromTheStart", Config: driver.Config{MTU: driver.MaxMTU}, Run: func(e *Env) {
			e.OnlyArrives(Frame(e.NIC.MAC(), driver.MaxMTU+14, 1), Frame(e.NIC.MAC(), driver.MaxMTU+15, 1))
		}},
	}
}

// pauseFrame asks for a pause of the whole port (IEEE 802.3 annex 31B), in units of 512 bit times.
func pauseFrame(quanta uint16) []byte {
	f := make([]byte, 60)
	copy(f, []byte{0x01, 0x80, 0xc2, 0, 0, 1, 2, 0, 0, 0, 0, 9, 0x88, 0x08, 0, 1})
	binary.BigEndian.PutUint16(f[16:], quanta)
	return f
}

// waitLink reads changes until the link is in the wanted state.
func (e *Env) waitLink(changes <-chan driver.Link, up bool) {
	e.Helper()
	for {
		select {
		case l, ok := <-changes:
			if !ok {
				e.Fatalf("link changes ended, waiting for up=%v", up)
			}
			if l.Up == up {
				return
			}
		case <-e.Ctx.Done():
			e.Fatalf("link up=%v: %v", up, e.Ctx.Err())
		}
	}
}
