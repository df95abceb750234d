//go:build linux

package server

import (
	"log/slog"
	"time"

	"cxkit/transport/vfiouser"
)

// Config is what can be chosen about a server. The zero value works.
type Config struct {
	// MaxMaps is how many DMA mappings a client may have: 65,535 if zero, which is also the most that QEMU
	// accepts.
	MaxMaps int
	// DMATimeout is how long a client may take to answer a DMA message: 3 seconds if zero. The card stands
	// still meanwhile; a client that takes longer is dropped.
	DMATimeout time.Duration
	// HandshakeTimeout is how long a client may take to say its version: 10 seconds if zero. Nobody else
	// is served at its socket meanwhile.
	HandshakeTimeout time.Duration
	// WriteMulti offers REGION_WRITE_MULTI. QEMU then sends everything through its I/O thread, which makes
	// single accesses slower; it is understood whether offered or not.
	WriteMulti bool
	// Logger is told about clients that come and go and why; nil for silence.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.MaxMaps <= 0 || c.MaxMaps > 65535 {
		c.MaxMaps = 65535
	}
	if c.DMATimeout <= 0 {
		c.DMATimeout = 3 * time.Second
	}
	if c.HandshakeTimeout <= 0 {
		c.HandshakeTimeout = 10 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) capabilities() vfiouser.Capabilities {
	return vfiouser.Capabilities{
		MaxMsgFDs:       vfiouser.MaxFDs,
		MaxDataXferSize: vfiouser.MaxData,
		PageSizes:       pageSize,
		MaxDMAMaps:      c.MaxMaps,
		WriteMultiple:   c.WriteMulti,
	}
}
