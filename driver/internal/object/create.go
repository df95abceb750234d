package object

import (
	"context"

	"cxkit/driver/internal/cmdif"
	"cxkit/prm"
)

// created tells what a command that succeeded has made.
func created(in cmdif.In, out cmdif.Out) (o Object, ok bool) {
	switch out := out.(type) {
	case *prm.AllocUAROut:
		return Object{Kind: UAR, Number: out.UAR}, true
	case *prm.AllocPDOut:
		return Object{Kind: PD, Number: out.PD}, true
	case *prm.AllocTransportDomainOut:
		return Object{Kind: TransportDomain, Number: out.TransportDomain}, true
	case *prm.CreateMKeyOut:
		return Object{Kind: MKey, Number: out.MKeyIndex}, true
	case *prm.CreateEQOut:
		return Object{Kind: EQ, Number: uint32(out.EQN)}, true
	case *prm.CreateCQOut:
		return Object{Kind: CQ, Number: out.CQN}, true
	case *prm.CreateRQOut:
		return Object{Kind: RQ, Number: out.RQN}, true
	case *prm.CreateSQOut:
		return Object{Kind: SQ, Number: out.SQN}, true
	case *prm.CreateTISOut:
		return Object{Kind: TIS, Number: out.TISN}, true
	case *prm.CreateTIROut:
		return Object{Kind: TIR, Number: out.TIRN}, true
	case *prm.CreateRQTOut:
		return Object{Kind: RQT, Number: out.RQTN}, true
	case *prm.AllocQCounterOut:
		return Object{Kind: QCounter, Number: uint32(out.CounterSetID)}, true
	case *prm.AllocFlowCounterOut:
		return Object{Kind: FlowCounter, Number: out.FlowCounterID}, true
	}
	switch in := in.(type) {
	case *prm.CreateFlowTableIn:
		if out, isTable := out.(*prm.CreateFlowTableOut); isTable {
			return Object{Kind: FlowTable, Number: out.TableID, TableType: in.TableType, Vport: of(in.OtherVport, in.VportNumber)}, true
		}
	case *prm.CreateFlowGroupIn:
		if out, isGroup := out.(*prm.CreateFlowGroupOut); isGroup {
			return Object{Kind: FlowGroup, Number: out.GroupID, TableType: in.TableType, Table: in.TableID, Vport: of(in.OtherVport, in.VportNumber)}, true
		}
	case *prm.SetFlowTableEntryIn:
		if in.OpMod == 0 { // 1 changes an entry that exists
			return Object{Kind: FlowEntry, Number: in.FlowIndex, TableType: in.TableType, Table: in.TableID, Vport: of(in.OtherVport, in.VportNumber)}, true
		}
	}
	return o, false
}

// creates tells whether a command makes an object.
func creates(in cmdif.In) bool {
	switch in := in.(type) {
	case *prm.AllocUARIn, *prm.AllocPDIn, *prm.AllocTransportDomainIn, *prm.CreateMKeyIn, *prm.CreateEQIn,
		*prm.CreateCQIn, *prm.CreateRQIn, *prm.CreateSQIn, *prm.CreateTISIn, *prm.CreateTIRIn, *prm.CreateRQTIn,
		*prm.AllocQCounterIn, *prm.AllocFlowCounterIn, *prm.CreateFlowTableIn, *prm.CreateFlowGroupIn:
		return true
	case *prm.SetFlowTableEntryIn:
		return in.OpMod == 0
	}
	return false
}

// destroyed tells what a command that succeeded has ended.
func destroyed(in cmdif.In) (o Object, ok bool) {
	switch in := in.(type) {
	case *prm.DeallocUARIn:
		return Object{Kind: UAR, Number: in.UAR}, true
	case *prm.DeallocPDIn:
		return Object{Kind: PD, Number: in.PD}, true
	case *prm.DeallocTransportDomainIn:
		return Object{Kind: TransportDomain, Number: in.TransportDomain}, true
	case *prm.DestroyMKeyIn:
		return Object{Kind: MKey, Number: in.MKeyIndex}, true
	case *prm.DestroyEQIn:
		return Object{Kind: EQ, Number: uint32(in.EQN)}, true
	case *prm.DestroyCQIn:
		return Object{Kind: CQ, Number: in.CQN}, true
	case *prm.DestroyRQIn:
		return Object{Kind: RQ, Number: in.RQN}, true
	case *prm.DestroySQIn:
		return Object{Kind: SQ, Number: in.SQN}, true
	case *prm.DestroyTISIn:
		return Object{Kind: TIS, Number: in.TISN}, true
	case *prm.DestroyTIRIn:
		return Object{Kind: TIR, Number: in.TIRN}, true
	case *prm.DestroyRQTIn:
		return Object{Kind: RQT, Number: in.RQTN}, true
	case *prm.DeallocQCounterIn:
		return Object{Kind: QCounter, Number: uint32(in.CounterSetID)}, true
	case *prm.DeallocFlowCounterIn:
		return Object{Kind: FlowCounter, Number: in.FlowCounterID}, true
	case *prm.DestroyFlowTableIn:
		return Object{Kind: FlowTable, Number: in.TableID, TableType: in.TableType, Vport: of(in.OtherVport, in.VportNumber)}, true
	case *prm.DestroyFlowGroupIn:
		return Object{Kind: FlowGroup, Number: in.GroupID, TableType: in.TableType, Table: in.TableID, Vport: of(in.OtherVport, in.VportNumber)}, true
	case *prm.DeleteFlowTableEntryIn:
		return Object{Kind: FlowEntry, Number: in.FlowIndex, TableType: in.TableType, Table: in.TableID, Vport: of(in.OtherVport, in.VportNumber)}, true
	}
	return o, false
}

// Create runs a command that makes an object and says which. Errors are the command's.
func (b *Book) Create(ctx context.Context, in cmdif.In, out cmdif.Out) (Object, error) {
	if err := b.Exec(ctx, in, out); err != nil {
		return Object{}, err
	}
	o, ok := created(in, out)
	if !ok {
		panic("object: " + in.Opcode().String() + " creates nothing")
	}
	return o, nil
}
