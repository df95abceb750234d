package device

import (
	"encoding/binary"

	"cxkit/device/internal/command"
	"cxkit/device/internal/steer"
	"cxkit/prm"
)

// Modify header contexts (reference 01d §3). The model's e-switch changes metadata registers C0 and C1, which is
// what Linux tells vports apart by (esw/acl/ingress_ofld.c); no other field.

const (
	logMaxHeaders    = 12
	maxHeaderActions = 16
	actionBytes      = 8
)

func (f *function) allocModifyHeader(c *command.Call) command.Result {
	var in prm.AllocModifyHeaderContextIn
	in.Get(c.In)
	h := &steer.Header{Type: steer.Type(in.TableType)}
	switch {
	case !f.manages() || in.TableType != prm.FlowTableFDB && in.TableType != prm.FlowTableESWIngressACL:
		return refuse(prm.StatusBadParameter, synModifyHeader, "table_type %v: no header of its frames can be changed", in.TableType)
	case in.NumOfActions == 0 || in.NumOfActions > maxHeaderActions:
		return refuse(prm.StatusBadParameter, synModifyHeader, "%d actions: want 1 to %d", in.NumOfActions, maxHeaderActions)
	case len(in.Actions) < int(in.NumOfActions):
		return fault(prm.StatusBadInputLength, synModifyHeader)
	}
	for i, raw := range in.Actions[:in.NumOfActions] {
		var a prm.ModifyAction
		a.Get(binary.BigEndian.AppendUint64(make([]byte, 0, actionBytes), raw))
		length := uint(a.Length)
		if length == 0 {
			length = 32
		}
		if a.ActionType != prm.ModifyActionSet || a.Field != prm.FieldMetadataRegC0 && a.Field != prm.FieldMetadataRegC1 || uint(a.Offset)+length > 32 {
			return refuse(prm.StatusBadParameter, synModifyHeader, "action %d: type %d of field %#x, bits %d to %d: want a metadata register C0 or C1 set",
				i, a.ActionType, a.Field, a.Offset, uint(a.Offset)+length-1)
		}
		h.Set = h.Set.Set(a.Field == prm.FieldMetadataRegC1, uint(a.Offset), length, a.Data)
	}
	id, ok := f.headers.Add(h)
	if !ok {
		return fault(prm.StatusLimitExceeded, synNoNumber)
	}
	c.Reply(&prm.AllocModifyHeaderContextOut{ModifyHeaderID: id})
	return command.Result{}
}

func (f *function) deallocModifyHeader(c *command.Call) command.Result {
	var in prm.DeallocModifyHeaderContextIn
	in.Get(c.In)
	h, ok := f.headers.Get(in.ModifyHeaderID)
	if !ok {
		return refuse(prm.StatusBadResource, synModifyHeader, "no modify header %#x", in.ModifyHeaderID)
	}
	if h.Held() {
		return fault(prm.StatusBadResourceState, synModifyHeader)
	}
	f.headers.Remove(in.ModifyHeaderID)
	return command.Result{}
}

// modifyHeader finds the context that an entry's actions name; nil for none.
func (f *function) modifyHeader(ctx *prm.FlowContext) (*steer.Header, command.Result) {
	if ctx.Action&prm.FlowActionModifyHeader == 0 {
		return nil, command.Result{}
	}
	h, ok := f.headers.Get(ctx.ModifyHeaderID)
	if !ok {
		return nil, refuse(prm.StatusBadResource, synModifyHeader, "no modify header %#x", ctx.ModifyHeaderID)
	}
	return h, command.Result{}
}
