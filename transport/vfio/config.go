//go:build linux

package vfio

import (
	"log/slog"
	"time"

	"cxkit/dma"
)

// Config chooses how a function is opened. The zero value works for a card behind an IOMMU.
type Config struct {
	// NoIOMMU drives a card that no IOMMU keeps from the machine's memory: a mistake of driver or card can
	// overwrite anything. It needs root, and a kernel that allows it.
	NoIOMMU bool
	// Interface is the kernel's interface: Auto takes iommufd if the card has a device file of its own.
	Interface Interface
	// Vectors limits how many MSI-X vectors are enabled; 0 means 64. Each takes an interrupt of the machine.
	Vectors int
	// Kind is what dma.Auto stands for: dma.Private if zero.
	Kind dma.Kind
	// Probe, if its Size is not 0, is a register that never reads as ones while the card works. It is read
	// a few times a second.
	Probe Probe
	// Recalled, if it is not nil, is called once when the kernel wants the card back (it was unbound, removed or
	// unplugged), in a goroutine of the function's. The card goes on working for RecallTime: who has it stops it
	// and closes the function. The kernel can't reset a card that it is about to remove, so that one which was not
	// stopped goes on when its next driver lets it. After RecallTime, and at once without Recalled, the card is
	// gone for its driver.
	Recalled func()
	// Root is where /dev, /proc and /sys start: "" is "/".
	Root string
	// Log gets warnings; nil discards them.
	Log *slog.Logger

	kernel     kernel        // tests play it
	recallTime time.Duration // RecallTime, but for tests
}

// Probe is a 4-byte register.
type Probe struct {
	BAR  int
	Off  uint64
	Size int // 4, or 0 for none
}

// Interface is one of the kernel's two ways to a card.
type Interface uint8

const (
	Auto    Interface = iota
	Group             // container and group: every kernel
	IOMMUFD           // /dev/iommu and a device file
)

const defaultVectors = 64

// RecallTime is how long a card that the kernel wants back works on, if somebody is told.
const RecallTime = 5 * time.Second

func (c Config) withDefaults() Config {
	if c.Vectors <= 0 {
		c.Vectors = defaultVectors
	}
	if c.Kind == dma.Auto {
		c.Kind = dma.Private
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.recallTime == 0 {
		c.recallTime = RecallTime
	}
	if c.kernel == nil {
		c.kernel = system{}
	}
	return c
}

// path is where a file of the system is.
func (c Config) path(p string) string { return c.Root + p }
