package device

import (
	"slices"
	"time"

	"cxkit/device/internal/queue"
	"cxkit/device/internal/steer"
)

// features are what kinds of cards differ in, of all that the model can do.
type features struct {
	multiPacket bool  // enhanced multi-packet WQEs
	strideIndex bool  // compressed completions with the stride's index
	timeFormats uint8 // rq_ts_format and sq_ts_format
	maxLSO      uint8 // log2 of the longest large send
	inlineVport bool  // headers in send WQEs as the vport context says; at first Ethernet's
	monitor     bool  // counters can be monitored
	parsers     steer.Parsers
}

// Profiles are the names of the kinds of cards there are, for Config.Profile.
func Profiles() (names []string) {
	for i := range profiles() {
		names = append(names, profiles()[i].key)
	}
	return names
}

// Embedded reports whether cards of a kind have a processor of their own, which manages the e-switch.
func Embedded(profile string) bool {
	p := profileNamed(profile)
	return p != nil && p.embedded
}

// profileNamed returns a profile, nil if there is none of that name.
func profileNamed(name string) *profile {
	list := profiles()
	i := slices.IndexFunc(list, func(p profile) bool { return p.key == name })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// profiles are cards as lspci, mlx5_core and ethtool show them (reference 00 §1, §3). Firmware versions are
// those of one release; PSIDs are board identities of NVIDIA's own boards.
func profiles() []profile {
	base := profile{
		vendor: 0x15b3, subVendor: 0x15b3, barSize: 32 << 20, vectors: 64,
		bootTime: time.Millisecond, memory: Memory{Boot: 6, Init: 512, Included: 512},
		frequencyKHz: 1_000_000, portMTU: 10_000, speed: speed100G, fec: fecUpTo(fec100G),
		maxEQs: 128, logMaxPD: 24, logMaxTD: 24, logMaxMKey: 24,
	}
	lx, five, sixDx, seven := base, base, base, base

	lx.key, lx.name = "cx4lx", "ConnectX-4 Lx"
	lx.device, lx.subDevice, lx.hwID, lx.psid = 0x1015, 0x0003, 0x20b, "MT_2420110034"
	lx.fwMajor, lx.fwMinor, lx.fwSubminor = 14, 32, 1010
	lx.vpd = vitalProductData("CX4121A - ConnectX-4 LX SFP28", "MCX4121A-ACAT", "AG", "MT1722X00000")
	lx.mac = [6]byte{0xec, 0x0d, 0x9a, 0x00, 0x08, 0x00}
	lx.frequencyKHz, lx.speed, lx.fec = 156_250, speed25G, fecUpTo(fec25G)
	lx.features = features{maxLSO: queue.LogMaxLSO, inlineVport: true}

	five.key, five.name = "cx5", "ConnectX-5"
	five.device, five.subDevice, five.hwID, five.psid = 0x1017, 0x0080, 0x20d, "MT_0000000008"
	five.fwMajor, five.fwMinor, five.fwSubminor = 16, 35, 3006
	five.vpd = vitalProductData("CX555A - ConnectX-5 QSFP28", "MCX555A-ECAT", "A9", "MT1748X00000")
	five.mac = [6]byte{0x0c, 0x42, 0xa1, 0x00, 0x08, 0x00}
	five.features = features{multiPacket: true, strideIndex: true, maxLSO: queue.LogMaxLSO, parsers: steer.Parsers{Flexible: true}}

	sixDx.key, sixDx.name = "cx6dx", "ConnectX-6 Dx"
	sixDx.device, sixDx.subDevice, sixDx.hwID, sixDx.psid = 0x101d, 0x0016, 0x212, "MT_0000000359"
	sixDx.fwMajor, sixDx.fwMinor, sixDx.fwSubminor = 22, 35, 3006
	sixDx.vpd = vitalProductData("ConnectX-6 Dx EN adapter card, 100GbE, dual-port QSFP56", "MCX623106AN-CDAT", "A8", "MT2036X00000")
	sixDx.mac = [6]byte{0x10, 0x70, 0xfd, 0x00, 0x08, 0x00}
	sixDx.fec = fecUpTo(fec100G2x)
	sixDx.features = features{multiPacket: true, strideIndex: true, timeFormats: tsCapBoth, maxLSO: queue.LogMaxLSO, monitor: true,
		parsers: steer.Parsers{Flexible: true, GTPU: true, Raw: true}}

	seven.key, seven.name = "cx7", "ConnectX-7"
	seven.device, seven.subDevice, seven.hwID, seven.psid = 0x1021, 0x0041, 0x218, "MT_0000000838"
	seven.fwMajor, seven.fwMinor, seven.fwSubminor = 28, 35, 3006
	seven.vpd = vitalProductData("ConnectX-7 adapter card, 200GbE, dual-port QSFP112", "MCX755106AS-HEAT", "A5", "MT2230X00000")
	seven.mac = [6]byte{0xb8, 0x3f, 0xd2, 0x00, 0x08, 0x00}
	seven.features, seven.fec = sixDx.features, fecUpTo(fec200G2x)

	field := base
	field.key, field.name = "bf2", "BlueField-2"
	field.device, field.subDevice, field.hwID, field.psid = 0xa2d6, 0x0061, 0x214, "MT_0000000765"
	field.fwMajor, field.fwMinor, field.fwSubminor = 24, 35, 3006
	field.vpd = vitalProductData("BlueField-2 DPU 100GbE Dual-Port QSFP56", "MBF2M516A-CEEOT", "A5", "MT2133X00000")
	field.mac = [6]byte{0xb8, 0xce, 0xf6, 0x00, 0x08, 0x00}
	field.features, field.fec, field.embedded = sixDx.features, sixDx.fec, true
	return []profile{lx, five, sixDx, seven, field}
}

// limit takes away what the kind of card can't do.
func (p *profile) limit(c *capabilities) {
	g, e := &c.General, &c.Ethernet
	e.EnhancedMultiPktSendWQE = p.features.multiPacket
	g.MiniCQERespStrideIndex = p.features.strideIndex
	g.RQTSFormat, g.SQTSFormat = p.features.timeFormats, p.features.timeFormats
	e.MaxLSOCap = p.features.maxLSO
	if p.features.inlineVport {
		// Linux's devlink inline-mode is for these cards alone (eswitch_offloads.c).
		e.WQEInlineMode = inlineByVport
	}
	if p.features.monitor {
		g.MaxNumOfMonitorCounters, g.NumPPCNTMonitorCounters, g.NumQMonitorCounters = maxMonitored, ppcntMonitored, 1
	}
}
