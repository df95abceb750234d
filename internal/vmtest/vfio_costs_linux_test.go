//go:build linux

package vmtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"cxkit/device/wire"
)

// crossings are what leaves the guest for the card's process, and what comes back without being asked for.
type crossings struct {
	sends, cqArms, eqArms, otherWrites, reads, interrupts atomic.Uint64
}

// write counts a register write by its place in a doorbell page (device/doorbell.go).
func (c *crossings) write(off uint64) {
	const pages = 0x10000 // the init segment and the MSI-X table come before
	switch reg := off & 0xfff; {
	case off < pages:
		c.otherWrites.Add(1)
	case reg >= 0x800:
		c.sends.Add(1)
	case reg == 0x20:
		c.cqArms.Add(1)
	case reg == 0x40 || reg == 0x48:
		c.eqArms.Add(1)
	default:
		c.otherWrites.Add(1)
	}
}

// countedSource is a source that counts what is sent into it.
type countedSource struct {
	*wire.Source
	sent atomic.Uint64
}

func (s *countedSource) Transmit(frames [][]byte) int {
	n := s.Source.Transmit(frames)
	s.sent.Add(uint64(n))
	return n
}

// workDone is what was done, and the processor time that it took, up to a moment.
type workDone struct {
	at                                              time.Time
	frames                                          uint64
	sends, cqArms, eqArms, other, reads, interrupts uint64
	card                                            time.Duration // this process
	processor                                       time.Duration // QEMU's thread that is the emulated processor
	rest                                            time.Duration // QEMU's other threads
}

// workSoFar looks at what was done so far. QEMU is this process's only child but for what builds programs.
func (h *vfioHost) workSoFar() (w workDone, err error) {
	c := &h.watched[1].crossings
	w = workDone{
		at: time.Now(), frames: h.source.sent.Load(), sends: c.sends.Load(), cqArms: c.cqArms.Load(), eqArms: c.eqArms.Load(),
		other: c.otherWrites.Load(), reads: c.reads.Load(), interrupts: c.interrupts.Load(),
	}
	self := os.Getpid()
	mine, err := threadTimes(self)
	if err != nil {
		return w, err
	}
	for _, t := range mine {
		w.card += t
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return w, err
	}
	for _, path := range stats {
		f, _ := statFields(path)
		if len(f) < 2 || f[1] != strconv.Itoa(self) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return w, err
		}
		threads, err := threadTimes(pid)
		if err != nil {
			return w, err
		}
		for name, t := range threads {
			if strings.Contains(name, "CPU 0/") {
				w.processor += t
			} else {
				w.rest += t
			}
		}
	}
	return w, nil
}

// threadTimes is the processor time of a process's threads, by name and number.
func threadTimes(pid int) (map[string]time.Duration, error) {
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return nil, err
	}
	all := make(map[string]time.Duration)
	for _, path := range paths {
		f, name := statFields(path)
		if len(f) < 13 {
			continue // it has ended
		}
		var ticks uint64
		for _, field := range f[11:13] { // utime, stime (proc(5): fields 14 and 15)
			n, err := strconv.ParseUint(field, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			ticks += n
		}
		all[name+" "+path] = time.Duration(ticks) * 10 * time.Millisecond // USER_HZ is 100
	}
	return all, nil
}

// statFields are the fields of a stat file behind the name, and the name, which may hold any character.
func statFields(path string) (fields []string, name string) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, ""
	}
	open, end := strings.IndexByte(string(b), '('), strings.LastIndexByte(string(b), ')')
	if open < 0 || end < open {
		return nil, ""
	}
	return strings.Fields(string(b[end+1:])), string(b[open+1 : end])
}

// resultsOf says what a frame cost between two moments, as a guest prints results.
func resultsOf(from, to workDone) string {
	frames := float64(max(to.frames-from.frames, 1))
	var b strings.Builder
	for _, r := range []struct {
		name string
		n    uint64
		unit string
	}{
		{"sends", to.sends - from.sends, "a_frame"},
		{"cq_arms", to.cqArms - from.cqArms, "a_frame"},
		{"eq_arms", to.eqArms - from.eqArms, "a_frame"},
		{"other_writes", to.other - from.other, "a_frame"},
		{"reads", to.reads - from.reads, "a_frame"},
		{"interrupts", to.interrupts - from.interrupts, "a_frame"},
		{"time", uint64(to.at.Sub(from.at)), "ns"},
		{"emulated_processor", uint64(to.processor - from.processor), "ns"},
		{"rest_of_QEMU", uint64(to.rest - from.rest), "ns"},
		{"card", uint64(to.card - from.card), "ns"},
	} {
		fmt.Fprintf(&b, "result vfio %s %.4g %s\n", r.name, float64(r.n)/frames, r.unit)
	}
	return b.String()
}
