package pci

import "fmt"

// DMAError is a DMA access that the host refused.
type DMAError struct {
	Addr   uint64
	Len    int
	Access Access
	// Why is "unmapped", "read only", "wraps", "peer gone".
	Why string
}

func (e *DMAError) Error() string {
	op := "read"
	if e.Access&Write != 0 {
		op = "write"
	}
	return fmt.Sprintf("dma %s of %d bytes at %#x: %s", op, e.Len, e.Addr, e.Why)
}
