package vfiouser

import "fmt"

// Indices of interrupts (linux/vfio.h).
const (
	IRQIntX = 0
	IRQMSI  = 1
	IRQMSIX = 2
	IRQErr  = 3
	IRQReq  = 4
)

// Flags of an IRQInfo.
const (
	IRQEventFD    uint32 = 1 << 0
	IRQMaskable   uint32 = 1 << 1
	IRQAutoMasked uint32 = 1 << 2
	IRQNoResize   uint32 = 1 << 3
)

// IRQInfo is DeviceGetIRQ's payload; a request has Index.
type IRQInfo struct {
	Flags uint32
	Index uint32
	Count uint32
}

const irqInfoSize = 16

// Append appends the payload to b.
func (m *IRQInfo) Append(b []byte) []byte {
	return append32(b, irqInfoSize, m.Flags, m.Index, m.Count)
}

// Parse decodes a payload.
func (m *IRQInfo) Parse(p []byte) error {
	if len(p) < irqInfoSize || u32(p, 0) < irqInfoSize {
		return short("interrupt info", len(p), irqInfoSize)
	}
	m.Flags, m.Index, m.Count = u32(p, 4), u32(p, 8), u32(p, 12)
	return nil
}

// Flags of an IRQSet: one of the data kinds and one of the actions.
const (
	IRQDataNone    uint32 = 1 << 0
	IRQDataBool    uint32 = 1 << 1 // a byte for each vector
	IRQDataEventFD uint32 = 1 << 2 // a file descriptor for each vector, or none to take them away

	IRQMask    uint32 = 1 << 3
	IRQUnmask  uint32 = 1 << 4
	IRQTrigger uint32 = 1 << 5

	irqData   = IRQDataNone | IRQDataBool | IRQDataEventFD
	irqAction = IRQMask | IRQUnmask | IRQTrigger
)

// IRQSet is DeviceSetIRQs' payload.
type IRQSet struct {
	Flags uint32
	Index uint32
	Start uint32
	Count uint32
	// Bools are what IRQDataBool brings: Count bytes, in the message.
	Bools []byte
}

const irqSetSize = 20

// Append appends the payload to b.
func (m *IRQSet) Append(b []byte) []byte {
	b = append32(b, uint32(irqSetSize+len(m.Bools)), m.Flags, m.Index, m.Start, m.Count)
	return append(b, m.Bools...)
}

// Parse decodes a payload and checks that its flags are one of each.
func (m *IRQSet) Parse(p []byte) error {
	if len(p) < irqSetSize || u32(p, 0) < irqSetSize {
		return short("interrupt setting", len(p), irqSetSize)
	}
	m.Flags, m.Index, m.Start, m.Count, m.Bools = u32(p, 4), u32(p, 8), u32(p, 12), u32(p, 16), nil
	if m.Flags&^(irqData|irqAction) != 0 || !oneBit(m.Flags&irqData) || !oneBit(m.Flags&irqAction) {
		return fmt.Errorf("interrupt setting with flags %#x", m.Flags)
	}
	if m.Flags&IRQDataBool != 0 {
		if uint64(len(p)) < irqSetSize+uint64(m.Count) {
			return short("interrupt setting", len(p), irqSetSize+int(min(m.Count, 1<<20)))
		}
		m.Bools = p[irqSetSize : irqSetSize+int(m.Count)]
	}
	return nil
}

func oneBit(v uint32) bool { return v != 0 && v&(v-1) == 0 }
