package driver

import (
	"fmt"
	"time"

	"cxkit/prm"
)

// Offloads choose what the card does to frames and completions.
type Offloads struct {
	// LargeSend lets Send take frames with Packet.Segment, which the card cuts (LSO). Buffers hold what
	// Config.BufferSize says; TxMore puts several together, up to 256 KiB of payload on most cards.
	LargeSend bool
	// MultiPacket puts frames that Send gets together into common WQEs (enhanced multi-packet WQE): less
	// to write and to read for a small frame.
	MultiPacket bool
	// Tunnels looks into VXLAN, GRE and IP tunnels: received frames are hashed and judged by what is
	// inside (Packet.Tunnel), and Send takes TxInnerL3Checksum and TxInnerL4Checksum.
	Tunnels bool
	// RealTime makes the card give Packet.Timestamp as time (Packet.RealTime), not ticks.
	RealTime bool

	// Striding receives into work queue entries for many frames each: small frames need less memory and
	// fewer entries, and Poll copies each into a buffer of its own.
	Striding bool
	// LinkedReceive makes receive queues linked lists of WQEs, striding or not, as Linux's striding ones are:
	// completions name the WQE, in whichever order, and one that is done is linked to the end of the list. It holds
	// one entry less and takes longer for a frame than an ordinary queue, whose WQEs are used in turn; it is for
	// cards that have no others, and to see what Linux sees.
	LinkedReceive bool
	// LargeReceive has the card merge TCP segments of a connection that come in a train (LRO): Poll gives them out
	// as one packet with the headers of the whole, in as many buffers as it takes (Packet.Fragments, Segments). It
	// needs Striding, and goes with neither Tunnels nor Config.Program. What else there is to do for each frame
	// is done once for all of them then; Config.GRO, which merges what the card has not, goes with it.
	LargeReceive bool
	// LargeReceiveMax bounds the IP payload of a large receive, in bytes: a multiple of 256 up to 65,280; 0 means
	// 65,280.
	LargeReceiveMax int
	// LargeReceiveTimeout is how long the card may hold segments for others, rounded up to one of the periods that
	// it has (Limits.LargeReceiveTimeouts); 0 means 32 µs.
	LargeReceiveTimeout time.Duration
	// ReceiveFCS leaves the frame check sequence at the end of received frames: the last four bytes of Packet.Data,
	// little-endian, which the card has checked. Checksum covers and counters count them; who sends the packet on
	// cuts them off. It goes with neither LargeReceive, Config.GRO nor Config.Program.
	ReceiveFCS bool
	// CompressCompletions lets the card write bursts of completions of one kind in eight bytes each. Frames
	// of such a burst have no Checksum, and the first one's time stamp.
	CompressCompletions bool

	// RxModeration and TxModeration hold completion events back.
	RxModeration, TxModeration Moderation
}

// Moderation holds completion events back until Frames completions are there or Period has passed since the
// latest event. Without a Period nothing is held back, whatever Frames is: nothing would bound the wait.
type Moderation struct {
	// Frames is a number of completions, 0 to 65,535; 0: no bound.
	Frames int
	// Period is 0 to 4,095 µs, whole microseconds.
	Period time.Duration
}

const maxModerationPeriod = 4095 * time.Microsecond

func (m Moderation) check() error {
	switch {
	case m.Frames < 0 || m.Frames > 0xffff:
		return fmt.Errorf("moderation by %d completions: want 0 to 65535", m.Frames)
	case m.Period < 0 || m.Period > maxModerationPeriod || m.Period%time.Microsecond != 0:
		return fmt.Errorf("moderation by %v: want whole microseconds up to %v", m.Period, maxModerationPeriod)
	}
	return nil
}

// fields are the moderation in a CQ context.
func (m Moderation) fields() (period, count uint16) {
	return uint16(m.Period / time.Microsecond), uint16(m.Frames)
}

func (o *Offloads) check() error {
	for _, m := range []Moderation{o.RxModeration, o.TxModeration} {
		if err := m.check(); err != nil {
			return err
		}
	}
	return nil
}

// UnsupportedError: the card lacks what a configuration, a rule or a group asks for.
type UnsupportedError struct {
	What string // in words: "large sends"
	Card string // "ConnectX-4 Lx with firmware 14.32.1010"
}

func (e *UnsupportedError) Error() string { return fmt.Sprintf("%s has no %s", e.Card, e.What) }

// unsupported makes an error of something that the card lacks.
func (n *NIC) unsupported(what string) error {
	return &UnsupportedError{What: what, Card: fmt.Sprintf("%s with firmware %v", n.base.info.Model, n.base.info.Firmware)}
}

// Values of rq_ts_format and sq_ts_format in capabilities.
const (
	tsCapRealTime = 1
	tsCapBoth     = 2
)

// checkOffloads compares what is asked for with what the card has.
func (n *NIC) checkOffloads() error {
	o, g, e := &n.config.Offloads, &n.base.general, &n.base.eth
	realTime := func(format uint8) bool { return format == tsCapRealTime || format == tsCapBoth }
	for _, c := range []struct {
		asked, there bool
		what         string
	}{
		{o.LargeSend, e.MaxLSOCap != 0, "large sends"},
		{o.MultiPacket, e.EnhancedMultiPktSendWQE, "enhanced multi-packet WQEs"},
		{o.Tunnels, e.TunnelStatelessVXLAN && e.TunnelStatelessGRE, "offloads for tunnels"},
		{o.RealTime, realTime(g.RQTSFormat) && realTime(g.SQTSFormat), "real-time timestamps"},
		{o.Striding, g.StridingRQ, "striding receive queues"},
		{o.LargeReceive, n.canLarge(), "large receives"},
		{o.ReceiveFCS, e.ScatterFCS, "check sequences of received frames"},
		{o.CompressCompletions, g.CQECompression, "compression of completions"},
		{o.RxModeration != (Moderation{}) || o.TxModeration != (Moderation{}), g.CQModeration, "moderation of completion events"},
	} {
		if c.asked && !c.there {
			return n.unsupported(c.what)
		}
	}
	return n.mergeIn(&prm.TIRContext{})
}

// timestamps is the format of time stamps in completions.
func (o *Offloads) timestamps() prm.TSFormat {
	if o.RealTime {
		return prm.TSFormatRealTime
	}
	return prm.TSFormatFreeRunning
}
