package reclaim

import (
	"errors"
	"fmt"

	"cxkit/driver"
	"cxkit/stats"
)

const (
	pasPerBlock  = 512 / 8 // page addresses in a mailbox
	threadBlocks = 782     // of a command with the limit of 50,000
	threadLimit  = 50_000
	// minRatio is what the time of a free gains by the limit where the pool searches: the thread's figures
	// say about 16.
	minRatio = 8
	// maxConstant is what it may gain where the pool does not search.
	maxConstant = 4
)

// expected is how many commands a setting takes, and how many mailboxes the first answer: arithmetic.
func (s Setting) expected() (rounds, blocks int) {
	asked := s.Event
	if s.Limit > 0 {
		asked = min(asked, s.Limit)
	}
	perRound := min(asked, threadLimit) // firmware returns no more
	rounds = (s.Event + perRound - 1) / perRound
	if s.MaxRounds > 0 {
		rounds = min(rounds, s.MaxRounds)
	}
	return rounds, (asked + pasPerBlock - 1) / pasPerBlock
}

// Check holds counts against arithmetic: they are exact.
func (r *Result) Check() error {
	rounds, blocks := r.expected()
	var errs []error
	if r.Blocks != blocks {
		errs = append(errs, fmt.Errorf("the first command took %d mailboxes, want %d", r.Blocks, blocks))
	}
	if r.Rounds != rounds && !(r.MaxRounds > 0 && r.Rounds >= rounds) {
		errs = append(errs, fmt.Errorf("%d rounds, want %d", r.Rounds, rounds))
	}
	if r.MaxRounds == 0 && (!r.Complete || r.Returned != r.Event) {
		errs = append(errs, fmt.Errorf("%d of %d pages came back", r.Returned, r.Event))
	}
	return errors.Join(errs...)
}

// CheckBounded is what the driver promises: no command takes more mailboxes than the limit of 50,000 pages
// needs. It fails when the limit is off.
func (r *Result) CheckBounded() error {
	if r.Blocks > threadBlocks {
		return fmt.Errorf("a command took %d mailboxes, %d are allowed: is the limit off?", r.Blocks, threadBlocks)
	}
	return nil
}

// CheckGain compares the median time of a free without and with the limit: a searching pool gains much, one that
// finds blocks in constant time nothing.
func CheckGain(without, with *Result) error {
	ratio := float64(without.MedianFree()) / float64(max(with.MedianFree(), 1))
	switch {
	case with.Pool == driver.MailboxPoolLinear && ratio < minRatio:
		return fmt.Errorf("the limit makes a free %.1f times as fast, want %d at least", ratio, minRatio)
	case with.Pool == driver.MailboxPoolConstant && ratio > maxConstant:
		return fmt.Errorf("the limit makes a free %.1f times as fast, though the pool does not search", ratio)
	}
	return nil
}

// Thread returns the histograms of the kernel thread: of one command's mailboxes for an event of about
// 1.26 million pages, before and after.
func Thread() (before, after stats.Histogram) {
	for i, n := range []uint64{287, 1332, 656, 2599, 4755, 7545, 2501} {
		before.Bins[9+i] = n
	}
	after.Bins[9], after.Bins[10], after.Bins[13] = 346, 435, 1
	return before, after
}
