//go:build linux

package client

import "time"

// Config is what can be chosen about a client. The zero value works.
type Config struct {
	// Timeout is how long the server may take to answer a request: 5 seconds if zero, as QEMU has it. A
	// server that takes longer is gone.
	Timeout time.Duration
}

func (c Config) withDefaults() Config {
	if c.Timeout <= 0 {
		c.Timeout = 5 * time.Second
	}
	return c
}
