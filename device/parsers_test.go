package device

import (
	"testing"

	"cxkit/prm"
)

// synGroupMask is package steer's.
const synGroupMask = 0xc1050d

// matchers are groups of what kinds of cards differ in, by what makes a mask of it.
func matchers() map[string]struct {
	enable prm.MatchCriteria
	fill   func(*prm.MatchParam)
	said   func(*capabilities) bool // the capability
} {
	type m = struct {
		enable prm.MatchCriteria
		fill   func(*prm.MatchParam)
		said   func(*capabilities) bool
	}
	fields := func(c *capabilities) *prm.FlowTableFields {
		return &c.Flow.FlowTablePropertiesNICReceive.FTFieldSupport
	}
	flex := func(bit uint32) func(*capabilities) bool {
		return func(c *capabilities) bool { return c.General.FlexParserProtocols&bit == bit }
	}
	const misc, misc2, misc3, misc5 = prm.MatchMiscParameters, prm.MatchMiscParameters2, prm.MatchMiscParameters3, prm.MatchMiscParameters5
	return map[string]m{
		"GRE key":          {misc, func(p *prm.MatchParam) { p.Misc.GREKey = 1 }, func(c *capabilities) bool { return fields(c).OuterGREKey }},
		"GENEVE VNI":       {misc, func(p *prm.MatchParam) { p.Misc.GeneveVNI = 1 }, func(c *capabilities) bool { return fields(c).OuterGeneveVNI }},
		"GENEVE OAM":       {misc, func(p *prm.MatchParam) { p.Misc.GeneveOAM = true }, func(c *capabilities) bool { return fields(c).OuterGeneveOAM }},
		"GENEVE protocol":  {misc, func(p *prm.MatchParam) { p.Misc.GeneveProtocolType = 1 }, func(c *capabilities) bool { return fields(c).OuterGeneveProtocolType }},
		"GENEVE options":   {misc, func(p *prm.MatchParam) { p.Misc.GeneveOptLen = 1 }, func(c *capabilities) bool { return fields(c).OuterGeneveOptLen }},
		"a GENEVE option":  {misc, func(p *prm.MatchParam) { p.Misc.GeneveTLVOption0Exist = true }, func(c *capabilities) bool { return fields(c).GeneveTLVOption0Exist }},
		"its data":         {misc3, func(p *prm.MatchParam) { p.Misc3.GeneveTLVOption0Data = 1 }, func(c *capabilities) bool { return fields(c).GeneveTLVOption0Data }},
		"MPLS":             {misc2, func(p *prm.MatchParam) { p.Misc2.OuterFirstMPLS.TTL = 1 }, func(c *capabilities) bool { return fields(c).OuterFirstMPLS == 0xf }},
		"inner MPLS":       {misc2, func(p *prm.MatchParam) { p.Misc2.InnerFirstMPLS.Label = 1 }, func(c *capabilities) bool { return fields(c).InnerFirstMPLS == 0xf }},
		"MPLS in GRE":      {misc2, func(p *prm.MatchParam) { p.Misc2.OuterFirstMPLSOverGRE.Exp = 1 }, func(c *capabilities) bool { return fields(c).OuterFirstMPLSOverGRE == 0xf }},
		"MPLS in UDP":      {misc2, func(p *prm.MatchParam) { p.Misc2.OuterFirstMPLSOverUDP.SBOS = true }, func(c *capabilities) bool { return fields(c).OuterFirstMPLSOverUDP == 0xf }},
		"register C7":      {misc2, func(p *prm.MatchParam) { p.Misc2.MetadataRegC7 = 1 }, func(c *capabilities) bool { return fields(c).MetadataRegC7 }},
		"VXLAN-GPE":        {misc3, func(p *prm.MatchParam) { p.Misc3.OuterVXLANGPEVNI = 1 }, flex(flexVXLANGPE)},
		"ICMP":             {misc3, func(p *prm.MatchParam) { p.Misc3.ICMPType = 1 }, flex(flexICMP)},
		"ICMPv6":           {misc3, func(p *prm.MatchParam) { p.Misc3.ICMPv6HeaderData = 1 }, flex(flexICMPv6)},
		"GTP-U":            {misc3, func(p *prm.MatchParam) { p.Misc3.GTPUTEID = 1 }, flex(flexGTPU)},
		"raw VXLAN header": {misc5, func(p *prm.MatchParam) { p.Misc5.TunnelHeader1 = 1 }, func(c *capabilities) bool { return c.Flow.FTFieldSupport2NICReceive.TunnelHeader0_1 }},
		"raw header 2":     {misc5, func(p *prm.MatchParam) { p.Misc5.TunnelHeader2 = 1 }, func(*capabilities) bool { return false }},
		"a MACsec tag":     {misc5, func(p *prm.MatchParam) { p.Misc5.MACsecTag0 = 1 }, func(*capabilities) bool { return false }},
		"a sample":         {prm.MatchMiscParameters4, func(p *prm.MatchParam) { p.Misc4.ProgSampleFieldValue0 = 1 }, func(*capabilities) bool { return false }},
	}
}

// A kind of card takes groups of what its capabilities say, and refuses all others; how many each has is what the
// kinds differ in.
func TestWhatCanBeMatchedIsWhatTheCapabilitiesSay(t *testing.T) {
	for profile, want := range map[string]int{"cx4lx": 1, "cx5": 12, "cx6dx": 14, "cx7": 14, "bf2": 14} {
		b := dataBenchOn(t, newBench(t, Config{Profile: profile}))
		var table prm.CreateFlowTableOut
		b.must(&prm.CreateFlowTableIn{FlowTableContext: prm.FlowTableContext{LogSize: 4}}, &table)
		n := 0
		for what, m := range matchers() {
			in := prm.CreateFlowGroupIn{TableID: table.TableID, MatchCriteriaEnable: m.enable}
			m.fill(&in.MatchCriteria)
			var g prm.CreateFlowGroupOut
			if !m.said(&b.function().caps) {
				b.refused(&in, &g, prm.StatusBadParameter, synGroupMask)
				continue
			}
			n++
			b.must(&in, &g)
			b.must(&prm.DestroyFlowGroupIn{TableID: table.TableID, GroupID: g.GroupID}, &prm.DestroyFlowGroupOut{})
			if t.Failed() {
				t.Fatalf("%s: %s", profile, what)
			}
		}
		if n != want {
			t.Errorf("%s can match %d of these, want %d", profile, n, want)
		}
	}
}
