package device

import "fmt"

// syndrome names a failed check: drivers log the number, and the trace gives its text. Numbers are this
// model's own; they are grouped by what refused and never change their meaning.
type syndrome uint32

const synBase syndrome = 0xc10000

// Checks of the executor.
const (
	synUnknownOpcode syndrome = synBase + 0x001 + iota
	synPhase
	synInputShort
	synOutputShort
	synReserved
	synNoMemory
	synNoPageEvents
	synOpMod
	synFunctionID
	synOtherVport
	synVportNumber
)

// Checks of function control.
const (
	synISSI syndrome = synBase + 0x101 + iota
	synAlreadyEnabled
	synPagesOut
	synInitialised
	synPagesMissing
	synPageAddress
	synPageTwice
	synPageCount
	synPageList
	synCapGroup
	synCapNotSettable
	synCapTooLarge
	synCapAfterInit
	synTeardownProfile
	synPagesNotAsked
	synNotEnabled
)

// Checks of objects that both halves refer to.
const (
	synNoNumber syndrome = synBase + 0x201 + iota
	synNoEQ
	synNoUAR
	synNoPD
	synNoTransportDomain
	synNoMKey
	synNoCounterSet
	synInUse
	synLogSize
	synPageSize
	synPageOffset
	synPageListShort
	synPageListAddress
	synVector
	synEQMask
	synMKeyMode
	synMKeySize
	synMKeyUMEM
	synMKeyList
)

// Checks of vports and registers.
const (
	synListType syndrome = synBase + 0x301 + iota
	synListSize
	synListAddress
	synMTU
	synInlineMode
	synFieldSelect
	synAdminState
	synRegister
	synRegisterLength
	synRegisterPort
	synRegisterValue
	synRegisterReadOnly
	synWOLMode
	synL2Index
	synNotManager
	synVLANRule
	synScheduling
)

// Checks of monitored counters.
const (
	synMonitorNone syndrome = synBase + 0x381 + iota
	synMonitorCount
	synMonitorCounter
	synMonitorIdle
)

var syndromeTexts = map[syndrome]string{
	synUnknownOpcode: "opcode is not implemented",
	synPhase:         "the function has not been brought up that far",
	synInputShort:    "input is shorter than the command's fixed part",
	synOutputShort:   "output area is too short",
	synReserved:      "a reserved bit of the input is set",
	synNoMemory:      "the host could not give the pages the object needs",
	synNoPageEvents:  "the object needs pages and no EQ takes page requests",
	synOpMod:         "op_mod is not one of the command's",
	synFunctionID:    "function_id is not this function nor one that it manages",
	synOtherVport:    "other_vport needs a manager of the e-switch",
	synVportNumber:   "there is no such vport, or vport_number is set without other_vport",

	synISSI:            "ISSI is not supported",
	synAlreadyEnabled:  "the function is enabled already",
	synPagesOut:        "pages are still lent to the function",
	synInitialised:     "the function is initialised",
	synNotEnabled:      "the function is not enabled",
	synPagesNotAsked:   "the function has not asked for so many pages since it was reset",
	synPagesMissing:    "boot or init pages have not been given",
	synPageAddress:     "page address is not a multiple of 4096",
	synPageTwice:       "page is lent already",
	synPageCount:       "more pages than firmware can keep books of",
	synPageList:        "list is shorter than the number of entries",
	synCapGroup:        "capability group does not exist",
	synCapNotSettable:  "a capability that can't be changed differs from current and maximum",
	synCapTooLarge:     "capability is above its maximum",
	synCapAfterInit:    "capabilities can't be changed after INIT_HCA",
	synTeardownProfile: "teardown profile is not supported",

	synNoNumber:          "no numbers left for this kind of object",
	synNoEQ:              "no such EQ",
	synNoUAR:             "no such UAR",
	synNoPD:              "no such protection domain",
	synNoTransportDomain: "no such transport domain",
	synNoMKey:            "no such memory key",
	synNoCounterSet:      "no such counter set",
	synInUse:             "the object is in use",
	synLogSize:           "size is above the capability",
	synPageSize:          "page size is not supported",
	synPageOffset:        "page offset is not supported for this size",
	synPageListShort:     "page list does not hold the ring",
	synPageListAddress:   "page address is not a multiple of the page size",
	synVector:            "interrupt vector is outside the MSI-X table",
	synEQMask:            "event mask has types that do not exist",
	synMKeyMode:          "access mode of the memory key is not supported",
	synMKeySize:          "translations of the memory key do not fit its range",
	synMKeyUMEM:          "memory keys on umem are not supported",
	synMKeyList:          "list is shorter than the translations it should hold",

	synListType:         "address list type does not exist",
	synListSize:         "address list is longer than the capability",
	synListAddress:      "address does not belong in this list",
	synMTU:              "MTU is outside the port's range",
	synInlineMode:       "inline mode is not supported",
	synFieldSelect:      "a selected field can't be changed",
	synAdminState:       "admin state does not exist",
	synRegister:         "register is not implemented",
	synRegisterLength:   "register image is too short",
	synRegisterPort:     "local_port is not this function's",
	synRegisterValue:    "register value is out of range",
	synRegisterReadOnly: "register can only be read",
	synWOLMode:          "wake-on-LAN mode is not supported",
	synL2Index:          "index is outside the L2 table",
	synNotManager:       "the function manages no e-switch",
	synVLANRule:         "VLAN rule of the vport is not supported",
	synScheduling:       "scheduling element is of an unknown kind, or in use",

	synMonitorNone:    "counters can't be monitored",
	synMonitorCount:   "more counters than the capability",
	synMonitorCounter: "no such counter to be monitored",
	synMonitorIdle:    "no counters are monitored",

	synNoCQ:          "no such CQ",
	synNoRQ:          "no such RQ",
	synNoSQ:          "no such SQ",
	synNoTIS:         "no such TIS",
	synNoTIR:         "no such TIR",
	synNoRQT:         "no such RQT",
	synNoFlowCounter: "no such flow counter",
	synNoFlowTable:   "no such flow table",
	synNoFlowGroup:   "no such flow group",
	synNoFlowEntry:   "no such flow table entry",
	synRecordAddress: "doorbell record is at 0 or not aligned",
	synCQFeature:     "the CQ asks for a feature without a capability",
	synCQESize:       "CQE size does not exist",
	synWQType:        "work queue type is not supported",
	synWQStride:      "work queue stride is outside the capability",
	synWQFeature:     "the work queue asks for a feature without a capability",
	synRQFeature:     "the RQ asks for a feature without a capability",
	synSQFeature:     "the SQ asks for a feature without a capability",
	synTISCount:      "an SQ has at most one TIS",
	synTISFeature:    "the TIS asks for a feature without a capability",
	synTSFormat:      "time stamp format is not supported",
	synQueueState:    "the queue is in another state than the command says",
	synTransition:    "queue state can't be reached from the present one",
	synModifyBits:    "a selected field can't be modified",
	synTIRType:       "dispatch type does not exist",
	synTIRFeature:    "the TIR asks for a feature without a capability",
	synHashFunction:  "hash function does not exist",
	synHashFields:    "hash field does not exist",
	synRQTSize:       "RQT size is zero, too large or not a power of two",
	synRQTList:       "list is shorter than the RQT",
	synRQTFeature:    "the RQT asks for a feature without a capability",
	synFlowTableType: "flow table type is not supported",
	synFlowFeature:   "the flow object asks for a feature without a capability",
	synFlowList:      "destination or counter list has another length than the context says",
	synDestination:   "destination type is not supported",
	synCounterBulk:   "bulks of flow counters are not supported",
	synStrides:       "number of strides",
	synNoRMP:         "no such receive memory pool",
	synLRO:           "size or timeout of large receives",
	synCQResize:      "the CQ can't be resized",
	synVXLANPort:     "VXLAN port is 0, unknown or one too many",
	synNoUMEM:        "no such umem",
	synUMEMList:      "the umem's list is empty or shorter than it says",
	synUMEMPages:     "more pages in umems than firmware keeps",
	synUMEMAccess:    "the umem does not allow the access",
	synUMEMRange:     "it does not lie in the umem",
	synNoQP:          "no such QP",
	synQPFeature:     "the QP asks for a feature without a capability",
}

func (s syndrome) String() string {
	if t, ok := syndromeTexts[s]; ok {
		return t
	}
	return fmt.Sprintf("syndrome %#x", uint32(s))
}
