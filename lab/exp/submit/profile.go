package submit

import (
	"bytes"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"
)

// profileLocks has Go's mutex profile take note of every wait, until the function it returns is called.
func profileLocks() (stop func()) {
	old := runtime.SetMutexProfileFraction(1)
	return func() { runtime.SetMutexProfileFraction(old) }
}

// lockProfile sums the waits that the mutex profile blames on the lock of the queues: those that ended
// when a method of a work queue gave it back. This is the runtime's own count, and knows nothing of the
// driver's.
func lockProfile() (waits uint64, wait time.Duration) {
	records := make([]runtime.BlockProfileRecord, 64)
	for {
		n, ok := runtime.MutexProfile(records)
		if ok {
			records = records[:n]
			break
		}
		records = make([]runtime.BlockProfileRecord, n+64)
	}
	var cycles int64
	for _, r := range records {
		if ofQueue(r.Stack()) {
			waits += uint64(r.Count)
			cycles += r.Cycles
		}
	}
	return waits, time.Duration(float64(cycles) * nsPerCycle())
}

// nsPerCycle is the unit of the mutex profile, which says it in its text form only; 0 if it does not.
func nsPerCycle() float64 {
	var b bytes.Buffer
	if err := pprof.Lookup("mutex").WriteTo(&b, 1); err != nil {
		return 0
	}
	for line := range strings.Lines(b.String()) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "cycles/second="); ok {
			perSecond, err := strconv.ParseFloat(text, 64)
			if err != nil || perSecond <= 0 {
				return 0
			}
			return 1e9 / perSecond
		}
	}
	return 0
}

// ofQueue tells whether the lock was that of the work queues: the method that gave it back is a queue's.
// What a queue's worker calls has locks of its own.
func ofQueue(stack []uintptr) bool {
	frames := runtime.CallersFrames(stack)
	for {
		f, more := frames.Next()
		if !strings.HasPrefix(f.Function, "sync.") && !strings.HasPrefix(f.Function, "internal/sync.") {
			return strings.Contains(f.Function, "cmdif.(*workQueue).")
		}
		if !more {
			return false
		}
	}
}
