package trace

import (
	"encoding/binary"
	"slices"
	"time"

	"cxkit/prm"
)

// Normalise returns a copy of records in which what differs from run to run, from driver to driver and
// from card to card is replaced: times by their order in microseconds, page addresses and numbers of
// objects by the order in which they first appear, from 1. 0 stays 0, as do the places inside a page.
// Two runs of the same bring-up then give the same text. Fields are known by prm's tables: numbers inside
// structures that the tables don't describe stay.
func Normalise(records []Record) []Record {
	n := normaliser{}
	out := slices.Clone(records)
	for i := range out {
		rec := &out[i]
		rec.Seq, rec.Time = uint64(i), time.Duration(i+1)*time.Microsecond
		rec.Data = slices.Clone(rec.Data)
		switch rec.Kind {
		case CommandIn, CommandOut:
			if c := prm.CommandByOpcode(prm.Opcode(rec.Opcode)); c != nil && rec.Kind == CommandIn {
				n.layout(c.In, rec.Data, 0)
			} else if c != nil {
				n.layout(c.Out, rec.Data, 0)
			}
		case Event:
			rec.Number = uint32(n.symbol("EQ", uint64(rec.Number)))
			n.completion(rec.Data)
		case Doorbell:
			if kind := bellKind(rec.Bell); kind != "" {
				rec.Number = uint32(n.symbol(kind, uint64(rec.Number)))
			}
		}
	}
	return out
}

// normaliser maps values of a kind of number to the order of their first appearance.
type normaliser map[string]map[uint64]uint64

func (n normaliser) symbol(kind string, v uint64) uint64 {
	if v == 0 {
		return 0
	}
	seen := n[kind]
	if seen == nil {
		seen = map[uint64]uint64{}
		n[kind] = seen
	}
	s, ok := seen[v]
	if !ok {
		s = uint64(len(seen)) + 1
		seen[v] = s
	}
	return s
}

// pageBits is the size of a firmware page.
const pageBits = 12

// address keeps the place in a page and replaces the page.
func (n normaliser) address(v uint64) uint64 {
	const inside = 1<<pageBits - 1
	return n.symbol("page", v>>pageBits)<<pageBits | v&inside
}

// maxNesting ends a walk through tables that hold one another; the real ones are three deep.
const maxNesting = 8

// layout replaces what it knows in one structure at the start of b. What b is too short for is not there.
func (n normaliser) layout(l *prm.Layout, b []byte, depth int) {
	if l == nil || depth == maxNesting {
		return
	}
	for i := range l.Fields {
		f := &l.Fields[i]
		if f.Kind == prm.KindStruct {
			inner := prm.LayoutByName(f.Layout)
			for k := range f.Count {
				if at := f.Off + k*inner.Size; at < len(b) {
					n.layout(inner, b[at:], depth+1)
				}
			}
		} else if f.Kind == prm.KindBits {
			n.field(f, b)
		}
	}
	if t := l.Tail; t != nil && l.Size < len(b) {
		n.tail(t, b[l.Size:], depth)
	}
}

// tail replaces the elements of a structure's list.
func (n normaliser) tail(t *prm.Tail, b []byte, depth int) {
	if inner := prm.LayoutByName(t.Layout); t.Layout != "" && inner != nil {
		for ; len(b) >= inner.Size && inner.Size > 0; b = b[inner.Size:] {
			n.layout(inner, b, depth+1)
		}
		return
	}
	switch {
	case t.Name == "PAS" && t.Size == 8:
		for ; len(b) >= 8; b = b[8:] {
			binary.BigEndian.PutUint64(b, n.address(binary.BigEndian.Uint64(b)))
		}
	case t.Name == "RQNums" && t.Size == 4:
		for ; len(b) >= 4; b = b[4:] {
			binary.BigEndian.PutUint32(b, uint32(n.symbol("RQ", uint64(binary.BigEndian.Uint32(b)))))
		}
	}
}

// field replaces one number or address in place.
func (n normaliser) field(f *prm.Field, b []byte) {
	isAddress := f.Name == "DBRAddr" || f.Name == "StartAddr"
	kind := numberKind(f.Name)
	if !isAddress && kind == "" {
		return
	}
	size := 4
	if f.Hi > 31 {
		size = 8
	}
	if f.Off+size > len(b) {
		return
	}
	word := uint64(binary.BigEndian.Uint32(b[f.Off:]))
	if size == 8 {
		word = binary.BigEndian.Uint64(b[f.Off:])
	}
	mask := uint64(1)<<(f.Hi-f.Lo+1) - 1 // all ones for 64 bits: the shift gives 0
	v := word >> f.Lo & mask
	if isAddress {
		v = n.address(v)
	} else {
		v = n.symbol(kind, v)
	}
	word = word&^(mask<<f.Lo) | v&mask<<f.Lo
	if size == 8 {
		binary.BigEndian.PutUint64(b[f.Off:], word)
	} else {
		binary.BigEndian.PutUint32(b[f.Off:], uint32(word))
	}
}

// numberKind tells which objects a field's numbers count, or "".
func numberKind(field string) string {
	switch field {
	case "CQN", "CQNRcv", "CQNSnd":
		return "CQ"
	case "EQN":
		return "EQ"
	case "RQN", "InlineRQN":
		return "RQ"
	case "SQN":
		return "SQ"
	case "QPN":
		return "QP"
	case "TIRN":
		return "TIR"
	case "TISN", "TISNum0":
		return "TIS"
	case "RQTN", "IndirectTable":
		return "RQT"
	case "RMPN":
		return "RMP"
	case "PD":
		return "PD"
	case "UAR", "UARPage":
		return "UAR"
	case "TransportDomain":
		return "transport domain"
	case "CounterSetID":
		return "q counter"
	case "TableID", "TableMissID":
		return "flow table"
	case "GroupID":
		return "flow group"
	case "FlowCounterID":
		return "flow counter"
	case "MKeyIndex":
		return "mkey"
	case "PacketReformatID":
		return "packet reformat"
	case "ModifyHeaderID":
		return "modify header"
	}
	return ""
}

// completion replaces the CQ number of a completion event. PRM, EQE: event data from 0x20, cqn at 0x18
// of them.
func (n normaliser) completion(eqe []byte) {
	const cqn = 0x38
	if len(eqe) < cqn+4 || prm.EventType(eqe[1]) != prm.EventCompletion {
		return
	}
	v := binary.BigEndian.Uint32(eqe[cqn:])
	binary.BigEndian.PutUint32(eqe[cqn:], v&^0xffffff|uint32(n.symbol("CQ", uint64(v&0xffffff))))
}

// bellKind tells what a doorbell's number counts.
func bellKind(b Bell) string {
	switch b {
	case BellSQ:
		return "SQ"
	case BellRQ:
		return "RQ"
	case BellCQ, BellCQArm:
		return "CQ"
	case BellEQ, BellEQArm:
		return "EQ"
	}
	return ""
}
