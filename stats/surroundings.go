package stats

import "fmt"

// Module is what the latest module event of a port said of its cable or transceiver, in mlx5_core's words.
type Module struct {
	Number int    `json:"module"`
	Status string `json:"status"`          // "Cable plugged", "Cable error"
	Error  string `json:"error,omitempty"` // of the latest error, which a later event does not take back
	Errors uint64 `json:"errors"`          // events that told of one
}

func (m Module) String() string {
	text := fmt.Sprintf("module %d, %s", m.Number, m.Status)
	if m.Error != "" {
		text += fmt.Sprintf("; latest of %d errors: %s", m.Errors, m.Error)
	}
	return text
}

// Power is what the PCI slot offers, as the card found when it last changed.
type Power struct {
	Watts        int  `json:"watts"`
	Known        bool `json:"known"` // the slot says
	Insufficient bool `json:"insufficient"`
}

// String is the message of mlx5_core (Linux events.c, mlx5_pcie_event).
func (p Power) String() string {
	switch {
	case !p.Known:
		return "PCIe slot power capability was not advertised."
	case p.Insufficient:
		return fmt.Sprintf("Detected insufficient power on the PCIe slot (%dW).", p.Watts)
	}
	return fmt.Sprintf("PCIe slot advertised sufficient power (%dW).", p.Watts)
}
