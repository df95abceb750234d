package device

import (
	"testing"

	"cxkit/device/wire"
	"cxkit/prm"
)

// portWith brings up a card on one end of a cable and returns what reads and sets its port.
func portWith(t *testing.T, w wire.Port) *bench {
	t.Helper()
	b := newBench(t, Config{})
	b.bringUp()
	if _, err := b.card.Plug(0, w); err != nil {
		t.Fatal(err)
	}
	b.settle()
	return b
}

// force has a port send in these modes only from now on: modes count when the port comes up.
func (b *bench) force(modes uint32, autonegOff bool) {
	b.reg(prm.AccessRegWrite, prm.RegIDPTYS, &prm.RegPTYS{LocalPort: 1, ProtoMask: protoEthernet, EthProtoAdmin: modes, ANDisableAdmin: autonegOff})
	for _, s := range []uint8{uint8(prm.PortAdminDown), uint8(prm.PortAdminUp)} {
		b.admin(s)
	}
}

func (b *bench) admin(s uint8) {
	p := prm.RegPAOS{LocalPort: 1, ASE: true}
	p.AdminStatus = prm.PortAdminStatus(s)
	b.reg(prm.AccessRegWrite, prm.RegIDPAOS, &p)
	b.settle()
}

// trouble reads why a port has no link.
func (b *bench) trouble() uint16 {
	r := prm.RegPDDR{LocalPort: 1, PageSelect: pddrTroubleshooting}
	b.reg(prm.AccessRegRead, prm.RegIDPDDR, &r)
	return r.MonitorOpcode
}

func TestTwoCardsOnACableAgreeOnASpeedOrHaveNoLink(t *testing.T) {
	left, right := wire.NewCable(wire.CableOptions{})
	a, b := portWith(t, left), portWith(t, right)
	up := func() bool {
		a.settle()
		b.settle()
		if a.card.ports[0].up() != b.card.ports[0].up() {
			t.Errorf("one end has a link: %v, %v", a.card.ports[0].up(), b.card.ports[0].up())
		}
		return a.card.ports[0].up()
	}
	if !up() {
		t.Fatal("no link to begin with")
	}
	b.admin(uint8(prm.PortAdminDown))
	if up(); a.trouble() != pddrNoPartner || b.trouble() != pddrClosedByCommand {
		t.Errorf("one end closed: trouble %d and %d", a.trouble(), b.trouble())
	}
	b.admin(uint8(prm.PortAdminUp))
	if !up() {
		t.Error("no link after the port was opened")
	}
	const at10G, at25G = 1 << 12, 1 << 27
	b.force(at25G, true)
	a.settle()
	r := prm.RegPTYS{LocalPort: 1, ProtoMask: protoEthernet}
	if a.reg(prm.AccessRegRead, prm.RegIDPTYS, &r); !up() || r.EthProtoOper != at25G || r.EthProtoLpAdvertise != at25G {
		t.Errorf("far end forced to 25G: link %v, speed %#x of %#x", up(), r.EthProtoOper, r.EthProtoLpAdvertise)
	}
	a.force(at10G, true)
	if up() || a.trouble() != pddrNoPartnerForced || b.trouble() != pddrNoPartnerForced {
		t.Errorf("10G against 25G: link %v, trouble %d and %d", up(), a.trouble(), b.trouble())
	}
	a.force(0, false)
	if !up() {
		t.Error("no link after one end negotiates again")
	}
}

// capsOf reads a function's capabilities.
func capsOf(b *bench) (g prm.CapGeneral) {
	b.Helper()
	var out prm.QueryHCACapOut
	b.must(&prm.QueryHCACapIn{OpMod: prm.CapOpMod(prm.CapGroupGeneral, prm.CapCurrent)}, &out)
	g.Get(out.Capability[:])
	return g
}

// Linux lets a group manager alone set pauses and priorities (en_ethtool.c, en_dcbnl.c): that is every physical
// function, whether it has virtual functions or not, and whether it manages an e-switch or not.
func TestAPhysicalFunctionSetsPausesWithVirtualFunctionsAndWithout(t *testing.T) {
	plain := newBench(t, Config{})
	plain.bringUp()
	embedded := newEmbeddedBench(t, 2)
	embedded.must(&prm.EnableHCAIn{}, &prm.EnableHCAOut{})
	embedded.serve()
	embedded.clock.advance(embedded.card.config.BootTime)
	for name, c := range map[string]struct {
		b       *bench
		manager bool // of an e-switch
	}{
		"alone":                      {plain, false},
		"with virtual functions":     {newSwitchBench(t, 2).bench, true},
		"the card's own processor's": {embedded.bench, true},
		"its host's":                 {embedded.run(embedded.host).bench, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := c.b
			if g := capsOf(b); !g.VportGroupManager || !g.QOS || g.ESwitchManager != c.manager {
				t.Errorf("group manager %v, of an e-switch %v, QoS %v", g.VportGroupManager, g.ESwitchManager, g.QOS)
			}
			q := prm.QueryHCACapIn{OpMod: prm.CapOpMod(prm.CapGroupQOS, prm.CapCurrent)}
			var out prm.QueryHCACapOut
			b.must(&q, &out)
			var qos prm.CapQOS
			if qos.Get(out.Capability[:]); qos.ESWScheduling != c.manager {
				t.Errorf("schedules vports: %v", qos.ESWScheduling)
			}
			for _, set := range []prm.RegPFCC{
				{LocalPort: 1, PPTX: true, PPRX: true},
				{LocalPort: 1, PrioMaskTX: 1 << 3, PrioMaskRX: 1 << 3, PFCTX: 1 << 3, PFCRX: 1 << 3},
				{LocalPort: 1, PrioMaskTX: 0xff, PrioMaskRX: 0xff},
			} {
				b.reg(prm.AccessRegWrite, prm.RegIDPFCC, &set)
				got := prm.RegPFCC{LocalPort: 1}
				b.reg(prm.AccessRegRead, prm.RegIDPFCC, &got)
				if got.PPTX != set.PPTX || got.PPRX != set.PPRX || got.PFCTX != set.PFCTX || got.PFCRX != set.PFCRX {
					t.Errorf("PFCC %+v after %+v", got, set)
				}
			}
		})
	}
}
