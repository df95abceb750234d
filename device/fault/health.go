package fault

// HealthBuffer is the health buffer of a failed card, field by field (reference: Linux health.c,
// print_health_info).
type HealthBuffer struct {
	AssertVar    [6]uint32
	AssertExit   uint32
	AssertCallra uint32
	// Time is what the buffer's clock says, in seconds; the card's own time if 0.
	Time uint32
	// FirmwareVersion and HardwareID are the card's own if 0.
	FirmwareVersion uint32
	HardwareID      uint32
	ResetRequest    bool // rfr
	Severity        uint8
	IRISC           uint8
	Syndrome        uint8 // not 0
	ExtSyndrome     uint16
}

// AssertCX6 is the buffer of a ConnectX-6 Dx whose firmware 22.44.1036 met an assertion, from a public
// report.
func AssertCX6() *HealthBuffer {
	return &HealthBuffer{
		AssertVar: [6]uint32{0x0521945b}, AssertExit: 0x21492f38, AssertCallra: 0x2102d5f0,
		Time: 1742220438, FirmwareVersion: 0x162c040c, HardwareID: 0x00000212,
		Severity: 3, IRISC: 3, Syndrome: 0x1, ExtSyndrome: 0x8f7a,
	}
}
