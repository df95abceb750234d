package driver

import (
	"fmt"
	"log/slog"
	"math/bits"
	"sync"
	"time"

	"cxkit/dma"
	"cxkit/driver/internal/fwpages"
	qstats "cxkit/driver/internal/stats"
	"cxkit/trace"
)

// DefaultReclaimLimit is Config.ReclaimLimit if that is nil: what firmware gives back at most with one
// command, in 782 mailboxes (Linux 501c3005f031).
const DefaultReclaimLimit = fwpages.DefaultReclaimLimit

// Limits of Config. What a card offers may be less; Open says so.
const (
	// MaxQueues is the largest number of queue pairs.
	MaxQueues = 256
	// MinRing and MaxRing bound ring sizes, in entries. A WQE counter has 16 bits, of which a ring may
	// use at most 15 for its size.
	MinRing, MaxRing = 8, 1 << 15
	// MinMTU and MaxMTU bound the MTU in bytes without Ethernet header (mlx5e: ETH_MIN_MTU, 9978).
	MinMTU, MaxMTU = 68, 9978
	// MaxBufferSize bounds a buffer, in bytes.
	MaxBufferSize = 1 << 16
)

// frameOverhead is what a frame may hold beside the MTU: Ethernet header, two VLAN tags. mlx5e counts
// the FCS in too and asks firmware for mtu+22 (en.h, MLX5E_ETH_HARD_MTU).
const (
	ethernetHeader = 14
	vlanTag        = 4
	frameOverhead  = ethernetHeader + 2*vlanTag
)

// Config chooses how Open sets a NIC up. The zero value works: one queue pair, MTU 1500, RSS over
// addresses and ports, no offload that changes a frame. It is not changed after Open; what can change
// while the NIC runs has methods on NIC.
type Config struct {
	// Queues is the number of receive and of transmit queues, 1 to MaxQueues; 0 means 1.
	Queues int
	// MaxChannels is the most of them that SetChannels may be asked for, up to MaxQueues; 0 means Queues. Memory
	// for packets is made for so many.
	MaxChannels int
	// RxRing and TxRing are the entries of each queue's ring, powers of two from MinRing to MaxRing;
	// 0 means 1024.
	RxRing, TxRing int

	// MTU in bytes, without Ethernet header; 0 means 1500. Frames of MTU+14 bytes and 4 for each of up
	// to two VLAN tags are received.
	MTU int
	// Promiscuous receives all frames from the start; AllMulticast all multicast frames.
	Promiscuous  bool
	AllMulticast bool
	// VLANFilter receives tagged frames of the VLANs added with AddVLAN only. Without it tags do not
	// matter. Promiscuous mode ignores it.
	VLANFilter bool
	// MAC replaces the card's permanent address as the NIC's first address; zero keeps it.
	MAC MAC

	// RSS chooses how frames spread over receive queues.
	RSS RSS

	// VLANStrip takes the outer VLAN tag out of received frames and reports it in Packet.VLAN. Off by
	// default: frames arrive as they were on the wire.
	VLANStrip bool

	// Offloads are what the card does beside checksums and tags, all off by default. Open fails with an
	// *UnsupportedError where the card lacks one.
	Offloads

	// BufferSize is the bytes of a buffer; 0 means what the largest frame of the MTU needs, rounded up
	// to a multiple of 256 and at least 2048. SetMTU cannot go beyond it.
	BufferSize int
	// Buffers is how many buffers the NIC owns; 0 means enough for all rings to be full and as many
	// again for the application. But with RxStack a quarter of them is for TxQueue.Get, and the rest are
	// the frames that pages for receiving hold, of which each queue may have its share.
	Buffers int

	// RxPages is how received frames lie on pages.
	RxPages
	// Receiving is what becomes of received frames before the application sees them.
	Receiving

	// ReclaimLimit is the most firmware pages taken back with one command, whatever firmware offers; nil
	// means DefaultReclaimLimit, and 0, as in new(0), no limit, as in Linux before 501c3005f031.
	ReclaimLimit *int
	// HostPage is the size in bytes of the host pages that firmware's pages of 4096 bytes are parts of:
	// 4096 or 65,536; 0 means 4096.
	HostPage int
	// PageCPU, if not nil, is a processor: whoever gives pages to firmware or takes them back holds it,
	// but for the time that firmware has the command. Experiments on what else wants the processor lock it.
	PageCPU sync.Locker
	// CommandTimeout bounds each firmware command; 0 means what the card says, else 60 s (Linux
	// lib/tout.c).
	CommandTimeout time.Duration
	// BootTimeout bounds firmware's start after a reset; 0 means 120 s (Linux lib/tout.c).
	BootTimeout time.Duration
	// Submit is who hands a blocking firmware command to the card: its caller (default), or the NIC's
	// ordered queue of commands. WorkPool is the lock of that queue, which the NICs of a host may share as
	// Linux's share a pool of workers; nil means one of its own.
	Submit   Submit
	WorkPool *WorkPool
	// MailboxPool is how command mailboxes are found: in constant time (default), or by linear search as
	// in Linux before v6.4. MeasureMailboxes measures the time to free each.
	MailboxPool      MailboxPool
	MeasureMailboxes bool
	// CommandSignatures adds signatures to commands and checks those of the answers, if the card has
	// capability cmdif_checksum.
	CommandSignatures bool
	// HealthInterval is the time between two looks at the card's health registers; 0 means what the card
	// says, else 2 s.
	HealthInterval time.Duration

	// StatsInterval is the least time between two refreshes of counters that quick readings (QuickStats)
	// ask for; nil means 200 ms. 0 has each reading ask, as Linux did before "Cut workqueue traffic of
	// firmware commands and stats"; only one waits at a time.
	StatsInterval *time.Duration

	// Arena is what rings and buffers are made of; dma.Auto lets the transport choose.
	Arena dma.Kind
	// CheckBuffers fills free buffers with a pattern, checks that it is still there when they are used
	// again, and panics on a buffer released or sent twice. For tests: it touches every byte.
	CheckBuffers bool

	// Logger gets what mlx5_core would print; nil discards it.
	Logger *slog.Logger
	// Trace records commands, events and doorbells; nil records nothing.
	Trace *trace.Recorder
}

// complete checks the configuration and fills in what was left zero.
func (c Config) complete() (Config, error) {
	c.Queues = orDefault(c.Queues, 1)
	c.MaxChannels = orDefault(c.MaxChannels, c.Queues)
	c.RxRing = orDefault(c.RxRing, 1024)
	c.TxRing = orDefault(c.TxRing, 1024)
	c.MTU = orDefault(c.MTU, 1500)
	switch {
	case c.Queues < 1 || c.Queues > MaxQueues:
		return c, fmt.Errorf("config: %d queues: want 1 to %d", c.Queues, MaxQueues)
	case c.MaxChannels < c.Queues || c.MaxChannels > MaxQueues:
		return c, fmt.Errorf("config: at most %d channels: want %d, the number of queues, to %d", c.MaxChannels, c.Queues, MaxQueues)
	case badRing(c.RxRing):
		return c, fmt.Errorf("config: receive ring of %d entries: want a power of two from %d to %d", c.RxRing, MinRing, MaxRing)
	case badRing(c.TxRing):
		return c, fmt.Errorf("config: transmit ring of %d entries: want a power of two from %d to %d", c.TxRing, MinRing, MaxRing)
	case c.MTU < MinMTU || c.MTU > MaxMTU:
		return c, fmt.Errorf("config: MTU %d: want %d to %d", c.MTU, MinMTU, MaxMTU)
	case c.MAC.multicast():
		return c, fmt.Errorf("config: MAC %v is a multicast address", c.MAC)
	}
	if err := c.Offloads.check(); err != nil {
		return c, fmt.Errorf("config: %w", err)
	}
	if err := c.RSS.check(); err != nil {
		return c, fmt.Errorf("config: %w", err)
	}

	if err := c.checkFCS(); err != nil {
		return c, fmt.Errorf("config: %w", err)
	}
	needed := c.MTU + c.overhead()
	c.BufferSize = orDefault(c.BufferSize, max(2048, (needed+255)&^255))
	if c.BufferSize < needed || c.BufferSize > MaxBufferSize {
		return c, fmt.Errorf("config: buffers of %d bytes: MTU %d needs %d to %d", c.BufferSize, c.MTU, needed, MaxBufferSize)
	}
	if err := c.checkLarge(); err != nil {
		return c, fmt.Errorf("config: %w", err)
	}
	least, large := c.MaxChannels*c.RxRing, c.leastForLarge()
	c.Buffers = orDefault(c.Buffers, max(2*c.MaxChannels*(c.RxRing+c.TxRing), large))
	switch {
	case c.Buffers < least || c.Buffers > 1<<24:
		return c, fmt.Errorf("config: %d buffers: the receive rings alone hold %d, and 2^24 is the most", c.Buffers, least)
	case c.Buffers < large:
		return c, fmt.Errorf("config: %d buffers: a large receive on each queue takes %d", c.Buffers, large)
	}

	if err := c.completePages(); err != nil {
		return c, err
	}

	if c.RSS.Key == ([40]byte{}) {
		c.RSS.Key = DefaultRSSKey()
	}
	if c.ReclaimLimit == nil {
		c.ReclaimLimit = new(DefaultReclaimLimit)
	}
	c.ReclaimLimit = new(*c.ReclaimLimit) // the caller may change theirs
	if c.StatsInterval == nil {
		c.StatsInterval = new(qstats.DefaultInterval)
	}
	if *c.ReclaimLimit < 0 {
		return c, fmt.Errorf("config: reclaim limit %d: want 0, for none, or more", *c.ReclaimLimit)
	}
	switch {
	case c.CommandTimeout < 0 || c.BootTimeout < 0:
		return c, fmt.Errorf("config: command timeout %v, boot timeout %v", c.CommandTimeout, c.BootTimeout)
	case *c.StatsInterval < 0:
		return c, fmt.Errorf("config: statistics interval %v", *c.StatsInterval)
	case c.HealthInterval < 0:
		return c, fmt.Errorf("config: health interval %v", c.HealthInterval)
	case c.Submit > SubmitQueue:
		return c, fmt.Errorf("config: submit mode %d", c.Submit)
	case c.MailboxPool > MailboxPoolLinear:
		return c, fmt.Errorf("config: mailbox pool %d", c.MailboxPool)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

func orDefault[T int | time.Duration](v, def T) T {
	if v == 0 {
		return def
	}
	return v
}

func badRing(n int) bool { return n < MinRing || n > MaxRing || bits.OnesCount(uint(n)) != 1 }
