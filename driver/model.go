package driver

import "fmt"

// model names a card by its PCI device identifier (00-overview §1; Linux main.c, mlx5_core_pci_table).
func model(device uint16) string {
	switch device {
	case 0x1011, 0x1012:
		return "Connect-IB"
	case 0x1013, 0x1014:
		return "ConnectX-4"
	case 0x1015, 0x1016:
		return "ConnectX-4 Lx"
	case 0x1017, 0x1018:
		return "ConnectX-5"
	case 0x1019, 0x101A:
		return "ConnectX-5 Ex"
	case 0x101B, 0x101C:
		return "ConnectX-6"
	case 0x101D:
		return "ConnectX-6 Dx"
	case 0x101E:
		return "ConnectX family virtual function"
	case 0x101F:
		return "ConnectX-6 Lx"
	case 0x1021:
		return "ConnectX-7"
	case 0x1023:
		return "ConnectX-8"
	case 0x1025:
		return "ConnectX-9"
	case 0x1027:
		return "ConnectX-10"
	case 0xA2D2, 0xA2D3:
		return "BlueField"
	case 0xA2D6:
		return "BlueField-2"
	case 0xA2DC:
		return "BlueField-3"
	case 0xA2DF:
		return "BlueField-4"
	}
	return fmt.Sprintf("device %#06x", device)
}

// ModelName names the card that has a PCI device identifier.
func ModelName(device uint16) string { return model(device) }
