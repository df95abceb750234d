package drivertest

import (
	"cxkit/driver"
)

func addressTests() []Test {
	other := driver.MAC{0x02, 0, 0, 0, 0, 0x77}
	group := driver.MAC{0x01, 0x00, 0x5e, 0, 0, 0x42}
	return []Test{
		{Name: "IgnoresFramesToOthers", Run: func(e *Env) {
			e.OnlyArrives(Frame(e.NIC.MAC(), 60, 1), Frame(other, 60, 0), Frame(group, 60, 0))
		}},
		{Name: "ReceivesBroadcast", Run: func(e *Env) {
			e.OnlyArrives(Frame(Broadcast(), 60, 1))
		}},
		{Name: "PromiscuousReceivesEverything", Config: driver.Config{Promiscuous: true}, Run: func(e *Env) {
			want := [][]byte{Frame(other, 60, 1), Frame(group, 60, 2), Frame(Broadcast(), 60, 3), Frame(e.NIC.MAC(), 60, 4)}
			e.Send(want...)
			e.Same(e.Receive(0, 4), want)
		}},
		{Name: "PromiscuousSwitchesWhileRunning", Run: func(e *Env) {
			for range 5 {
				e.Must(e.NIC.SetPromiscuous(e.Ctx, true))
				e.OnlyArrives(Frame(other, 60, 1))
				e.Must(e.NIC.SetPromiscuous(e.Ctx, false))
				e.OnlyArrives(Frame(e.NIC.MAC(), 60, 2), Frame(other, 60, 1))
			}
		}},
		{Name: "AllMulticastReceivesGroups", Config: driver.Config{AllMulticast: true}, Run: func(e *Env) {
			e.OnlyArrives(Frame(group, 60, 1), Frame(other, 60, 0))
			e.Must(e.NIC.SetAllMulticast(e.Ctx, false))
			e.OnlyArrives(Frame(e.NIC.MAC(), 60, 2), Frame(group, 60, 0))
			e.Must(e.NIC.SetAllMulticast(e.Ctx, true))
			e.OnlyArrives(Frame(group, 60, 3))
		}},
		{Name: "MulticastAddressesComeAndGo", Run: func(e *Env) {
			e.OnlyArrives(Frame(e.NIC.MAC(), 60, 1), Frame(group, 60, 0))
			e.Must(e.NIC.AddMulticast(e.Ctx, group))
			next := group
			next[5]++
			e.OnlyArrives(Frame(group, 60, 2), Frame(next, 60, 0))
			if e.NIC.AddMulticast(e.Ctx, group) == nil {
				e.Error("an address added twice is not refused")
			}
			e.Must(e.NIC.RemoveMulticast(e.Ctx, group))
			e.OnlyArrives(Frame(e.NIC.MAC(), 60, 3), Frame(group, 60, 0))
		}},
		{Name: "UnicastAddressesComeAndGo", Run: func(e *Env) {
			e.Must(e.NIC.AddMAC(e.Ctx, other))
			e.OnlyArrives(Frame(other, 60, 1))
			e.OnlyArrives(Frame(e.NIC.MAC(), 60, 2))
			if e.NIC.AddMAC(e.Ctx, other) == nil {
				e.Error("an address added twice is not refused")
			}
			if e.NIC.AddMAC(e.Ctx, group) == nil {
				e.Error("a multicast address is taken for a unicast one")
			}
			e.Must(e.NIC.RemoveMAC(e.Ctx, other))
			e.OnlyArrives(Frame(e.NIC.MAC(), 60, 3), Frame(other, 60, 0))
			if e.NIC.RemoveMAC(e.Ctx, other) == nil {
				e.Error("an address that is not there can be removed")
			}
			if e.NIC.RemoveMAC(e.Ctx, e.NIC.MAC()) == nil {
				e.Error("the NIC's own address can be removed")
			}
			e.OnlyArrives(Frame(e.NIC.MAC(), 60, 4))
		}},
		{Name: "ManyAddresses", Run: func(e *Env) {
			const n = 64
			mac := func(i int) driver.MAC { return driver.MAC{0x02, 0xaa, 0, 0, 0, byte(i)} }
			for i := range n {
				e.Must(e.NIC.AddMAC(e.Ctx, mac(i)))
			}
			for i := range n {
				e.OnlyArrives(Frame(mac(i), 60, uint32(i)), Frame(driver.MAC{0x02, 0xaa, 0, 0, 1, byte(i)}, 60, 0))
			}
			for i := range n {
				e.Must(e.NIC.RemoveMAC(e.Ctx, mac(i)))
			}
			e.OnlyArrives(Frame(e.NIC.MAC(), 60, 1), Frame(mac(0), 60, 0), Frame(mac(n-1), 60, 0))
		}},
		{Name: "OwnAddressFromConfig", Config: driver.Config{MAC: other}, Run: func(e *Env) {
			if e.NIC.MAC() != other {
				e.Errorf("MAC is %v", e.NIC.MAC())
			}
			e.OnlyArrives(Frame(other, 60, 1), Frame(driver.MAC{0x02, 0, 0, 0, 0, 0x78}, 60, 0))
		}},
		{Name: "VLANFilterLetsOnlyAddedVLANsIn", Config: driver.Config{VLANFilter: true}, Run: func(e *Env) {
			tagged := func(vid uint16) []byte {
				return Flow{Dst: e.NIC.MAC(), Src: peer(), UDP: true, VLANs: []uint16{vid}}.Packet(64, uint32(vid))
			}
			e.OnlyArrives(Frame(e.NIC.MAC(), 60, 1), tagged(5))
			e.Must(e.NIC.AddVLAN(e.Ctx, 5))
			e.OnlyArrives(tagged(5), tagged(6))
			e.OnlyArrives(tagged(5|3<<13), tagged(4)) // priority bits do not matter
			e.Must(e.NIC.RemoveVLAN(e.Ctx, 5))
			e.OnlyArrives(Frame(e.NIC.MAC(), 60, 2), tagged(5))
			e.Must(e.NIC.SetVLANFilter(e.Ctx, false))
			e.OnlyArrives(tagged(7))
			e.Must(e.NIC.SetVLANFilter(e.Ctx, true))
			e.OnlyArrives(Frame(e.NIC.MAC(), 60, 3), tagged(7))
		}},
		{Name: "AddressChangesLoseNothingElse", Run: func(e *Env) {
			want := Frames(e.NIC.MAC(), 3000, 60)
			e.Background(func(e *Env) { e.Send(want...) })
			e.Background(func(e *Env) {
				for range 20 {
					e.Must(e.NIC.AddMulticast(e.Ctx, group))
					e.Must(e.NIC.SetAllMulticast(e.Ctx, true))
					e.Must(e.NIC.SetAllMulticast(e.Ctx, false))
					e.Must(e.NIC.RemoveMulticast(e.Ctx, group))
				}
			})
			e.Same(e.Receive(0, len(want)), want)
		}},
	}
}
