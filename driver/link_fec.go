package driver

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"cxkit/driver/internal/hca"
	"cxkit/prm"
)

// FEC is how errors of the line are corrected (forward error correction).
type FEC uint8

// Kinds of FEC, by the names of ethtool --set-fec.
const (
	// FECAuto: the card chooses. As the kind in force it means that there is no link.
	FECAuto FEC = iota
	FECOff
	// FECBaseR: the fire code of BASE-R.
	FECBaseR
	// FECRS: Reed-Solomon, (528,514) on lanes of up to 25 Gbit/s and (544,514) on faster ones.
	FECRS
	// FECLLRS: Reed-Solomon (272,257), of low latency.
	FECLLRS
)

func (f FEC) String() string {
	names := [...]string{"auto", "off", "baser", "rs", "llrs"}
	if int(f) < len(names) {
		return names[f]
	}
	return fmt.Sprintf("FEC(%d)", uint8(f))
}

// ParseFEC is the kind of FEC of a name.
func ParseFEC(name string) (FEC, error) {
	for f := FECAuto; f <= FECLLRS; f++ {
		if f.String() == name {
			return f, nil
		}
	}
	return 0, fmt.Errorf("FEC %q: want auto, off, baser, rs or llrs", name)
}

// FECState is the FEC of a port.
type FECState struct {
	// Supported are the kinds that the card has at any speed; FECAuto is none of them. Nil: FEC can't be set.
	Supported []FEC
	// Configured is what was set, Active what is in force.
	Configured, Active FEC
}

// ErrNoFEC: the card does not let FEC be set.
var ErrNoFEC = errors.New("the card has no FEC that can be set (PPLM)")

// Codes of PPLM, one bit each (Linux en/port.h).
const (
	codeNone  = 1 << 0
	codeFire  = 1 << 1
	codeRS528 = 1 << 2
	codeRS544 = 1 << 7
	codeLLRS  = 1 << 9
)

// codes are the kind's codes.
func (f FEC) codes() uint16 {
	return [...]uint16{FECAuto: 0, FECOff: codeNone, FECBaseR: codeFire, FECRS: codeRS528 | codeRS544, FECLLRS: codeLLRS}[f]
}

// fecOf is the kind of a set of codes, of which the first counts, as in Linux (en_ethtool.c, pplm2ethtool_fec).
func fecOf(codes uint32) (FEC, error) {
	if codes == 0 {
		return FECAuto, nil
	}
	for f := FECOff; f <= FECLLRS; f++ {
		if first := codes & -codes; uint32(f.codes())&first != 0 {
			return f, nil
		}
	}
	return 0, fmt.Errorf("PPLM: no FEC has code %d", bits.TrailingZeros32(codes))
}

// laneFEC is a kind of lanes in PPLM: what there is, and what is wanted.
type laneFEC struct {
	caps, admin uint16
	put         func(uint16)
}

// lanes lists PPLM's kinds of lanes, those of 50 and 100 Gbit/s where the card has them.
func lanesOf(r *prm.RegPPLM, has *prm.PCAMFeatures) []laneFEC {
	narrow := func(caps uint8, admin *uint8) laneFEC {
		return laneFEC{uint16(caps), uint16(*admin), func(v uint16) { *admin = uint8(v) }}
	}
	wide := func(caps uint16, admin *uint16) laneFEC {
		return laneFEC{caps, *admin, func(v uint16) { *admin = v }}
	}
	all := []laneFEC{
		narrow(r.FECOverrideCap10g40g, &r.FECOverrideAdmin10g40g), narrow(r.FECOverrideCap25g, &r.FECOverrideAdmin25g),
		narrow(r.FECOverrideCap50g, &r.FECOverrideAdmin50g), narrow(r.FECOverrideCap56g, &r.FECOverrideAdmin56g),
		narrow(r.FECOverrideCap100g, &r.FECOverrideAdmin100g),
	}
	if has.FEC50GPerLaneInPPLM {
		all = append(all, wide(r.FECOverrideCap50g1x, &r.FECOverrideAdmin50g1x), wide(r.FECOverrideCap100g2x, &r.FECOverrideAdmin100g2x),
			wide(r.FECOverrideCap200g4x, &r.FECOverrideAdmin200g4x), wide(r.FECOverrideCap400g8x, &r.FECOverrideAdmin400g8x))
	}
	if has.FEC100GPerLaneInPPLM {
		all = append(all, wide(r.FECOverrideCap100g1x, &r.FECOverrideAdmin100g1x), wide(r.FECOverrideCap200g2x, &r.FECOverrideAdmin200g2x),
			wide(r.FECOverrideCap400g4x, &r.FECOverrideAdmin400g4x), wide(r.FECOverrideCap800g8x, &r.FECOverrideAdmin800g8x))
	}
	return all
}

// readFEC reads PPLM, if the card says that there is one (Linux en/port.c, mlx5e_get_fec_mode).
func (n *NIC) readFEC(ctx context.Context) (r prm.RegPPLM, has prm.PCAMFeatures, err error) {
	if n.isClosed() {
		return r, has, ErrNICClosed
	}
	if !n.base.general.PCAMReg {
		return r, has, ErrNoFEC
	}
	var cam prm.RegPCAM
	if err := n.register(ctx, prm.RegIDPCAM, accessRead, &cam); err != nil {
		return r, has, fmt.Errorf("query FEC: %w", err)
	}
	const pplm = 0x23 // 0x5023: bit 0x23, counted from the end
	if cam.PortAccessRegCapMask[len(cam.PortAccessRegCapMask)-1-pplm/8]>>(pplm%8)&1 == 0 {
		return r, has, ErrNoFEC
	}
	has.Get(cam.FeatureCapMask[:])
	r.LocalPort = localPort
	if err := n.register(ctx, prm.RegIDPPLM, accessRead, &r); err != nil {
		return r, has, fmt.Errorf("query FEC: %w", err)
	}
	return r, has, nil
}

// FEC tells how errors of the line are corrected. ErrNoFEC: the card does not say.
func (n *NIC) FEC(ctx context.Context) (FECState, error) {
	r, has, err := n.readFEC(ctx)
	if err != nil {
		return FECState{}, err
	}
	var s FECState
	if s.Active, err = fecOf(r.FECModeActive); err != nil {
		return FECState{}, err
	}
	var caps uint16
	for _, lane := range lanesOf(&r, &has) {
		caps |= lane.caps
		if s.Configured == FECAuto {
			if s.Configured, err = fecOf(uint32(lane.admin)); err != nil {
				return FECState{}, err
			}
		}
	}
	for f := FECOff; f <= FECLLRS; f++ {
		if caps&f.codes() != 0 {
			s.Supported = append(s.Supported, f)
		}
	}
	return s, nil
}

// SetFEC has errors corrected this way at all speeds that know it, and as the card chooses at the others; FECAuto
// leaves it to the card altogether. The link goes down and up, as with ethtool --set-fec, and stays down if the far
// end wants something else. It is the physical function's to set.
func (n *NIC) SetFEC(ctx context.Context, f FEC) error {
	if f > FECLLRS {
		return fmt.Errorf("set %v: there is no such FEC", f)
	}
	if hca.Virtual(n.base.info.DeviceID) {
		return fmt.Errorf("set FEC %v: the port is the physical function's", f)
	}
	r, has, err := n.readFEC(ctx)
	if err != nil {
		return fmt.Errorf("set FEC %v: %w", f, err)
	}
	set := f == FECAuto
	for _, lane := range lanesOf(&r, &has) {
		code := lane.caps & f.codes()
		lane.put(code & -code) // one code; a kind of lanes has one of either Reed-Solomon code
		set = set || code != 0
	}
	if !set {
		state, err := n.FEC(ctx)
		if err != nil {
			return fmt.Errorf("set FEC %v: %w", f, err)
		}
		return fmt.Errorf("set FEC %v: the card has %v", f, slices.Concat([]FEC{FECAuto}, state.Supported))
	}
	if err := n.register(ctx, prm.RegIDPPLM, accessWrite, &r); err != nil {
		return fmt.Errorf("set FEC %v: %w", f, err)
	}
	for _, up := range []bool{false, true} {
		if err := n.SetLink(ctx, up); err != nil {
			return fmt.Errorf("set FEC %v: %w", f, err)
		}
	}
	return nil
}
