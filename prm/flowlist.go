package prm

import "encoding/binary"

// Destination is an entry of a flow's destination list. PacketReformatID is encoded only in extended lists.
type Destination struct {
	DestFormat
	PacketReformatID uint32
}

// DestinationList is what follows a flow context: destinations, then counters. An entry is 8 bytes, or 16 if the
// context's extended_destination is set. PRM: dest_format, extended_dest_format, flow_counter_list.
type DestinationList struct {
	Destinations []Destination
	Counters     []uint32
}

// FlowListEntrySize is the length of an entry of the list that follows c.
func FlowListEntrySize(c *FlowContext) int {
	if c.ExtendedDestination {
		return 16
	}
	return 8
}

func (l *DestinationList) listLen(c *FlowContext) int {
	return FlowListEntrySize(c) * (len(l.Destinations) + len(l.Counters))
}

func (l *DestinationList) putList(c *FlowContext, b []byte) {
	size := FlowListEntrySize(c)
	clear(b[:l.listLen(c)])
	for i := range l.Destinations {
		d := &l.Destinations[i]
		d.DestFormat.Put(b)
		if size == 16 {
			binary.BigEndian.PutUint32(b[8:], d.PacketReformatID)
		}
		b = b[size:]
	}
	for _, id := range l.Counters {
		binary.BigEndian.PutUint32(b, id)
		b = b[size:]
	}
}

// getList takes as many entries as c announces and b holds.
func (l *DestinationList) getList(c *FlowContext, b []byte) {
	size := FlowListEntrySize(c)
	n := min(len(b)/size, int(c.DestinationListSize))
	l.Destinations = resize(l.Destinations, n)
	for i := range l.Destinations {
		d := &l.Destinations[i]
		d.DestFormat.Get(b)
		d.PacketReformatID = 0
		if size == 16 {
			d.PacketReformatID = binary.BigEndian.Uint32(b[8:])
		}
		b = b[size:]
	}
	n = min(len(b)/size, int(c.FlowCounterListSize))
	l.Counters = resize(l.Counters, n)
	for i := range l.Counters {
		l.Counters[i] = binary.BigEndian.Uint32(b)
		b = b[size:]
	}
}
