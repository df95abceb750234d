package device

import (
	"encoding/binary"
	"slices"

	"cxkit/device/internal/command"
	"cxkit/device/internal/object"
	"cxkit/device/internal/packet"
	"cxkit/device/internal/steer"
	"cxkit/prm"
)

// steerHalf is a function's steering. The engine owns it.
type steerHalf struct {
	rx, tx  *steer.Domain
	tirs    object.Table[*steer.TIR]
	rqts    object.Table[*steer.RQT]
	flows   object.Table[*steer.Counter]
	headers object.Table[*steer.Header]
	bulks   object.Table[*counterBulk]
	bulked  int // counters of all bulks
	// keys are the prepared Toeplitz keys: TIRs of a driver usually share one.
	toeplitz map[[packet.KeyLen]byte]*sharedKey
	// loopbacks counts the TIRs that let own frames in: without one nothing is looped back.
	loopbacks int
	// accepted is the destination that the address filter let through last, plus 1<<48; 0 is none.
	accepted uint64
	// tunnels are those that frames are looked into.
	tunnels packet.Tunnels
}

// sharedKey is a Toeplitz key and the number of TIRs that hash with it.
type sharedKey struct {
	object.Refs
	*packet.Toeplitz
}

// Limits of steering.
const (
	logMaxTIR         = 12
	logMaxRQT         = 12
	logMaxRQTSize     = 11
	logMaxTable       = 22 // entries of a table
	logMaxTables      = 12
	maxLevel          = 128
	logMaxFlow        = 20 // entries in all tables of a type
	maxGroups         = 1 << 16
	logMaxDestination = 5
	logMaxCounter     = 16
)

func steerCaps(c *capabilities, p *profile) {
	g := &c.General
	g.NICFlowTable = true
	g.LogMaxTIR, g.LogMaxRQT, g.LogMaxRQTSize = logMaxTIR, logMaxRQT, logMaxRQTSize
	const counters = 1<<logMaxCounter - 1
	g.MaxFlowCounter15_0, g.MaxFlowCounter31_16 = counters&0xffff, counters>>16
	g.FlowCounterBulkAlloc, g.LogMaxFlowCounterBulk = bulkAlloc, logMaxBulk
	c.Ethernet.RSSIndTblCap = logMaxRQTSize
	c.Ethernet.SelfLBEnModifiable = true
	e := &c.Ethernet
	e.TunnelStatelessVXLAN, e.TunnelStatelessGRE = true, true
	e.TunnelStatelessIPOverIP, e.TunnelStatelessIPOverIPRX, e.TunnelStatelessIPOverIPTX = true, true, true
	e.MaxVXLANUDPPorts = maxVXLANPorts
	e.LROCap, e.LROPSHFlag, e.LROTimeStamp = true, true, true
	for i, period := range lroPeriods {
		binary.BigEndian.PutUint32(e.LROTimerSupportedPeriods[4*i:], uint32(period))
	}

	match := prm.FlowTableFields{
		OuterDMAC: true, OuterSMAC: true, OuterEtherType: true, OuterIPVersion: true,
		OuterFirstPrio: true, OuterFirstCFI: true, OuterFirstVID: true,
		OuterSecondPrio: true, OuterSecondCFI: true, OuterSecondVID: true,
		OuterSIP: true, OuterDIP: true, OuterFrag: true, OuterIPProtocol: true, OuterIPECN: true, OuterIPDSCP: true,
		OuterIPv4TTL: true, OuterUDPSPort: true, OuterUDPDPort: true, OuterTCPSPort: true, OuterTCPDPort: true,
		OuterTCPFlags: true, OuterESPSPI: true, OuterGREProtocol: true, OuterGREKey: true, OuterVXLANVNI: true,
		InnerDMAC: true, InnerSMAC: true, InnerEtherType: true, InnerIPVersion: true,
		InnerFirstPrio: true, InnerFirstCFI: true, InnerFirstVID: true,
		InnerSecondPrio: true, InnerSecondCFI: true, InnerSecondVID: true,
		InnerSIP: true, InnerDIP: true, InnerFrag: true, InnerIPProtocol: true, InnerIPECN: true, InnerIPDSCP: true,
		InnerUDPSPort: true, InnerUDPDPort: true, InnerTCPSPort: true, InnerTCPDPort: true, InnerTCPFlags: true,
	}
	parserCaps(c, &match, p.features.parsers)
	tables := prm.FlowTableProperties{
		FTSupport: true, FlowCounter: true, FlowModifyEn: true, ModifyRoot: true, IdentifiedMissTableMode: true,
		FlowTableModify: true, LogMaxFTSize: logMaxTable, MaxFTLevel: maxLevel, LogMaxFTNum: logMaxTables,
		LogMaxFlowCounter: logMaxCounter, LogMaxDestination: logMaxDestination, LogMaxFlow: logMaxFlow,
		FTFieldSupport: match, FTFieldBitmaskSupport: match,
	}
	c.Flow.FlowTablePropertiesNICReceive = tables
	c.Flow.FlowTablePropertiesNICTransmit = tables
	c.Flow.FTFieldSupport2NICReceive.OuterL4Type = true
	c.Flow.FTFieldSupport2NICReceive.TunnelHeader0_1 = p.features.parsers.Raw
}

// Bits of flex_parser_protocols (Linux mlx5_ifc.h, MLX5_FLEX_PARSER_*).
const (
	flexGENEVE      = 1 << 3
	flexMPLSOverGRE = 1 << 4
	flexMPLSOverUDP = 1 << 5
	flexVXLANGPE    = 1 << 7
	flexICMP        = 1 << 8
	flexICMPv6      = 1 << 9
	flexGTPU        = 1<<11 | 1<<16 | 1<<17 | 1<<18 | 1<<19 // its header, double words 2 and 0, first extension, TEID
)

// parserCaps sets what a kind of card matches beyond what all do. TCP sequence numbers have no capability: they are
// of misc_parameters_3, which the flexible parser's fields are in.
func parserCaps(c *capabilities, match *prm.FlowTableFields, p steer.Parsers) {
	if p.Flexible {
		const allOfLabel = 0xf
		match.OuterGeneveVNI, match.OuterGeneveOAM, match.OuterGeneveProtocolType, match.OuterGeneveOptLen = true, true, true, true
		match.OuterFirstMPLS, match.InnerFirstMPLS = allOfLabel, allOfLabel
		match.OuterFirstMPLSOverGRE, match.OuterFirstMPLSOverUDP = allOfLabel, allOfLabel
		c.General.FlexParserProtocols |= flexGENEVE | flexMPLSOverGRE | flexMPLSOverUDP | flexVXLANGPE | flexICMP | flexICMPv6
		c.Ethernet.TunnelStatelessGeneveRX = true
	}
	if p.GTPU {
		c.General.FlexParserProtocols |= flexGTPU
	}
}

func (f *function) steerHandlers() command.Table {
	const ready = command.Initialised
	return command.Table{
		prm.OpCreateRQT:  {Handle: f.createRQT, Phase: ready, MinIn: prm.CreateRQTInSize, MinOut: 12, Creates: object.RQT},
		prm.OpModifyRQT:  {Handle: f.modifyRQT, Phase: ready, MinIn: prm.ModifyRQTInSize},
		prm.OpQueryRQT:   {Handle: f.queryRQT, Phase: ready},
		prm.OpDestroyRQT: {Handle: f.destroyRQT, Phase: ready},

		prm.OpCreateTIR:  {Handle: f.createTIR, Phase: ready, MinIn: prm.CreateTIRInSize, MinOut: 12, Creates: object.TIR},
		prm.OpModifyTIR:  {Handle: f.modifyTIR, Phase: ready, MinIn: prm.ModifyTIRInSize},
		prm.OpQueryTIR:   {Handle: f.queryTIR, Phase: ready},
		prm.OpDestroyTIR: {Handle: f.destroyTIR, Phase: ready},

		prm.OpSetFlowTableRoot: {Handle: f.setFlowTableRoot, Phase: ready, MinIn: prm.SetFlowTableRootInSize},
		prm.OpCreateFlowTable: {Handle: f.createFlowTable, Phase: ready, MinIn: prm.CreateFlowTableInSize, MinOut: 12,
			Creates: object.FlowTable},
		prm.OpModifyFlowTable:  {Handle: f.modifyFlowTable, Phase: ready, MinIn: prm.ModifyFlowTableInSize},
		prm.OpQueryFlowTable:   {Handle: f.queryFlowTable, Phase: ready, MinIn: prm.QueryFlowTableInSize},
		prm.OpDestroyFlowTable: {Handle: f.destroyFlowTable, Phase: ready, MinIn: prm.DestroyFlowTableInSize},

		prm.OpCreateFlowGroup: {Handle: f.createFlowGroup, Phase: ready, MinIn: prm.CreateFlowGroupInSize, MinOut: 12,
			Creates: object.FlowGroup},
		prm.OpQueryFlowGroup:   {Handle: f.queryFlowGroup, Phase: ready, MinIn: prm.QueryFlowGroupInSize},
		prm.OpDestroyFlowGroup: {Handle: f.destroyFlowGroup, Phase: ready, MinIn: prm.DestroyFlowGroupInSize},

		prm.OpSetFlowTableEntry: {Handle: f.setFlowTableEntry, Phase: ready, MinIn: prm.SetFlowTableEntryInSize,
			Creates: object.FlowEntry},
		prm.OpQueryFlowTableEntry:  {Handle: f.queryFlowTableEntry, Phase: ready, MinIn: prm.QueryFlowTableEntryInSize},
		prm.OpDeleteFlowTableEntry: {Handle: f.deleteFlowTableEntry, Phase: ready, MinIn: prm.DeleteFlowTableEntryInSize},

		prm.OpAddVXLANUDPDPort:    {Handle: f.addVXLANPort, Phase: ready},
		prm.OpDeleteVXLANUDPDPort: {Handle: f.deleteVXLANPort, Phase: ready},

		prm.OpAllocModifyHeaderContext:   {Handle: f.allocModifyHeader, Phase: ready, MinOut: 12, Creates: object.ModifyHeader},
		prm.OpDeallocModifyHeaderContext: {Handle: f.deallocModifyHeader, Phase: ready},

		prm.OpAllocFlowCounter:   {Handle: f.allocFlowCounter, Phase: ready, MinOut: 12, Creates: object.FlowCounter},
		prm.OpDeallocFlowCounter: {Handle: f.deallocFlowCounter, Phase: ready},
		prm.OpQueryFlowCounter:   {Handle: f.queryFlowCounter, Phase: ready, MinIn: prm.QueryFlowCounterInSize},
	}
}

// tableLimits are the limits of a function's own tables.
func (p *profile) tableLimits() steer.Limits {
	return steer.Limits{
		LogSize: logMaxTable, Level: maxLevel, Tables: 1 << logMaxTables, Groups: maxGroups, Entries: 1 << logMaxFlow,
		Destinations: 1 << logMaxDestination, Parsers: p.features.parsers,
	}
}

// seed keeps drivers from choosing keys that meet in a hash table.
func (f *function) seed() uint64 { return f.card.config.Seed*0x9e3779b97f4a7c15 + uint64(f.index) }

// resetSteering forgets all tables, TIRs and RQTs.
func (f *function) resetSteering() {
	limits, seed := f.card.profile.tableLimits(), f.seed()
	limits.Sources = f.manages() // what is missed by the e-switch is its to tell apart
	f.steerHalf = steerHalf{
		rx:       steer.NewDomain(steer.NICRx, limits, seed),
		tx:       steer.NewDomain(steer.NICTx, limits, ^seed),
		tirs:     object.New[*steer.TIR](1, 1<<logMaxTIR-1),
		rqts:     object.New[*steer.RQT](1, 1<<logMaxRQT-1),
		flows:    object.New[*steer.Counter](1, 1<<logMaxCounter-1),
		headers:  object.New[*steer.Header](1, 1<<logMaxHeaders-1),
		bulks:    newBulks(),
		toeplitz: map[[packet.KeyLen]byte]*sharedKey{},
		tunnels: packet.Tunnels{
			VXLAN: []uint16{vxlanPort}, GRE: true, IPinIP: true, Flexible: f.card.profile.features.parsers.Flexible,
		},
	}
}

// countSteering adds the objects of steering.
func (f *function) countSteering(n *[object.Kinds]int) {
	n[object.TIR] += f.tirs.Len()
	n[object.RQT] += f.rqts.Len()
	n[object.ModifyHeader] += f.headers.Len()
	n[object.FlowCounter] += f.flows.Len() + f.bulks.Len()
	domains := []*steer.Domain{f.rx, f.tx}
	if e := f.esw(); e != nil {
		domains = append(domains, e.fdb)
		for _, p := range e.all() {
			domains = append(domains, p.ingress, p.egress)
		}
	}
	for _, d := range domains {
		if d == nil {
			continue
		}
		tables, groups, entries := d.Counts()
		n[object.FlowTable] += tables
		n[object.FlowGroup] += groups
		n[object.FlowEntry] += entries
	}
}

// vportChanged forgets what the address filter decided.
func (f *function) vportChanged() { f.accepted = 0 }

// hashFields are the selectable fields of a hash.
const hashFields = packet.HashSrcIP | packet.HashDstIP | packet.HashSrcPort | packet.HashDstPort | packet.HashSPI

// checkHash checks what a TIR context says of hashing.
func checkHash(ctx *prm.TIRContext) command.Result {
	if ctx.RXHashFn > prm.RXHashFnToeplitz {
		return refuse(prm.StatusBadParameter, synHashFunction, "rx_hash_fn %d", ctx.RXHashFn)
	}
	for _, s := range []*prm.RXHashFieldSelect{&ctx.RXHashFieldSelectorOuter, &ctx.RXHashFieldSelectorInner} {
		if s.SelectedFields&^hashFields != 0 {
			return refuse(prm.StatusBadParameter, synHashFields, "selected_fields %#x", uint32(s.SelectedFields))
		}
	}
	return command.Result{}
}

// lroPeriods are the timeouts of large receives that a driver may choose from, in microseconds.
var lroPeriods = [...]uint16{8, 16, 32, 1024}

// lroUnit is what lro_max_ip_payload_size counts in, in bytes.
const lroUnit = 256

// Bits of packet_merge_mask.
const (
	mergeIPv4 = 1 << 0
	mergeIPv6 = 1 << 1
)

// checkMerge checks what a TIR context says of large receives.
func checkMerge(ctx *prm.TIRContext) command.Result {
	if ctx.PacketMergeMask == 0 {
		return command.Result{}
	}
	if ctx.PacketMergeMask&^(mergeIPv4|mergeIPv6) != 0 {
		return refuse(prm.StatusBadParameter, synTIRFeature, "packet_merge_mask %#x: only IPv4 and IPv6", ctx.PacketMergeMask)
	}
	if ctx.LROMaxIPPayloadSize == 0 || !slices.Contains(lroPeriods[:], ctx.LROTimeoutPeriodUsecs) {
		return refuse(prm.StatusBadParameter, synLRO, "lro_max_ip_payload_size %d, lro_timeout_period_usecs %d",
			ctx.LROMaxIPPayloadSize, ctx.LROTimeoutPeriodUsecs)
	}
	return command.Result{}
}

// setMerge makes t put segments together as its context says.
func setMerge(t *steer.TIR) {
	t.Merge = uint8(t.Context.PacketMergeMask)
	t.MaxMerge = int(t.Context.LROMaxIPPayloadSize) * lroUnit
}

// setHash makes t hash as its context says.
func (f *function) setHash(t *steer.TIR) {
	f.dropKey(t)
	ctx := &t.Context
	t.Hash = packet.Hash{
		Fields:    uint32(ctx.RXHashFieldSelectorOuter.SelectedFields),
		Symmetric: ctx.RXHashSymmetric && ctx.RXHashFn == prm.RXHashFnToeplitz,
		XOR8:      ctx.RXHashFn == prm.RXHashFnInvertedXOR8,
	}
	t.Tunnelled = ctx.TunneledOffloadEn
	defer func() {
		t.InnerHash = t.Hash
		t.InnerHash.Fields = uint32(ctx.RXHashFieldSelectorInner.SelectedFields)
	}()
	if ctx.RXHashFn != prm.RXHashFnToeplitz {
		return
	}
	k := f.toeplitz[ctx.RXHashToeplitzKey]
	if k == nil {
		k = &sharedKey{Toeplitz: packet.NewToeplitz(&ctx.RXHashToeplitzKey)}
		f.toeplitz[ctx.RXHashToeplitzKey] = k
	}
	k.Hold()
	t.Key = ctx.RXHashToeplitzKey
	t.Hash.Toeplitz = k.Toeplitz
}

// dropKey lets go of the Toeplitz key that t hashes with.
func (f *function) dropKey(t *steer.TIR) {
	if t.Hash.Toeplitz == nil {
		return
	}
	k := f.toeplitz[t.Key]
	k.Drop()
	if !k.Held() {
		delete(f.toeplitz, t.Key)
	}
	t.Hash.Toeplitz = nil
}

// setLoopback makes t accept own frames as its context says. The bits of self_lb_block allow it, despite
// their name (reference 01a).
func (f *function) setLoopback(t *steer.TIR) {
	if t.LoopbackUnicast || t.LoopbackMulticast {
		f.loopbacks--
	}
	t.LoopbackUnicast, t.LoopbackMulticast = t.Context.SelfLBBlock&1 != 0, t.Context.SelfLBBlock&2 != 0
	if t.LoopbackUnicast || t.LoopbackMulticast {
		f.loopbacks++
	}
}

func (f *function) createTIR(c *command.Call) command.Result {
	var in prm.CreateTIRIn
	in.Get(c.In)
	ctx := &in.Context
	if ctx.TLSEn {
		return refuse(prm.StatusBadParameter, synTIRFeature, "TLS is not supported")
	}
	if r := checkMerge(ctx); !r.OK() {
		return r
	}
	if r := checkHash(ctx); !r.OK() {
		return r
	}
	domain, ok := f.domains.Get(ctx.TransportDomain)
	if !ok {
		return fault(prm.StatusBadResource, synNoTransportDomain)
	}
	t := &steer.TIR{Context: *ctx}
	switch ctx.DispType {
	case prm.TIRDispDirect:
		if t.Direct, ok = f.rqs.Get(ctx.InlineRQN); !ok {
			return refuse(prm.StatusBadResource, synNoRQ, "no RQ %#x", ctx.InlineRQN)
		}
	case prm.TIRDispIndirect:
		if t.Table, ok = f.rqts.Get(ctx.IndirectTable); !ok {
			return refuse(prm.StatusBadResource, synNoRQT, "no RQT %#x", ctx.IndirectTable)
		}
	default:
		return refuse(prm.StatusBadParameter, synTIRType, "disp_type %d", ctx.DispType)
	}
	if t.Number, ok = f.tirs.Add(t); !ok {
		return fault(prm.StatusLimitExceeded, synNoNumber)
	}
	if t.Table != nil {
		t.Table.Hold()
	} else {
		t.Direct.Hold()
	}
	domain.Hold()
	f.setHash(t)
	f.setLoopback(t)
	setMerge(t)
	c.Reply(&prm.CreateTIROut{TIRN: t.Number})
	return command.Result{}
}

func (f *function) modifyTIR(c *command.Call) command.Result {
	var in prm.ModifyTIRIn
	in.Get(c.In)
	t, ok := f.tirs.Get(in.TIRN)
	if !ok {
		return refuse(prm.StatusBadResource, synNoTIR, "no TIR %#x", in.TIRN)
	}
	from, to := &in.Context, &t.Context
	if in.BitmaskPacketMerge {
		if r := checkMerge(from); !r.OK() {
			return r
		}
	}
	if in.BitmaskHash {
		if r := checkHash(from); !r.OK() {
			return r
		}
		to.RXHashFn, to.RXHashSymmetric = from.RXHashFn, from.RXHashSymmetric
		to.RXHashToeplitzKey = from.RXHashToeplitzKey
		to.RXHashFieldSelectorOuter, to.RXHashFieldSelectorInner = from.RXHashFieldSelectorOuter, from.RXHashFieldSelectorInner
		f.setHash(t)
	}
	if in.BitmaskPacketMerge {
		to.PacketMergeMask, to.LROMaxIPPayloadSize = from.PacketMergeMask, from.LROMaxIPPayloadSize
		to.LROTimeoutPeriodUsecs = from.LROTimeoutPeriodUsecs
		setMerge(t)
	}
	if in.BitmaskSelfLBEn {
		to.SelfLBBlock = from.SelfLBBlock
		f.setLoopback(t)
	}
	return command.Result{}
}

func (f *function) queryTIR(c *command.Call) command.Result {
	n := number24(c)
	t, ok := f.tirs.Get(n)
	if !ok {
		return refuse(prm.StatusBadResource, synNoTIR, "no TIR %#x", n)
	}
	c.Reply(&prm.QueryTIROut{Context: t.Context})
	return command.Result{}
}

func (f *function) destroyTIR(c *command.Call) command.Result {
	n := number24(c)
	t, ok := f.tirs.Get(n)
	if !ok {
		return refuse(prm.StatusBadResource, synNoTIR, "no TIR %#x", n)
	}
	if t.Held() {
		return refuse(prm.StatusBadResourceState, synInUse, "%d flow entries forward to TIR %#x", t.Holders(), n)
	}
	if t.Table != nil {
		t.Table.Drop()
	} else {
		t.Direct.Drop()
	}
	t.Context.SelfLBBlock = 0
	f.setLoopback(t)
	f.dropKey(t)
	f.dropDomain(t.Context.TransportDomain)
	f.tirs.Remove(n)
	return command.Result{}
}

const (
	vxlanPort     = 4789 // IANA's, which is known from the start
	maxVXLANPorts = 4
)

func (f *function) addVXLANPort(c *command.Call) command.Result {
	var in prm.AddVXLANUDPDPortIn
	in.Get(c.In)
	port, ports := in.VXLANUDPPort, &f.tunnels.VXLAN
	if port == 0 {
		return refuse(prm.StatusBadParameter, synVXLANPort, "port 0")
	}
	if slices.Contains(*ports, port) {
		return command.Result{}
	}
	if len(*ports) == maxVXLANPorts {
		return refuse(prm.StatusLimitExceeded, synVXLANPort, "%d VXLAN ports are all there are", maxVXLANPorts)
	}
	*ports = append(*ports, port)
	return command.Result{}
}

func (f *function) deleteVXLANPort(c *command.Call) command.Result {
	var in prm.DeleteVXLANUDPDPortIn
	in.Get(c.In)
	i := slices.Index(f.tunnels.VXLAN, in.VXLANUDPPort)
	if i < 0 {
		return refuse(prm.StatusBadParameter, synVXLANPort, "port %d is no VXLAN port", in.VXLANUDPPort)
	}
	f.tunnels.VXLAN = slices.Delete(f.tunnels.VXLAN, i, i+1)
	return command.Result{}
}
