package device

import (
	"testing"
	"time"

	"cxkit/device/wire"
	"cxkit/prm"

	faults "cxkit/device/fault"
)

// pplm reads PPLM.
func (b *bench) pplm() prm.RegPPLM {
	r := prm.RegPPLM{LocalPort: 1}
	b.reg(prm.AccessRegRead, prm.RegIDPPLM, &r)
	return r
}

// setFEC wants a code of all legacy lanes that have it, as Linux's mlx5e_set_fec_mode does, and takes the link down
// and up.
func (b *bench) setFEC(code uint16) {
	b.Helper()
	r := b.pplm()
	for kind, row := range fecRows(&r) {
		if w := b.card.profile.fec[kind]; w&code != 0 {
			row.set(w, code)
		} else {
			row.set(w, 0)
		}
	}
	b.reg(prm.AccessRegWrite, prm.RegIDPPLM, &r)
	for _, s := range []prm.PortAdminStatus{prm.PortAdminDown, prm.PortAdminUp} {
		b.admin(uint8(s))
	}
}

// cabled brings up two cards on a cable.
func cabled(t *testing.T, profiles ...string) (a, b *bench) {
	left, right := wire.NewCable(wire.CableOptions{})
	var both [2]*bench
	for i, w := range []wire.Port{left, right} {
		both[i] = newBench(t, Config{Profile: profiles[i%len(profiles)]})
		both[i].bringUp()
		if _, err := both[i].card.Plug(0, w); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []*bench{both[0], both[1], both[0]} {
		x.settle()
	}
	return both[0], both[1]
}

func TestKindsOfCardsDifferInTheirFEC(t *testing.T) {
	for profile, want := range map[string]struct {
		reg             prm.RegPPLM
		lane50, lane100 bool
	}{
		"cx4lx": {reg: prm.RegPPLM{LocalPort: 1, FECOverrideCap10g40g: 3, FECOverrideCap25g: 7, FECModeActive: fecRS528}},
		"cx5": {reg: prm.RegPPLM{LocalPort: 1, FECOverrideCap10g40g: 3, FECOverrideCap25g: 7, FECOverrideCap50g: 7, FECOverrideCap100g: 5,
			FECModeActive: fecRS528}},
		"cx6dx": {reg: prm.RegPPLM{LocalPort: 1, FECOverrideCap10g40g: 3, FECOverrideCap25g: 7, FECOverrideCap50g: 7, FECOverrideCap100g: 5,
			FECOverrideCap50g1x: 0x280, FECOverrideCap100g2x: 0x280, FECModeActive: fecRS528}, lane50: true},
		"cx7": {reg: prm.RegPPLM{LocalPort: 1, FECOverrideCap10g40g: 3, FECOverrideCap25g: 7, FECOverrideCap50g: 7, FECOverrideCap100g: 5,
			FECOverrideCap50g1x: 0x280, FECOverrideCap100g2x: 0x280, FECOverrideCap200g4x: 0x280, FECOverrideCap100g1x: 0x280,
			FECOverrideCap200g2x: 0x280, FECModeActive: fecRS528}, lane50: true, lane100: true},
	} {
		a, _ := cabled(t, profile)
		if got := a.pplm(); got != want.reg {
			t.Errorf("%s:\n%+v, want\n%+v", profile, got, want.reg)
		}
		cam := prm.RegPCAM{}
		a.reg(prm.AccessRegRead, prm.RegIDPCAM, &cam)
		var f prm.PCAMFeatures
		f.Get(cam.FeatureCapMask[:])
		if pplm := cam.PortAccessRegCapMask[15-35/8]>>(35%8)&1 != 0; !pplm || f.FEC50GPerLaneInPPLM != want.lane50 || f.FEC100GPerLaneInPPLM != want.lane100 {
			t.Errorf("%s: PCAM has PPLM %v, 50G per lane %v, 100G %v", profile, pplm, f.FEC50GPerLaneInPPLM, f.FEC100GPerLaneInPPLM)
		}
	}
}

// The code in force is that of the link's speed, and there is none without a link.
func TestFECFollowsTheLink(t *testing.T) {
	a, b := cabled(t, "cx5")
	active := func() uint32 {
		a.settle()
		b.settle()
		a.settle()
		x, y := a.pplm().FECModeActive, b.pplm().FECModeActive
		if x != y {
			t.Errorf("the ends correct errors by %#x and %#x", x, y)
		}
		return x
	}
	for modes, want := range map[uint32]uint32{
		1 << 1: fecNone, 1 << 12: fecNone, 1 << 15: fecNone, 1 << 27: fecRS528, 1 << 30: fecRS528, 1 << 20: fecRS528,
	} {
		a.force(modes, false)
		if got := active(); got != want {
			t.Errorf("mode %#x: %#x, want %#x", modes, got, want)
		}
	}
	a.force(1<<27, false)
	a.setFEC(fecFire)
	if got := active(); got != fecFire {
		t.Errorf("set: %#x", got)
	}
	if r := a.pplm(); r.FECOverrideAdmin25g != fecFire || r.FECOverrideAdmin10g40g != fecFire || r.FECOverrideAdmin100g != 0 {
		t.Errorf("wanted: %+v", r)
	}
	a.force(1<<20, false) // 100GBASE-CR4 has no fire code
	if got := active(); got != fecRS528 {
		t.Errorf("at a speed without the code: %#x", got)
	}
	a.admin(uint8(prm.PortAdminDown))
	if got := active(); got != 0 {
		t.Errorf("without a link: %#x", got)
	}
	b.reg(prm.AccessRegWrite, prm.RegIDPPLM, &prm.RegPPLM{LocalPort: 1})
	a.admin(uint8(prm.PortAdminUp))
	a.setFEC(0)
	if got := active(); got != fecRS528 {
		t.Errorf("left to the card again: %#x", got)
	}
}

// Ends that want different codes have no link, and say why.
func TestEndsThatWantDifferentFECHaveNoLink(t *testing.T) {
	a, b := cabled(t, "cx5")
	link := func() bool {
		for range 2 {
			a.settle()
			b.settle()
		}
		if a.card.ports[0].up() != b.card.ports[0].up() {
			t.Errorf("one end has a link: %v, %v", a.card.ports[0].up(), b.card.ports[0].up())
		}
		return a.card.ports[0].up()
	}
	a.force(1<<27, false)
	a.setFEC(fecFire)
	if !link() {
		t.Fatal("no link though the far end takes all codes")
	}
	b.setFEC(fecRS528)
	if link() {
		t.Error("a link of two codes")
	}
	if a.trouble() != pddrFECMismatch || b.trouble() != pddrFECMismatch {
		t.Errorf("trouble %d and %d", a.trouble(), b.trouble())
	}
	a.setFEC(fecNone)
	if link() {
		t.Error("a link with a code at one end")
	}
	b.setFEC(fecNone)
	if !link() || a.pplm().FECModeActive != fecNone || a.trouble() != pddrNoIssue {
		t.Errorf("none at both ends: link %v, code %#x, trouble %d", link(), a.pplm().FECModeActive, a.trouble())
	}
}

func TestFECThatTheCardDoesNotHaveIsRefused(t *testing.T) {
	for name, r := range map[string]prm.RegPPLM{
		"a fire code at 100G":  {LocalPort: 1, FECOverrideAdmin100g: fecFire},
		"two codes":            {LocalPort: 1, FECOverrideAdmin25g: fecFire | fecRS528},
		"a reserved code":      {LocalPort: 1, FECOverrideAdmin25g: 8},
		"56G":                  {LocalPort: 1, FECOverrideAdmin56g: 1},
		"lanes of 50G":         {LocalPort: 1, FECOverrideAdmin50g1x: fecRS544},
		"lanes of 100G":        {LocalPort: 1, FECOverrideAdmin100g1x: fecRS544},
		"eight lanes":          {LocalPort: 1, FECOverrideAdmin400g8x: fecRS544},
		"a bypass of the code": {LocalPort: 1, RSFECCorrectionBypassAdmin: 1},
		"another port":         {LocalPort: 2},
	} {
		b := newBench(t, Config{Profile: "cx5"})
		b.bringUp()
		data := make([]byte, prm.RegPPLMSize)
		r.Put(data)
		syn := synRegisterValue
		if r.LocalPort != 1 {
			syn = synRegisterPort
		}
		b.refused(&prm.AccessRegIn{OpMod: uint16(prm.AccessRegWrite), RegisterID: prm.RegIDPPLM, RegisterData: data},
			&prm.AccessRegOut{RegisterData: make([]byte, len(data))}, prm.StatusBadParameter, syn)
		if got := b.pplm(); got.FECOverrideAdmin25g != 0 {
			t.Errorf("%s: kept: %+v", name, got)
		}
	}
}

// Errors show in the counters of the code in force (Linux en_stats.c, fec_set_block_stats), and good blocks are
// counted by the time that the link is up.
func TestErrorsAreCountedByTheCodeInForce(t *testing.T) {
	b := newFaultBench(t, Config{})
	w, _ := wire.NewCable(wire.CableOptions{})
	if _, err := b.card.Plug(0, w); err != nil {
		t.Fatal(err)
	}
	b.settle()
	meet := func() (c prm.PPCNTPhysical) {
		b.inject(faults.Fault{Kind: faults.PortErrors, What: faults.CorrectedBit, Count: 5})
		b.inject(faults.Fault{Kind: faults.PortErrors, What: faults.UncorrectedSymbol, Count: 2})
		r := prm.RegPPCNT{LocalPort: 1, Grp: prm.PPCNTGroupPhysical}
		b.reg(prm.AccessRegRead, prm.RegIDPPCNT, &r)
		c.Get(r.CounterSet[:])
		return c
	}
	blocks := func(c *prm.PPCNTPhysical) [6]uint64 {
		return [6]uint64{c.RSFECCorrectedBlocks, c.RSFECUncorrectableBlocks, c.RSFECSingleErrorBlocks,
			c.RSFECCorrectedSymbolsTotal, c.FcFECCorrectedBlocksLane0, c.FcFECUncorrectableBlocksLane0}
	}
	b.clock.advance(time.Second)
	good := meet()
	if got := blocks(&good); got != [6]uint64{5, 2, 5, 5, 0, 0} {
		t.Errorf("Reed-Solomon: %v", got)
	}
	b.clock.advance(time.Second)
	if c := meet(); c.RSFECNoErrorsBlocks-good.RSFECNoErrorsBlocks != 19_531_250-7 {
		t.Errorf("%d good blocks of a second at 100 Gbit/s", c.RSFECNoErrorsBlocks-good.RSFECNoErrorsBlocks)
	}
	b.force(1<<27, false)
	b.setFEC(fecFire)
	good = meet()
	if got := blocks(&good); got != [6]uint64{10, 4, 10, 10, 5, 2} {
		t.Errorf("fire code: %v", got)
	}
	b.clock.advance(time.Second)
	b.setFEC(fecNone)
	c := meet()
	if got := blocks(&c); got != [6]uint64{10, 4, 10, 10, 5, 2} || c.RSFECNoErrorsBlocks != good.RSFECNoErrorsBlocks {
		t.Errorf("no code: %v, %d good blocks more", got, c.RSFECNoErrorsBlocks-good.RSFECNoErrorsBlocks)
	}
}
