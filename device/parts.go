package device

import (
	"math/bits"
	"slices"
)

// A command about tens of thousands of pages is done in parts, one a step, so that packets and the commands
// of other functions do not wait for all of it. Of a function's page commands one is done at a time: each
// sees the books as the one before has left them.

// pagesPerPart is how many pages a step deals with, boxesPerPart how many mailboxes of an answer it fills:
// some 20 us.
const (
	pagesPerPart = 1024
	boxesPerPart = 64
)

// goOn has the command in slot i come back in the next step.
func (f *function) goOn(i int) {
	f.executor.partly |= 1 << i
	f.listPartly()
}

func (f *function) listPartly() {
	if !f.partlyListed {
		f.partlyListed = true
		f.card.partly = append(f.card.partly, f)
	}
}

// ended forgets that the command in slot i is done in parts.
func (x *executor) ended(i int) {
	x.partly &^= 1 << i
	call := &x.slots[i].call
	call.More, call.Ended = false, false
	if x.current == i {
		x.current = -1
	}
}

// nextPart is the slot whose turn it is, -1 if there is none.
func (x *executor) nextPart() int {
	switch {
	case x.partly == 0:
		return -1
	case x.current >= 0 && x.partly>>x.current&1 != 0:
		return x.current
	}
	return bits.TrailingZeros32(x.partly)
}

// goOnWithCommands does the next part of a command of each function that has one.
func (c *Card) goOnWithCommands() (busy bool) {
	for range len(c.partly) {
		f := c.partly[0]
		c.partly = slices.Delete(c.partly, 0, 1)
		f.partlyListed = false
		i := f.executor.nextPart()
		if i < 0 {
			continue // it was reset
		}
		busy = true
		f.path.finishCommand(i)
		if f.executor.partly != 0 {
			f.listPartly()
		}
	}
	return busy
}
