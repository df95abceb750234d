package pci

import (
	"context"
	"errors"

	"cxkit/dma"
	"cxkit/mmio"
)

// Function is a PCI function as its driver sees it. All methods may be called from any goroutine.
type Function interface {
	// Info describes the function; it does not change while the function is open.
	Info() Info
	// ReadConfig fills p from configuration space at off; WriteConfig writes p there. off+len(p) is at
	// most 4096. A device that is gone reads as ones.
	ReadConfig(off int, p []byte) error
	WriteConfig(off int, p []byte) error
	// Window gives access to a BAR, 0 to 5. The window is valid until Close.
	Window(bar int) (*mmio.Window, error)
	// NewArena makes size bytes of memory that the function can reach by DMA. dma.Auto chooses the best
	// kind this transport has; a kind it lacks is dma.ErrKind. The caller closes the arena.
	NewArena(size int, kind dma.Kind) (*dma.Arena, error)
	// Wait blocks until the function has raised MSI-X vector since the last Wait on it returned, or ctx
	// ends, or the function is closed (ErrClosed). Several raises may be reported as one. One goroutine
	// at a time waits on a vector.
	Wait(ctx context.Context, vector int) error
	// Reset performs a function level reset: DMA has stopped when it returns.
	Reset(ctx context.Context) error
	// Close stops DMA and interrupts and frees what the transport holds. Arenas that are still open
	// are unmapped from the device and stay readable. Waits return ErrClosed.
	Close() error
}

var (
	// ErrClosed: the function was closed.
	ErrClosed = errors.New("pci function closed")
	// ErrGone: the device does not answer any more (surprise removal, peer died).
	ErrGone = errors.New("pci device gone")
)

// Info describes a function to its driver, and a card's function to a transport.
type Info struct {
	// Address names the function: "0000:08:00.0" for a PCI address with domain.
	Address string
	// Vendor and Device are the configuration space identifiers.
	Vendor, Device uint16
	// BARs are the sizes of the six BARs in bytes; 0 where there is none.
	BARs [6]uint64
	// Vectors is the number of MSI-X vectors.
	Vectors int
	// MSIXTable and MSIXPBA say where the capability puts the table and the pending bits.
	MSIXTable, MSIXPBA BARRange
	// Mapped is the part of a BAR that is memory; nil if there is none. Only a card's side has it.
	Mapped *Mapped
}

// Mapped is a part of a BAR that is memory: a transport may map it into the host, whose writes then reach no
// method of the endpoint. Writes that do come to the endpoint are as good.
type Mapped struct {
	BARRange // whole pages
	// Memory is as large as the BAR, with the part at its place. It is the card's.
	Memory *dma.Arena
}

// Holds reports whether the n bytes at off of a BAR are all in the part. A nil part holds none.
func (m *Mapped) Holds(bar int, off, n uint64) bool {
	return m != nil && bar == m.BAR && off >= m.Off && off-m.Off <= m.Len && n <= m.Len-(off-m.Off)
}

// BARRange is a part of a BAR.
type BARRange struct {
	BAR int
	Off uint64
	Len uint64
}
