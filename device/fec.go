package device

import (
	"math/bits"
	"time"

	"cxkit/device/internal/command"
	"cxkit/device/wire"
	"cxkit/prm"
)

// Codes that correct errors, as bits of PPLM (Linux en/port.h).
const (
	fecNone  = 1 << 0
	fecFire  = 1 << 1 // BASE-R, fire code (IEEE 802.3 clause 74)
	fecRS528 = 1 << 2 // RS(528,514) (clauses 91 and 108)
	fecRS544 = 1 << 7 // RS(544,514) (clause 134)
	fecLLRS  = 1 << 9 // RS(272,257), of low latency
)

// Kinds of lanes that PPLM has codes for. The first ones are those of PTYS's legacy modes.
const (
	fec10G40G = iota
	fec25G
	fec50G // of two lanes
	fec100G

	fec50G1x // from here on 50 Gbit/s a lane
	fec100G2x
	fec200G4x

	fec100G1x // from here on 100 Gbit/s a lane
	fec200G2x

	fecKinds

	fecLegacy = fec50G1x
)

// fecCodes is a set of codes for each kind of lanes.
type fecCodes [fecKinds]uint16

// fecUpTo is what a card has whose fastest kind of lanes is last: what IEEE 802.3 has for 10GBASE-KR, 40GBASE-CR4,
// 25GBASE-CR and 100GBASE-CR4, and the 25G/50G consortium's codes for two lanes of 25 Gbit/s as for one. PAM4 lanes
// are never without a code.
func fecUpTo(last int) (c fecCodes) {
	const pam4 = fecRS544 | fecLLRS
	all := fecCodes{
		fec10G40G: fecNone | fecFire, fec25G: fecNone | fecFire | fecRS528, fec50G: fecNone | fecFire | fecRS528,
		fec100G: fecNone | fecRS528, fec50G1x: pam4, fec100G2x: pam4, fec200G4x: pam4, fec100G1x: pam4, fec200G2x: pam4,
	}
	copy(c[:], all[:last+1])
	return c
}

// fecRow is a kind of lanes in PPLM.
type fecRow struct {
	caps, admin   *uint8 // of legacy modes
	wide, wideSet *uint16
}

func fecRows(r *prm.RegPPLM) [fecKinds]fecRow {
	return [fecKinds]fecRow{
		fec10G40G: {caps: &r.FECOverrideCap10g40g, admin: &r.FECOverrideAdmin10g40g},
		fec25G:    {caps: &r.FECOverrideCap25g, admin: &r.FECOverrideAdmin25g},
		fec50G:    {caps: &r.FECOverrideCap50g, admin: &r.FECOverrideAdmin50g},
		fec100G:   {caps: &r.FECOverrideCap100g, admin: &r.FECOverrideAdmin100g},
		fec50G1x:  {wide: &r.FECOverrideCap50g1x, wideSet: &r.FECOverrideAdmin50g1x},
		fec100G2x: {wide: &r.FECOverrideCap100g2x, wideSet: &r.FECOverrideAdmin100g2x},
		fec200G4x: {wide: &r.FECOverrideCap200g4x, wideSet: &r.FECOverrideAdmin200g4x},
		fec100G1x: {wide: &r.FECOverrideCap100g1x, wideSet: &r.FECOverrideAdmin100g1x},
		fec200G2x: {wide: &r.FECOverrideCap200g2x, wideSet: &r.FECOverrideAdmin200g2x},
	}
}

func (w fecRow) set(caps, admin uint16) {
	if w.caps != nil {
		*w.caps, *w.admin = uint8(caps), uint8(admin)
		return
	}
	*w.wide, *w.wideSet = caps, admin
}

func (w fecRow) wanted() uint16 {
	if w.caps != nil {
		return uint16(*w.admin)
	}
	return *w.wideSet
}

func (f *function) readPPLM(image []byte) command.Result {
	var r prm.RegPPLM
	r.Get(image)
	if res := checkPort(r.LocalPort); !res.OK() {
		return res
	}
	p := f.port
	out := prm.RegPPLM{LocalPort: localPort}
	if p.up() {
		out.FECModeActive = uint32(p.fec(f.card.profile))
	}
	for kind, row := range fecRows(&out) {
		row.set(f.card.profile.fec[kind], p.settings.fec[kind])
	}
	out.Put(image)
	return command.Result{}
}

// writePPLM keeps which code is wanted of each kind of lanes, 0 for the card's choice: one that the card has. Like a
// speed it is sent, and counts, when the port comes up next.
func (f *function) writePPLM(image []byte) command.Result {
	var r prm.RegPPLM
	r.Get(image)
	if res := checkPort(r.LocalPort); !res.OK() {
		return res
	}
	has := &f.card.profile.fec
	var want fecCodes
	for kind, row := range fecRows(&r) {
		w := row.wanted()
		if w&^has[kind] != 0 || bits.OnesCount16(w) > 1 {
			return refuse(prm.StatusBadParameter, synRegisterValue, "FEC %#x of %#x that there are", w, has[kind])
		}
		want[kind] = w
	}
	if r.FECOverrideAdmin56g|r.RSFECCorrectionBypassAdmin != 0 ||
		r.FECOverrideAdmin400g8x|r.FECOverrideAdmin800g8x|r.FECOverrideAdmin400g4x != 0 {
		return refuse(prm.StatusBadParameter, synRegisterValue, "FEC of lanes that the card does not have")
	}
	f.port.settings.fec = want
	return command.Result{}
}

// fecNibble is the place of a kind of lanes' codes in what cards signal to one another.
const fecNibble = 4

// signalled are the codes that a port takes at each of the legacy kinds of lanes.
func (c *fecCodes) signalled(wanted *fecCodes) (all uint32) {
	for kind := range fecLegacy {
		take := c[kind]
		if wanted[kind] != 0 {
			take = wanted[kind]
		}
		all |= uint32(take) << (kind * fecNibble)
	}
	return all
}

// fecCommon are the codes of both ends.
func (p *port) fecCommon() uint32 {
	if w, ok := p.wire.(wire.Corrector); ok {
		return p.codes & w.FarFEC()
	}
	return p.codes
}

// fecAgreed reports whether both ends have a code in common at their speed. Only where one was set can that fail.
func (p *port) fecAgreed(profile *profile) bool {
	const low = 1<<(0*fecNibble) | 1<<(1*fecNibble) | 1<<(2*fecNibble) | 1<<(3*fecNibble)
	kinds := func(codes uint32) uint32 { return (codes | codes>>1 | codes>>2) & low }
	common := p.fecCommon()
	return kinds(common) == kinds(p.codes) || p.fecOf(profile, common) != 0
}

// fec is the code in force if the port is up.
func (p *port) fec(profile *profile) uint16 { return p.fecOf(profile, p.fecCommon()) }

// fecOf chooses one of the codes that both ends have: as a card does that is left to choose, the strongest for
// lanes of 25 Gbit/s, and none below. 1 Gbit/s never has one.
func (p *port) fecOf(profile *profile, common uint32) uint16 {
	kind, order := fec10G40G, []uint16{fecRS528, fecFire, fecNone}
	switch p.mode(profile).rate {
	case 250:
		kind = fec25G
	case 500:
		kind = fec50G
	case 1000:
		kind = fec100G
	case 100, 400:
		order = []uint16{fecNone, fecFire, fecRS528}
	default:
		return fecNone
	}
	for _, code := range order {
		if common>>(kind*fecNibble)&uint32(code) != 0 {
			return code
		}
	}
	return 0
}

// codeBlocks are what a port's decoders have found in blocks, of a fire code and of Reed-Solomon codes. Faults
// hit a block each.
type codeBlocks struct {
	fireCorrected, fireLost, corrected, lost uint64
	all                                      uint64 // of Reed-Solomon codes, good ones included
	until                                    time.Duration
}

// meet counts n bits or symbols that were wrong with a code in force.
func (b *codeBlocks) meet(code uint16, corrected bool, n uint64) {
	counter := &b.corrected
	switch {
	case code == fecNone || code == 0:
		return
	case code == fecFire && corrected:
		counter = &b.fireCorrected
	case code == fecFire:
		counter = &b.fireLost
	case !corrected:
		counter = &b.lost
	}
	*counter += n
}

// blockTime is how long 1000 blocks of RS(528,514) take, 5280 bits each, on lanes of 100 Gbit/s: 103.125 on the line.
const blockTime = 51_200 * time.Nanosecond

// countBlocks counts the blocks that came since the last time; its state is about to change, or asked for.
func (p *port) countBlocks(profile *profile, now time.Duration) {
	b := &p.counters.blocks
	since := now - b.until
	b.until = now
	if rate := p.mode(profile).rate; p.up() && p.fec(profile) == fecRS528 && since > 0 {
		b.all += uint64(since/blockTime)*uint64(rate) + uint64(since%blockTime)*uint64(rate)/uint64(blockTime)
	}
}

func (p *port) physical() *prm.PPCNTPhysical {
	b := &p.counters.blocks
	return &prm.PPCNTPhysical{
		SymbolErrors: p.counters.line.uncorrected, LinkDownEvents: p.counters.linkDownEvents,
		FcFECCorrectedBlocksLane0: b.fireCorrected, FcFECUncorrectableBlocksLane0: b.fireLost,
		RSFECCorrectedBlocks: b.corrected, RSFECUncorrectableBlocks: b.lost,
		RSFECNoErrorsBlocks: b.all - min(b.all, b.corrected+b.lost), RSFECSingleErrorBlocks: b.corrected,
		RSFECCorrectedSymbolsTotal: b.corrected, RSFECCorrectedSymbolsLane0: b.corrected,
	}
}
