package device

import "time"

// Counters belong to the engine: the data path adds, commands read. Octets of a port include the FCS,
// which frames in the model don't carry: 4 bytes each.

// traffic counts frames and their bytes without FCS.
type traffic struct{ packets, octets uint64 }

func (t *traffic) add(bytes int) {
	t.packets++
	t.octets += uint64(bytes)
}

// castCounters are traffic by kind of destination address.
type castCounters struct{ unicast, multicast, broadcast traffic }

// of chooses the counter for a destination address, which has at least 6 bytes.
func (c *castCounters) of(dst []byte) *traffic {
	switch {
	case dst[0]&1 == 0:
		return &c.unicast
	case dst[0]&dst[1]&dst[2]&dst[3]&dst[4]&dst[5] == 0xff:
		return &c.broadcast
	}
	return &c.multicast
}

// vportCounters are what QUERY_VPORT_COUNTER and QUERY_VNIC_ENV report of a function.
type vportCounters struct {
	rx, tx          castCounters
	rxErrors        traffic
	txErrors        traffic
	loopback        traffic
	steeringDiscard uint64 // no rule took the frame
	rxDiscardDown   uint64
	txDiscardDown   uint64
	errorQueues     uint32 // queues that went to the error state
	wqeTooSmall     uint32 // frames longer than the receive WQE
	cqOverrun       uint32
	invalidCommands uint32
	quotaExceeded   uint32
}

// qCounter is a q-counter set: 32-bit counters that wrap.
type qCounter struct {
	outOfBuffer uint32
	cqOverflow  uint32
}

// sizeClasses are the upper ends of the RFC 2819 size classes, FCS included.
var sizeClasses = [...]int{64, 127, 255, 511, 1023, 1518, 2047, 4095, 8191, 10239}

// direction counts the frames of one direction of a port.
type direction struct {
	frames, octets       uint64 // octets with FCS
	multicast, broadcast uint64
	prioFrames           [8]uint64
	prioOctets           [8]uint64
	prioDiscards         [8]uint64
	prioPause            [8]uint64 // pause frames; those for the whole port are the first priority's
	discards             uint64    // good frames dropped: receive for lack of port buffer, send with the link down
	errors               uint64    // send: frames too long
}

// portCounters are what PPCNT reports of a port.
type portCounters struct {
	rx, tx         direction
	sizes          [len(sizeClasses)]uint64 // received frames by size
	undersize      uint64                   // received frames below 64 bytes with FCS, as the wire delivered them
	oversize       uint64                   // received frames above the port's MTU
	outOfRange     uint64                   // length/type between 1501 and 1535
	inRangeLength  uint64                   // 802.3 length longer than the frame
	overflow       uint64                   // received frames that PCIe could not take
	macControlRx   uint64
	pauseRx        uint64
	unsupportedRx  uint64
	line           lineErrors
	blocks         codeBlocks
	pauseTx        uint64
	stopped        [8]time.Duration // for which the peer was asked to send nothing of a priority
	obeyed         [8]time.Duration // for which the peer asked for that
	transitions    [8]uint64        // ends of such times
	linkDownEvents uint32
}

// received counts a good frame from the wire. bytes is its length without FCS, dst its destination,
// priority its PCP (0 without a VLAN tag).
func (p *portCounters) received(frame []byte, priority int) {
	size := len(frame) + 4
	p.rx.count(frame, priority)
	for i := range sizeClasses { // by index: the array is not copied
		if size <= sizeClasses[i] {
			p.sizes[i]++
			break
		}
	}
}

// count adds a frame, which has at least 14 bytes.
func (d *direction) count(frame []byte, priority int) {
	size := uint64(len(frame) + 4)
	d.frames++
	d.octets += size
	d.prioFrames[priority&7]++
	d.prioOctets[priority&7] += size
	if frame[0]&1 != 0 {
		if frame[0]&frame[1]&frame[2]&frame[3]&frame[4]&frame[5] == 0xff {
			d.broadcast++
		} else {
			d.multicast++
		}
	}
}
