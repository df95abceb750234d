package object

import (
	"fmt"

	"cxkit/driver/internal/cmdif"
	"cxkit/prm"
)

// Kind is a kind of firmware object.
type Kind uint8

const (
	UAR Kind = iota + 1
	PD
	TransportDomain
	MKey
	EQ
	CQ
	RQ
	SQ
	TIS
	TIR
	RQT
	QCounter
	FlowTable
	FlowGroup
	FlowEntry
	FlowCounter
)

var kindNames = [...]string{
	UAR: "UAR", PD: "PD", TransportDomain: "transport domain", MKey: "mkey", EQ: "EQ", CQ: "CQ", RQ: "RQ", SQ: "SQ",
	TIS: "TIS", TIR: "TIR", RQT: "RQT", QCounter: "q counter", FlowTable: "flow table", FlowGroup: "flow group",
	FlowEntry: "flow entry", FlowCounter: "flow counter",
}

func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Object is one firmware object: a value that can be compared and copied.
type Object struct {
	Kind   Kind
	Number uint32 // as firmware gave it; the index of a flow entry

	// Flow groups and entries live in Table of TableType; tables have a type only.
	TableType prm.FlowTableType
	Table     uint32
	// Vport is the vport that an ACL table of the e-switch belongs to, plus 1: 0 for other tables.
	Vport uint32
}

// of is the vport of a table that other_vport and vport_number name.
func of(other bool, vport uint16) uint32 {
	if !other {
		return 0
	}
	return uint32(vport) + 1
}

// vport is what commands on the table say of its vport.
func (o Object) vport() (other bool, number uint16) {
	if o.Vport == 0 {
		return false, 0
	}
	return true, uint16(o.Vport - 1)
}

func (o Object) String() string {
	switch o.Kind {
	case FlowTable:
		return fmt.Sprintf("flow table %#x of type %v", o.Number, o.TableType)
	case FlowGroup, FlowEntry:
		return fmt.Sprintf("%v %#x of table %#x", o.Kind, o.Number, o.Table)
	}
	return fmt.Sprintf("%v %#x", o.Kind, o.Number)
}

// destroy is the command that ends the object.
func (o Object) destroy() (cmdif.In, cmdif.Out) {
	n := o.Number
	other, vport := o.vport()
	switch o.Kind {
	case UAR:
		return &prm.DeallocUARIn{UAR: n}, &prm.DeallocUAROut{}
	case PD:
		return &prm.DeallocPDIn{PD: n}, &prm.DeallocPDOut{}
	case TransportDomain:
		return &prm.DeallocTransportDomainIn{TransportDomain: n}, &prm.DeallocTransportDomainOut{}
	case MKey:
		return &prm.DestroyMKeyIn{MKeyIndex: n}, &prm.DestroyMKeyOut{}
	case EQ:
		return &prm.DestroyEQIn{EQN: uint8(n)}, &prm.DestroyEQOut{}
	case CQ:
		return &prm.DestroyCQIn{CQN: n}, &prm.DestroyCQOut{}
	case RQ:
		return &prm.DestroyRQIn{RQN: n}, &prm.DestroyRQOut{}
	case SQ:
		return &prm.DestroySQIn{SQN: n}, &prm.DestroySQOut{}
	case TIS:
		return &prm.DestroyTISIn{TISN: n}, &prm.DestroyTISOut{}
	case TIR:
		return &prm.DestroyTIRIn{TIRN: n}, &prm.DestroyTIROut{}
	case RQT:
		return &prm.DestroyRQTIn{RQTN: n}, &prm.DestroyRQTOut{}
	case QCounter:
		return &prm.DeallocQCounterIn{CounterSetID: uint8(n)}, &prm.DeallocQCounterOut{}
	case FlowTable:
		return &prm.DestroyFlowTableIn{OtherVport: other, VportNumber: vport, TableType: o.TableType, TableID: n}, &prm.DestroyFlowTableOut{}
	case FlowGroup:
		return &prm.DestroyFlowGroupIn{OtherVport: other, VportNumber: vport, TableType: o.TableType, TableID: o.Table, GroupID: n}, &prm.DestroyFlowGroupOut{}
	case FlowEntry:
		return &prm.DeleteFlowTableEntryIn{OtherVport: other, VportNumber: vport, TableType: o.TableType, TableID: o.Table, FlowIndex: n}, &prm.DeleteFlowTableEntryOut{}
	case FlowCounter:
		return &prm.DeallocFlowCounterIn{FlowCounterID: n}, &prm.DeallocFlowCounterOut{}
	}
	panic("object: destroy of " + o.Kind.String())
}
