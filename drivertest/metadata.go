package drivertest

import (
	"errors"
	"time"

	"cxkit/driver"
)

// What a packet says of its frame.
func metadataTests() []Test {
	return []Test{
		{Name: "ChecksumStatesSayWhatIsKnown", Run: checksumStates},
		{Name: "TimestampsAreTimeIfAsked", Options: Options{Card: "cx6dx"},
			Config: driver.Config{Offloads: driver.Offloads{RealTime: true}}, Run: func(e *Env) {
				before := time.Now().Add(-time.Minute)
				e.Send(Frame(e.NIC.MAC(), 60, 1))
				e.ReceiveEach(0, 1, func(p *driver.Packet) {
					if at := p.RealTime(); at.Before(before) || at.After(time.Now().Add(time.Minute)) {
						e.Errorf("received at %v", at)
					}
				})
				e.Transmit(0, Frame(peer(), 60, 1))
				e.Arrived(1)
			}},
		{Name: "FeaturesSayWhatIsOnAndWhatThereIs", Config: driver.Config{Offloads: driver.Offloads{LargeSend: true}}, Run: func(e *Env) {
			on := map[string]bool{}
			for _, f := range e.NIC.Features() {
				if f.On && !f.Supported {
					e.Errorf("%s is on and not supported", f.Name)
				}
				on[f.Name] = f.On
			}
			if !on["tcp-segmentation-offload"] || on["rx_striding_rq"] {
				e.Errorf("features on: %v", on)
			}
			if l := e.NIC.Limits(); l.LargeSend < 1<<16 || l.RxRing < 1024 || l.Queues < 1 {
				e.Errorf("limits %+v", l)
			}
		}},
		{Name: "OffloadsThatTheCardLacksAreRefused", Options: Options{Card: "cx4lx"}, Run: func(e *Env) {
			e.Close()
			for what, o := range map[string]driver.Offloads{
				"real-time timestamps":       {RealTime: true},
				"enhanced multi-packet WQEs": {MultiPacket: true},
			} {
				nic, err := driver.Open(e.Ctx, e.Bench.Function, driver.Config{CheckBuffers: true, Offloads: o})
				var lacks *driver.UnsupportedError
				if !errors.As(err, &lacks) || lacks.What != what {
					e.Errorf("%s: error %v", what, err)
				}
				if err == nil {
					e.Must(nic.Close(e.Ctx))
				}
			}
			e.Open(driver.Config{}) // what was refused left nothing behind
			e.Transmit(0, Frame(peer(), 60, 1))
			e.Arrived(1)
		}},
	}
}

func checksumStates(e *Env) {
	udp := Flow{Dst: e.NIC.MAC(), Src: peer(), UDP: true}.Packet(100, 1)
	wrong := Flow{Dst: e.NIC.MAC(), Src: peer(), UDP: true}.Packet(100, 2)
	wrong[len(wrong)-1] ^= 1
	icmp := Flow{Dst: e.NIC.MAC(), Src: peer(), UDP: true}.Packet(100, 3)
	icmp[14+9] = 1
	short := Flow{Dst: e.NIC.MAC(), Src: peer(), UDP: true}.Packet(18, 4)
	short[14+9] = 1
	for name, c := range map[string]struct {
		frame []byte
		state driver.ChecksumState
	}{
		"right":         {udp, driver.ChecksumUnnecessary},
		"wrong":         {wrong, driver.ChecksumComplete},
		"ICMP":          {icmp, driver.ChecksumComplete},
		"ICMP, padded?": {short, driver.ChecksumNone},
		"no IP":         {Frame(e.NIC.MAC(), 100, 1), driver.ChecksumNone},
	} {
		e.received(c.frame, func(p *driver.Packet) {
			if p.ChecksumState() != c.state {
				e.Errorf("%s: %v, want %v", name, p.ChecksumState(), c.state)
			}
			if c.state == driver.ChecksumComplete && !sameSum(p.Checksum, sum(c.frame[14:])) {
				e.Errorf("%s: sum %#04x, want %#04x", name, p.Checksum, sum(c.frame[14:]))
			}
		})
	}
}
