package device

import "cxkit/prm"

// switchCaps sets what a function can do with the port and with an e-switch. A virtual function has less of
// the port. Every physical function is its vports' group manager, with virtual functions or without and where
// the card's own processor manages the e-switch, too: Linux tells the two capabilities apart for that case
// (eswitch.c mlx5_eswitch_init), and lets a group manager alone set pauses and priorities (en_ethtool.c
// mlx5e_set_pauseparam, en_dcbnl.c mlx5e_dcbnl_build_netdev). A manager has the e-switch's tables as well.
func switchCaps(c *capabilities, f *function) {
	g := &c.General
	if f.isVF() {
		g.PortModuleEvent, g.BeaconLED, g.WOLG = false, false, false
		return
	}
	g.VportGroupManager, g.QOS = true, true
	g.NICVportChangeEvent = !f.isWard()
	if !f.manages() {
		return
	}
	g.ESwitchManager = true
	g.LogMaxL2Table = logMaxL2

	s := &c.Switch
	s.VportCVLANStrip, s.VportCVLANInsertIfNotExist, s.VportCVLANInsertOverwrite, s.VportCVLANInsertAlways = true, true, true, true
	s.ESWUplinkIngressACL = true
	s.NICVportNodeGUIDModify, s.NICVportPortGUIDModify = true, true
	s.ECPFVportExists, s.ESWFunctionsChanged = f.embedded(), f.embedded()

	tables := c.Flow.FlowTablePropertiesNICTransmit
	tables.MaxFTLevel, tables.LogMaxDestination = maxSwitchLevel, logMaxVports
	tables.PopVLAN, tables.PushVLAN = true, true
	tables.PopVLAN2, tables.PushVLAN2 = true, true
	for _, match := range []*prm.FlowTableFields{&tables.FTFieldSupport, &tables.FTFieldBitmaskSupport} {
		match.SourceESwitchPort = true
		match.MetadataRegC0, match.MetadataRegC1 = true, true
	}
	c.FDB.FlowTablePropertiesEgressACL = tables
	tables.LogMaxModifyHeaderContext, tables.MaxModifyHeaderActions = logMaxHeaders, maxHeaderActions
	c.FDB.FlowTablePropertiesFDB, c.FDB.FlowTablePropertiesIngressACL = tables, tables
	c.FDB.FDBModifyHeaderFwdToTable = true
	c.FDB.FDBToVportRegCID = passedRegisters
	for _, match := range []*prm.FlowTableFields{&c.Flow.FlowTablePropertiesNICReceive.FTFieldSupport,
		&c.Flow.FlowTablePropertiesNICReceive.FTFieldBitmaskSupport} {
		match.SourceESwitchPort, match.MetadataRegC0 = true, true
	}
	c.FDB.FDBMultiPathToTable, c.FDB.FlowSource = true, true

	q := &c.QOS
	q.ESWScheduling, q.ESWBWShare, q.ESWRateLimit = true, true, true
	q.LogESWMaxSchedDepth = 2
	q.ESWElementType = 1<<prm.SchedulingTSAR | 1<<prm.SchedulingVport
	q.ESWTSARType = 1 << tsarDWRR
	q.MaxTSARBWShare = 100
	q.PacketPacingMaxRate = maxRateKbps
}

// passedRegisters are the metadata registers that a vport's own tables may see, by number: C0.
const passedRegisters = 1 << 0

// logMaxL2 is log2 of the entries of the uplink's address table.
const logMaxL2 = 13
