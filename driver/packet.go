package driver

import "time"

// Packet is one frame in one of the NIC's buffers, and what the card said about it. It is a value: pass
// slices of packets, reuse them for the next Poll. What counts is the buffer behind it, which is always
// with exactly one of: the card, a queue of the NIC, or the application. The application has it from
// Poll or Get until Release or Send; after that it must not touch Data any more.
//
// RxQueue.Poll sets every field; it and TxQueue.Get clear TxFlags and Segment. TxQueue.Send reads Data,
// TxFlags, Segment and, with TxInsertVLAN, VLAN.
type Packet struct {
	// Data is the frame without FCS. It may be changed, shortened at either end and, up to its
	// capacity, lengthened. It must stay inside its buffer with its capacity untouched: full slice
	// expressions that cut the capacity make Send refuse the packet.
	Data []byte

	// Timestamp is the card's clock when the frame arrived, as the card gives it: ticks of the
	// free-running counter, whose rate NIC.Info has, or with Config.RealTime what RealTime reads.
	Timestamp uint64
	// RSSHash is the Toeplitz hash that chose the queue; HashType says what it covers.
	RSSHash uint32
	// FlowTag is the tag of the flow rule that delivered the frame; 0 on the plain path.
	FlowTag uint32
	// Rx is what the card found: checksum verdicts and the kinds of headers.
	Rx RxFlags
	// Checksum is the ones-complement sum, not inverted, of everything behind the Ethernet header, or
	// behind a tag that was stripped. ChecksumState says whether there is one.
	Checksum uint16
	// VLAN is the tag control information (priority, DEI, VLAN id): the stripped tag's if
	// Rx.VLANStripped, the one to insert with TxInsertVLAN.
	VLAN uint16

	HashType HashType
	TxFlags  TxFlags

	buffer uint32 // index in the NIC's pool, plus 1: a zero Packet has no buffer

	// Segment asks for a large send: the card cuts the payload behind the TCP or UDP header into pieces of
	// Segment bytes, gives each the headers with their lengths, identifications, sequence numbers, flags
	// and checksums, and sends them. 0 sends the frame as it is. It needs Config.LargeSend.
	Segment uint16
	// Tunnel is what the card found around the headers that Rx tells of.
	Tunnel Tunnel

	more *chain // the other segments of a merged packet; makes a cache line
}

// Checksum states.
const (
	// ChecksumNone: nothing is known; the software has to check.
	ChecksumNone ChecksumState = iota
	// ChecksumUnnecessary: the card has found the IPv4 header's and the transport's checksum right.
	ChecksumUnnecessary
	// ChecksumComplete: Packet.Checksum sums up the frame, which answers for protocols that the card does
	// not know.
	ChecksumComplete
)

// ChecksumState is what is known of a received frame's checksums, as Linux calls it.
type ChecksumState uint8

func (s ChecksumState) String() string { return name(checksumNames[:], int(s)) }

// ChecksumState tells what the card said of the frame's checksums. Frames of 64 bytes or less may be padded,
// and what pads is in the sum or not as the card likes: they have no complete sum (Linux en_rx.c,
// short_frame), nor have frames without IP and those of a compressed session.
func (p *Packet) ChecksumState() ChecksumState {
	switch {
	case p.Rx.ChecksumOK():
		return ChecksumUnnecessary
	case p.Rx.L3() != L3None && len(p.Data) > 64 && p.Checksum != 0:
		return ChecksumComplete
	}
	return ChecksumNone
}

// RealTime is the time of a Timestamp with Config.RealTime: seconds in its upper half, nanoseconds below.
func (p *Packet) RealTime() time.Time {
	return time.Unix(int64(p.Timestamp>>32), int64(p.Timestamp&0xffffffff))
}

// Tunnel is CQE pkt_info: with Config.Tunnels, Rx, the hash and the checksum verdicts of a frame in a tunnel
// are about what is inside.
type Tunnel uint8

// Tunnelled reports that the frame came through a tunnel that the card looks into.
func (t Tunnel) Tunnelled() bool { return t&1 != 0 }

// OuterIPv6 reports that the tunnel's own IP header is IPv6.
func (t Tunnel) OuterIPv6() bool { return t&2 != 0 }

// RxFlags are the card's verdicts, two bytes of the completion (CQE hds_ip_ext and l4_l3_hdr_type).
type RxFlags uint16

// L3OK reports a right IPv4 header checksum. For IPv6, which has none, the card says yes.
func (f RxFlags) L3OK() bool { return f&(1<<9) != 0 }

// L4OK reports a right TCP or UDP checksum.
func (f RxFlags) L4OK() bool { return f&(1<<10) != 0 }

// ChecksumOK reports that L3 and L4 are both right: what Linux calls CHECKSUM_UNNECESSARY.
func (f RxFlags) ChecksumOK() bool { return f&checksumsOK == checksumsOK }

// checksumsOK are the two verdicts on checksums.
const checksumsOK RxFlags = 3 << 9

// VLANStripped reports that a tag was taken out of the frame into Packet.VLAN.
func (f RxFlags) VLANStripped() bool { return f&1 != 0 }

// IPOptions reports IPv4 options or IPv6 extension headers.
func (f RxFlags) IPOptions() bool { return f&2 != 0 }

// Fragment reports an IP fragment.
func (f RxFlags) Fragment() bool { return f&(1<<7) != 0 }

// L3 is the network header found.
func (f RxFlags) L3() L3Type { return L3Type(f >> 2 & 3) }

// L4 is the transport header found.
func (f RxFlags) L4() L4Type { return L4Type(f >> 4 & 7) }

// L3Type is the kind of network header (CQE l3_hdr_type).
type L3Type uint8

const (
	L3None L3Type = iota
	L3IPv6
	L3IPv4
)

func (t L3Type) String() string { return name(l3Names[:], int(t)) }

// L4Type is the kind of transport header (CQE l4_hdr_type).
type L4Type uint8

const (
	L4None L4Type = iota
	L4TCP
	L4UDP
	L4TCPAck     // TCP with ACK and no data
	L4TCPAckData // TCP with ACK and data
)

func (t L4Type) String() string { return name(l4Names[:], int(t)) }

// HashType is what the RSS hash covers (CQE rss_hash_type).
type HashType uint8

// L3 is the IP version hashed over: L3None, L3IPv4 or L3IPv6.
func (t HashType) L3() L3Type {
	switch t >> 2 & 3 {
	case 1:
		return L3IPv4
	case 2:
		return L3IPv6
	}
	return L3None
}

// L4 is the transport protocol whose ports were hashed: L4None, L4TCP or L4UDP.
func (t HashType) L4() L4Type {
	switch t >> 6 & 3 {
	case 1:
		return L4TCP
	case 2:
		return L4UDP
	}
	return L4None
}

// TxFlags are what the card does to one frame on its way out.
type TxFlags uint8

const (
	// TxL3Checksum fills in the IPv4 header checksum; the field's content does not matter.
	TxL3Checksum TxFlags = 1 << iota
	// TxL4Checksum fills in the TCP or UDP checksum; the field's content does not matter.
	TxL4Checksum
	// TxInsertVLAN inserts an 802.1Q tag with Packet.VLAN.
	TxInsertVLAN
	// TxInnerL3Checksum and TxInnerL4Checksum fill in the checksums of what is in a VXLAN, GRE or IP
	// tunnel; TxL3Checksum is the outer header's then. With Segment they say that the inner TCP payload is
	// cut. They need Config.Tunnels.
	TxInnerL3Checksum
	TxInnerL4Checksum
	// TxMore says that the next packet's Data continues this frame. Flags, Segment and VLAN are the first
	// one's, whose Data holds the headers. All parts must be in one call of Send.
	TxMore

	// TxChecksum fills in all checksums.
	TxChecksum = TxL3Checksum | TxL4Checksum
	// TxInnerChecksum fills in all checksums inside a tunnel.
	TxInnerChecksum = TxInnerL3Checksum | TxInnerL4Checksum
)

// l3Names, l4Names and checksumNames are never assigned to.
var (
	l3Names = [...]string{L3None: "none", L3IPv6: "IPv6", L3IPv4: "IPv4"}
	l4Names = [...]string{L4None: "none", L4TCP: "TCP", L4UDP: "UDP", L4TCPAck: "TCP ACK", L4TCPAckData: "TCP ACK+data"}

	checksumNames = [...]string{ChecksumNone: "none", ChecksumUnnecessary: "unnecessary", ChecksumComplete: "complete"}
)

func name(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return "unknown"
}
