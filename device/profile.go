package device

import "time"

// profile is a kind of card as data.
type profile struct {
	key                  string // its name in Config.Profile
	name                 string
	vendor, device       uint16
	subVendor, subDevice uint16
	revision             uint8
	barSize              uint64
	vectors              int
	vpd                  []byte

	fwMajor, fwMinor, fwSubminor uint16
	hwID                         uint32
	psid                         string
	mac                          [6]byte
	bootTime                     time.Duration
	memory                       Memory
	frequencyKHz                 uint32
	portMTU                      int // largest MTU as firmware counts it: 22 bytes more than the payload
	speed                        portSpeed
	fec                          fecCodes

	features features
	embedded bool // the card has a processor of its own, which manages the e-switch

	maxEQs             int
	logMaxPD, logMaxTD uint8
	logMaxMKey         uint8
}

// vfDevice is the device id of virtual functions: the one after the physical function's, and one for all
// from ConnectX-6 Dx on (reference 00 §1).
func (p *profile) vfDevice() uint16 {
	if p.device >= 0x101d {
		return 0x101e
	}
	return p.device + 1
}

// fwVersion is the version as the health buffer has it.
func (p *profile) fwVersion() uint32 {
	return uint32(p.fwMajor)<<24 | uint32(p.fwMinor)<<16 | uint32(p.fwSubminor)
}

// vitalProductData makes VPD (PCI 3.0 appendix I): the product's name, and read-only part number,
// revision, serial number and a checksum.
func vitalProductData(name, part, revision, serial string) []byte {
	vpd := append([]byte{0x82, byte(len(name)), byte(len(name) >> 8)}, name...)
	var ro []byte
	for _, f := range []struct{ key, value string }{{"PN", part}, {"EC", revision}, {"SN", serial}} {
		ro = append(append(ro, f.key...), byte(len(f.value)))
		ro = append(ro, f.value...)
	}
	n := len(ro) + 4
	vpd = append(vpd, 0x90, byte(n), byte(n>>8))
	vpd = append(append(vpd, ro...), 'R', 'V', 1)
	var sum byte
	for _, b := range vpd {
		sum += b
	}
	return append(vpd, -sum, 0x78)
}
