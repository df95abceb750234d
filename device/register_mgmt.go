package device

import (
	"fmt"
	"time"

	"cxkit/device/internal/command"
	"cxkit/prm"
)

// managementRegisterTable are the registers of the card itself.
func (f *function) managementRegisterTable() map[prm.RegisterID]register {
	return map[prm.RegisterID]register{
		prm.RegIDHostEndianness: {size: prm.RegHostEndiannessSize, read: f.readEndianness, write: f.writeEndianness},
		prm.RegIDMTCAP:          {size: prm.RegMTCAPSize, read: f.readMTCAP},
		prm.RegIDMTMP:           {size: prm.RegMTMPSize, read: f.readMTMP, write: f.writeMTMP},
		prm.RegIDMCIA:           {size: prm.RegMCIASize, short: mciaShort, read: f.readMCIA},
		prm.RegIDMLCR:           {size: prm.RegMLCRSize, read: f.readMLCR, write: f.writeMLCR},
		prm.RegIDMPEIN:          {size: prm.RegMPEINSize, read: f.readMPEIN},
		prm.RegIDMPCNT:          {size: prm.RegMPCNTSize, read: f.readMPCNT},
		prm.RegIDMCQS:           {size: prm.RegMCQSSize, read: f.readMCQS},
		prm.RegIDMCQI:           {size: prm.RegMCQISize, read: f.readMCQI},
		prm.RegIDMCAM:           {size: prm.RegMCAMSize, read: f.readMCAM},
		prm.RegIDDTOR:           {size: prm.RegDTORSize, read: f.readDTOR},
	}
}

// management is what drivers have written to these registers.
type management struct {
	bigEndianHost bool
	beaconUntil   time.Duration
	beaconFor     uint16 // seconds; 0xffff for ever
}

func (f *function) readEndianness(image []byte) command.Result {
	(&prm.RegHostEndianness{He: f.management.bigEndianHost}).Put(image)
	return command.Result{}
}

// writeEndianness notes the host's byte order. It concerns RDMA atomics only; everything the card shares
// with a driver is big endian.
func (f *function) writeEndianness(image []byte) command.Result {
	var r prm.RegHostEndianness
	r.Get(image)
	f.management.bigEndianHost = r.He
	return command.Result{}
}

// The card's one temperature sensor, in units of 1/8 °C.
const (
	temperature     = 52 * 8
	temperatureHigh = 105 * 8
	temperatureLow  = 95 * 8
)

// moduleSensors is the number of the first module's temperature sensor.
const moduleSensors = 64

func (f *function) readMTCAP(image []byte) command.Result {
	(&prm.RegMTCAP{SensorCount: 1, SensorMap: 1}).Put(image)
	return command.Result{}
}

func (f *function) readMTMP(image []byte) command.Result {
	var r prm.RegMTMP
	r.Get(image)
	switch r.SensorIndex {
	case 0:
	case moduleSensors + uint16(f.module()):
		// A copper cable has no sensor: temperature 0 says so. Linux asks (hwmon.c), and complains of an
		// error.
		(&prm.RegMTMP{SensorIndex: r.SensorIndex}).Put(image)
		return command.Result{}
	default:
		return fault(prm.StatusBadParameter, synRegisterValue)
	}
	out := prm.RegMTMP{
		Temperature: temperature, MTE: true, MaxTemperature: temperature,
		TempThresholdHi: temperatureHigh, TempThresholdLo: temperatureLow,
		SensorNameHi: 'a'<<24 | 's'<<16 | 'i'<<8 | 'c',
	}
	out.Put(image)
	return command.Result{}
}

// writeMTMP lets a driver reset the maximum, which never moves here.
func (f *function) writeMTMP(image []byte) command.Result {
	var r prm.RegMTMP
	r.Get(image)
	if r.SensorIndex != 0 {
		return fault(prm.StatusBadParameter, synRegisterValue)
	}
	return command.Result{}
}

// beaconForever keeps the LED on until it is switched off.
const beaconForever = 0xffff

func (f *function) readMLCR(image []byte) command.Result {
	var r prm.RegMLCR
	r.Get(image)
	if res := checkPort(r.LocalPort); !res.OK() {
		return res
	}
	m := &f.management
	out := prm.RegMLCR{LocalPort: localPort, BeaconDuration: m.beaconFor}
	if m.beaconFor == beaconForever {
		out.BeaconRemain = beaconForever
	} else if left := m.beaconUntil - f.card.now; left > 0 {
		out.BeaconRemain = uint16((left + time.Second - 1) / time.Second)
	}
	out.Put(image)
	return command.Result{}
}

func (f *function) writeMLCR(image []byte) command.Result {
	var r prm.RegMLCR
	r.Get(image)
	if res := checkPort(r.LocalPort); !res.OK() {
		return res
	}
	f.management.beaconFor = r.BeaconDuration
	f.management.beaconUntil = f.card.now + time.Duration(r.BeaconDuration)*time.Second
	return command.Result{}
}

func (f *function) readMPEIN(image []byte) command.Result {
	const speeds = 0x07 // 2.5 to 8 GT/s
	out := prm.RegMPEIN{
		LinkWidthEnabled: 16, LinkSpeedEnabled: speeds, LinkWidthActive: 16, LinkSpeedActive: 1 << 2,
		NumOfPFs: uint16(f.card.config.Ports), MaxReadRequestSize: 2, MaxPayloadSize: 2,
		PwrStatus: powerSufficient, PCIPower: slotPower,
	}
	if f.states.shortOfPower {
		out.PwrStatus, out.PCIPower = powerInsufficient, uint16(f.states.watts)
	}
	out.Put(image)
	return command.Result{}
}

// Power of the PCI slot, in watts, and what MPEIN says of it (Linux events.c).
const (
	slotPower         = 75
	powerSufficient   = 1
	powerInsufficient = 2
)

func (f *function) readMPCNT(image []byte) command.Result {
	var r prm.RegMPCNT
	r.Get(image)
	if r.Grp != 0 || r.PCIeIndex != 0 {
		return fault(prm.StatusBadParameter, synRegisterValue)
	}
	r.CounterSet = [248]byte{}
	(&prm.MPCNTPerformance{
		LifeTimeCounter: uint64(f.card.now.Milliseconds()), TXOverflowBufferPkt: f.port.counters.overflow,
		RXErrors: f.card.recoveries.own, TXErrors: f.card.recoveries.peer,
	}).Put(r.CounterSet[:])
	r.Put(image)
	return command.Result{}
}

// bootImage is the identifier of the firmware image among the components.
const bootImage = 1

func (f *function) readMCQS(image []byte) command.Result {
	var r prm.RegMCQS
	r.Get(image)
	if r.ComponentIndex != 0 || r.FWDevice != 0 {
		return fault(prm.StatusBadParameter, synRegisterValue)
	}
	(&prm.RegMCQS{LastIndexFlag: true, Identifier: bootImage}).Put(image)
	return command.Result{}
}

// Information that MCQI gives.
const (
	mcqiCapabilities = 0
	mcqiVersion      = 1
	mcqiActivation   = 5
)

func (f *function) readMCQI(image []byte) command.Result {
	var r prm.RegMCQI
	r.Get(image)
	if r.ComponentIndex != 0 {
		return fault(prm.StatusBadParameter, synRegisterValue)
	}
	var data []byte
	switch r.InfoType {
	case mcqiCapabilities:
		data = make([]byte, prm.MCQICapabilitiesSize)
		(&prm.MCQICapabilities{SupportedInfoBitmask: 1<<mcqiCapabilities | 1<<mcqiVersion | 1<<mcqiActivation}).Put(data)
	case mcqiVersion:
		p := f.card.profile
		v := prm.MCQIVersion{Version: p.fwVersion()}
		v.VersionStringLength = uint8(copy(v.VersionString[:], fmt.Sprintf("%d.%d.%04d", p.fwMajor, p.fwMinor, p.fwSubminor)))
		data = make([]byte, prm.MCQIVersionSize)
		v.Put(data)
	case mcqiActivation:
		data = make([]byte, prm.MCQIActivationMethodSize)
		(&prm.MCQIActivationMethod{PendingFWReset: true}).Put(data)
	default:
		return fault(prm.StatusBadParameter, synRegisterValue)
	}
	out := prm.RegMCQI{
		ReadPendingComponent: r.ReadPendingComponent, InfoType: r.InfoType, InfoSize: uint32(len(data)),
		Offset: r.Offset, DataSize: r.DataSize,
	}
	if uint64(r.Offset) > uint64(len(data)) {
		return fault(prm.StatusBadParameter, synRegisterValue)
	}
	data = data[r.Offset:]
	data = data[:min(len(data), int(r.DataSize), len(image)-prm.RegMCQISize)]
	out.DataSize, out.Data = uint16(len(data)), data
	clear(image)
	out.Put(image)
	return command.Result{}
}

// Feature bits of MCAM (reference 01c).
const (
	mcamPCIePerformance = 0
	mcamTXOverflow      = 3
	mcamStatusAndPower  = 17
)

func (f *function) readMCAM(image []byte) command.Result {
	var r prm.RegMCAM
	r.Get(image)
	out := prm.RegMCAM{FeatureGroup: r.FeatureGroup, AccessRegGroup: r.AccessRegGroup}
	if r.AccessRegGroup == 0 {
		for id := range f.managementRegisterTable() {
			if id >= 0x9000 && id < 0x9080 {
				bitMask(&out.MngAccessRegCapMask, int(id-0x9000))
			}
		}
	}
	if r.FeatureGroup == 0 {
		bitMask(&out.MngFeatureCapMask, mcamPCIePerformance, mcamTXOverflow, mcamStatusAndPower)
	}
	out.Put(image)
	return command.Result{}
}

// readDTOR gives Linux's own defaults (lib/tout.c).
func (f *function) readDTOR(image []byte) command.Result {
	ms := func(n uint32) prm.Timeout { return prm.Timeout{Multiplier: prm.TimeoutMilliseconds, Value: n} }
	(&prm.RegDTOR{
		PCIeToggleTo: ms(2_000), HealthPollTo: ms(2_000), FullCRDumpTo: ms(60_000), FWResetTo: ms(60_000),
		FlushOnErrTo: ms(2_000), PCISyncUpdateTo: ms(5_000), TearDownTo: ms(3_000), FSMReactivateTo: ms(5_000),
		ReclaimPagesTo: ms(5_000), ReclaimVFsPagesTo: ms(120_000), ResetUnloadTo: ms(300_000),
	}).Put(image)
	return command.Result{}
}
