package steer

import (
	"fmt"

	"cxkit/device/internal/command"
	"cxkit/prm"
)

// Command statuses, short.
const (
	badParam     = prm.StatusBadParameter
	badResource  = prm.StatusBadResource
	limitExceeds = prm.StatusLimitExceeded
	badState     = prm.StatusBadResourceState
	badIndex     = prm.StatusBadIndex
)

// Syndromes name the check that failed; they follow on those of package device.
const (
	synTableSize = 0xc10501 + iota
	synTableLevel
	synTables
	synTable
	synTableUsed
	synMissTable
	synMissLevel
	synMissAction
	synGroup
	synGroupRange
	synGroupOverlap
	synGroupUsed
	synGroupMask
	synGroups
	synEntryIndex
	synEntryExists
	synEntryMissing
	synEntryGroup
	synEntryAction
	synEntries
	synDestinations
	synDestLevel
	synDestKind
	synCounters
	synModify
	synEntryVLAN
	synEntryHeader
	synEntrySource
)

func fail(status prm.Status, syndrome uint32, format string, args ...any) command.Result {
	return command.Result{Status: status, Syndrome: syndrome, Why: fmt.Sprintf(format, args...)}
}
