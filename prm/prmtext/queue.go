package prmtext

import (
	"fmt"

	"cxkit/prm"
)

// DecodeEQE decodes an event queue entry and the data of its event.
func DecodeEQE(b []byte) (*Record, error) {
	if len(b) != prm.EQESize {
		return nil, fmt.Errorf("decode EQE: %d bytes, want %d", len(b), prm.EQESize)
	}
	e := (*prm.EQE)(b)
	data := eventStruct(e.EventType())
	r := decode(fmt.Sprintf("EQE %s", e.EventType()), prm.LayoutByName("EQE"), b, func(string) string { return data })
	r.drop("comp.cqn", "cmd.vector") // the data has them already
	return r, nil
}

func eventStruct(t prm.EventType) string {
	switch t {
	case prm.EventCompletion:
		return "CompletionEvent"
	case prm.EventCQError:
		return "CQErrorEvent"
	case prm.EventPathMigrated, prm.EventCommEstablished, prm.EventSQDrained, prm.EventWQCatastrophic, prm.EventPathMigrateFailed,
		prm.EventWQInvalidRequest, prm.EventWQAccess, prm.EventSRQCatastrophic, prm.EventSRQLastWQE, prm.EventSRQLimit:
		return "QPSRQEvent"
	case prm.EventPortChange:
		return "PortEvent"
	case prm.EventCommandCompletion:
		return "CommandEvent"
	case prm.EventPageRequest:
		return "PageRequestEvent"
	case prm.EventNICVportChange:
		return "NICVportChangeEvent"
	case prm.EventVHCAStateChange:
		return "VHCAStateEvent"
	case prm.EventPortModule:
		return "PortModuleEvent"
	case prm.EventTemperatureWarning:
		return "TemperatureEvent"
	case prm.EventDCTDrained, prm.EventDCTKeyViolation:
		return "DCTEvent"
	case prm.EventGeneral:
		return "GeneralEvent"
	case prm.EventPPS:
		return "PPSEvent"
	case prm.EventObjectChange:
		return "ObjectChangeEvent"
	}
	return ""
}

// DecodeCQE decodes a completion queue entry of 64 bytes, by the layout its opcode stands for.
func DecodeCQE(b []byte) (*Record, error) {
	if len(b) != prm.CQESize {
		return nil, fmt.Errorf("decode CQE: %d bytes, want %d", len(b), prm.CQESize)
	}
	name := "CQE"
	op := (*prm.CQE)(b).Opcode()
	switch op {
	case prm.CQERequesterError, prm.CQEResponderError:
		name = "ErrorCQE"
	case prm.CQESignatureError:
		name = "SigErrCQE"
	}
	return decode(fmt.Sprintf("%s %s", name, op), prm.LayoutByName(name), b, nil), nil
}

// drop removes second readings that say nothing new.
func (r *Record) drop(paths ...string) {
	kept := r.Fields[:0]
	for _, f := range r.Fields {
		gone := false
		for _, p := range paths {
			gone = gone || f.Alias && f.Path == p
		}
		if !gone {
			kept = append(kept, f)
		}
	}
	r.Fields = kept
}

// DecodeSendWQE decodes a send WQE: the control segment and, for the opcodes an Ethernet send queue carries, what
// follows it. b holds the whole WQE, a multiple of 16 bytes; what ds leaves over is kept as unnamed bits.
func DecodeSendWQE(b []byte) (*Record, error) {
	if len(b) < prm.WQECtrlSegSize || len(b)%16 != 0 {
		return nil, fmt.Errorf("decode WQE: %d bytes", len(b))
	}
	ctrl := (*prm.WQECtrlSeg)(b)
	op, end := ctrl.Opcode(), min(16*int(ctrl.DS()), len(b))
	d := &decoder{b: b}
	d.structure(prm.LayoutByName("WQECtrlSeg"), "ctrl", 0)
	at := prm.WQECtrlSegSize
	switch op {
	case prm.WQESend, prm.WQELSO, prm.WQEEnhancedMPSW:
		at = d.ethernet(at, end)
		at = d.data(at, end)
	case prm.WQEUMR:
		at = d.segment("WQEUMRCtrlSeg", "umr", at, end)
		at = d.segment("MKeyContext", "mkc", at, end)
	}
	if at < len(b) {
		d.unnamed("", at, len(b), newBitset(len(b)-at))
		d.fixRel(at)
	}
	return &Record{Title: fmt.Sprintf("WQE %s, %#x bytes", op, len(b)), Len: len(b), Fields: d.fields}, nil
}

// DecodeReceiveWQE decodes a receive WQE: data segments, behind a next segment if the RQ is a linked list.
func DecodeReceiveWQE(b []byte, linked bool) (*Record, error) {
	if len(b) == 0 || len(b)%16 != 0 {
		return nil, fmt.Errorf("decode receive WQE: %d bytes", len(b))
	}
	d := &decoder{b: b}
	at := 0
	if linked {
		at = d.segment("WQENextSeg", "next", at, len(b))
	}
	for i := 0; at < len(b); i++ {
		at = d.segment("WQEDataSeg", fmt.Sprintf("data[%d]", i), at, len(b))
	}
	return &Record{Title: fmt.Sprintf("receive WQE, %#x bytes", len(b)), Len: len(b), Fields: d.fields}, nil
}

// segment decodes one segment if it lies before end, and returns where the next one starts.
func (d *decoder) segment(layout, path string, at, end int) int {
	l := prm.LayoutByName(layout)
	if at+l.Size > end {
		return at
	}
	d.structure(l, path, at)
	return at + l.Size
}

// ethernet decodes the Ethernet segment with the inline header that runs on behind it.
func (d *decoder) ethernet(at, end int) int {
	if at+prm.WQEEthSegSize > end {
		return at
	}
	seg := (*prm.WQEEthSeg)(d.b[at:])
	inline := int(seg.InlineHdrSz())
	if seg.InsertVLAN() {
		inline = 0
	}
	at = d.segment("WQEEthSeg", "eth", at, end)
	if more := (inline - 2 + 15) / 16 * 16; inline > 2 && at+more <= end {
		d.raw("eth.inline_hdr", at, 0, more)
		at += more
	}
	return at
}

// data decodes pointers and inline segments up to end.
func (d *decoder) data(at, end int) int {
	for i := 0; at+16 <= end; i++ {
		name := fmt.Sprintf("data[%d]", i)
		seg := (*prm.WQEDataSeg)(d.b[at:])
		if !seg.Inline() {
			at = d.segment("WQEDataSeg", name, at, end)
			continue
		}
		size := int((*prm.WQEInlineSeg)(d.b[at:]).ByteCount())
		next := at + (prm.WQEInlineSegSize+size+15)/16*16
		if next > end {
			return at
		}
		d.structure(prm.LayoutByName("WQEInlineSeg"), name, at)
		d.raw(join(name, "inline_data"), at+prm.WQEInlineSegSize, prm.WQEInlineSegSize, next-at-prm.WQEInlineSegSize)
		at = next
	}
	return at
}
