package capture

import (
	"errors"
	"fmt"
)

const linkEthernet = 1

// errLink: the capture is of another kind of network.
var errLink = errors.New("only Ethernet (1) can be played")

// checkLink refuses link types other than Ethernet, by name (tcpdump.org/linktypes.html).
func checkLink(link uint32) error {
	if link == linkEthernet {
		return nil
	}
	name, ok := map[uint32]string{
		0: "NULL (BSD loopback)", 3: "AX25", 6: "IEEE802_5 (Token Ring)", 7: "ARCNET_BSD", 8: "SLIP",
		9: "PPP", 10: "FDDI", 50: "PPP_HDLC", 51: "PPP_ETHER", 100: "ATM_RFC1483", 101: "RAW (bare IP)",
		104: "C_HDLC", 105: "IEEE802_11 (Wi-Fi)", 107: "FRELAY", 108: "LOOP (OpenBSD loopback)",
		113: "LINUX_SLL (cooked, tcpdump -i any)", 114: "LTALK", 117: "PFLOG", 119: "IEEE802_11_PRISM",
		122: "IP_OVER_FC", 127: "IEEE802_11_RADIOTAP (Wi-Fi)", 129: "ARCNET_LINUX",
		138: "APPLE_IP_OVER_IEEE1394", 143: "DOCSIS", 163: "IEEE802_11_AVS", 187: "BLUETOOTH_HCI_H4",
		189: "USB_LINUX", 192: "PPI", 195: "IEEE802_15_4_WITHFCS", 201: "BLUETOOTH_HCI_H4_WITH_PHDR",
		220: "USB_LINUX_MMAPPED", 224: "FC_2", 226: "IPNET", 227: "CAN_SOCKETCAN", 228: "IPV4", 229: "IPV6",
		230: "IEEE802_15_4_NOFCS", 239: "NFLOG", 247: "INFINIBAND", 249: "USBPCAP", 253: "NETLINK",
		254: "BLUETOOTH_LINUX_MONITOR", 276: "LINUX_SLL2 (cooked, tcpdump -i any)",
	}[link]
	switch {
	case ok:
	case link >= 147 && link <= 162:
		name = fmt.Sprintf("USER%d", link-147)
	default:
		name = "unknown"
	}
	return fmt.Errorf("link type %d, %s: %w", link, name, errLink)
}
