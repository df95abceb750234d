package driver

import "fmt"

// Info describes the card behind a NIC; it does not change while the NIC is open.
type Info struct {
	// Address is the function's PCI address, "0000:08:00.0".
	Address string
	// VendorID and DeviceID are the PCI identifiers; Model is the card's name for them, "ConnectX-5".
	VendorID, DeviceID uint16
	Model              string
	// Firmware is the version as ethtool prints it, "16.35.2000"; PSID the board's parameter set.
	Firmware FirmwareVersion
	PSID     string
	// TimestampKHz is the rate of Packet.Timestamp in kHz; 0 if the card does not say.
	TimestampKHz uint32
}

// FirmwareVersion is major.minor.subminor.
type FirmwareVersion struct{ Major, Minor, Subminor uint16 }

func (v FirmwareVersion) String() string {
	return fmt.Sprintf("%d.%d.%04d", v.Major, v.Minor, v.Subminor)
}

// Info describes the card.
func (n *NIC) Info() Info { return n.base.info }

// Books is where everything is that a NIC has lent or borrowed. The card's model keeps the other side's
// books; tests compare the two.
type Books struct {
	// Buffers is how many packet buffers are in each place.
	Buffers BufferBooks
	// FirmwarePages is how many 4096-byte pages firmware holds.
	FirmwarePages int
	// Objects is how many objects of each kind exist on the card: "cq", "rq", "tir", "flow table".
	Objects map[string]int
	// CommandSlots is how many command slots firmware holds, Mailboxes how many mailboxes are in use.
	CommandSlots, Mailboxes int
}

// BufferBooks counts buffers by who has them. The sum is Config.Buffers with RxStack; else it is the buffers for Get and
// the frames that all pages hold.
type BufferBooks struct {
	Free        int // with the NIC
	Posted      int // in receive rings
	Application int // from Poll or Get, not yet released or sent
	Sending     int // in transmit rings
	// Violations counts buffers released or sent by someone who did not have them.
	Violations uint64
}
