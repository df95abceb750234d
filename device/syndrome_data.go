package device

import (
	"fmt"

	"cxkit/device/internal/command"
	"cxkit/prm"
)

// Checks of queues, TIS, TIR and RQT. Those of flow tables are in package steer, from synBase+0x501.
const (
	synNoCQ syndrome = synBase + 0x401 + iota
	synNoRQ
	synNoSQ
	synNoTIS
	synNoTIR
	synNoRQT
	synNoFlowCounter
	synNoFlowTable
	synNoFlowGroup
	synNoFlowEntry
	synRecordAddress
	synCQFeature
	synCQESize
	synWQType
	synWQStride
	synWQFeature
	synRQFeature
	synSQFeature
	synTISCount
	synTISFeature
	synTSFormat
	synQueueState
	synTransition
	synModifyBits
	synTIRType
	synTIRFeature
	synHashFunction
	synHashFields
	synRQTSize
	synRQTList
	synRQTFeature
	synFlowTableType
	synFlowFeature
	synFlowList
	synDestination
	synCounterBulk
	synStrides
	synNoRMP
	synLRO
	synCQResize
	synVXLANPort
	synModifyHeader
	synNoUMEM
	synUMEMList
	synUMEMPages
	synUMEMAccess
	synUMEMRange
	synNoQP
	synQPFeature
)

// refuse ends a command with a text of its own, which names the value that was wrong.
func refuse(status prm.Status, syn syndrome, format string, args ...any) command.Result {
	return command.Result{Status: status, Syndrome: uint32(syn), Why: fmt.Sprintf(format, args...)}
}
