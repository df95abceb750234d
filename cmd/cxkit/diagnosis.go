package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"cxkit/driver"
	"cxkit/pci"
	"cxkit/prm"
	"cxkit/stats"
)

// findings are what a diagnosis rests on. They are collected before the card is taken down.
type findings struct {
	err      error
	commands *stats.Commands    // nil: the NIC was never up
	health   prm.HealthSyndrome // of the health buffer
	booting  bool               // the init segment says so
	unsent   int                // frames without completion
	unrung   bool               // and the card has not sent them
	late     time.Duration      // how long completions of sent frames were waited for
	untold   uint64             // received frames without completion
	events   uint64             // of completions, that were not written
	raises   uint64             // and interrupts for such events that did not come
	back     uint64             // pages that firmware gave back while the driver was up
	around   stats.Health       // what the card says of its slot and of its port's module
	left     bool               // the card kept something
	downs    uint64             // how often the link went down
	linkDown bool               // and it is down now
	line     string             // the errors that the port counted
	recovers uint64             // and the recoveries of the PCIe link
}

// look reads the registers that tell why a card fails. A card that is off the bus reads as ones.
func (f *findings) look(function pci.Function) {
	w, err := function.Window(0)
	if err != nil {
		return
	}
	const gone = ^uint32(0)
	if v := w.Load32(prm.InitSegStateOff); v != gone {
		f.booting = v>>31 != 0
	}
	if v := w.Load32(prm.InitSegHealthOff + prm.HealthBufferSyndromeOff); v != gone {
		f.health = prm.HealthBufferSyndrome(v).Synd()
	}
}

// diagnosis says in a line what went wrong, the general cause first.
func (f *findings) diagnosis() string {
	text := f.cause()
	var left *driver.LeftoverError
	switch {
	case errors.As(f.err, &left) && left.Memory != nil:
		// What else could be done: a card that can't be stopped may write to it at any time.
		return text + "; closed, the card's memory kept from use"
	case f.left:
		return text + "; not everything was given back"
	}
	return text + "; closed cleanly"
}

func (f *findings) cause() string {
	var silent *driver.NoAnswerError
	var health *driver.HealthError
	switch {
	case f.err == nil:
		return f.noticed()
	case errors.As(f.err, &health) || f.health != prm.HealthOK:
		return fmt.Sprintf("interface in error: health syndrome %#x: %v", uint8(f.health), f.health)
	case errors.As(f.err, &silent):
		return fmt.Sprintf("%v: %v had no answer after %v", silent.Cause, silent.Op.LinuxString(), silent.After.Round(time.Millisecond))
	case errors.Is(f.err, driver.ErrGone):
		return "device gone: its registers read as ones"
	}
	return f.refusal()
}

// refusal is the cause of errors that are answers.
func (f *findings) refusal() string {
	var refused *prm.CommandError
	var delivery *driver.DeliveryError
	var protocol *driver.ProtocolError
	var queue *driver.QueueError
	switch {
	case errors.As(f.err, &protocol):
		return fmt.Sprintf("bad answer: %v: %s", protocol.Op.LinuxString(), protocol.What)
	case errors.As(f.err, &delivery):
		return fmt.Sprintf("not delivered: %v: %v", delivery.Op.LinuxString(), delivery.Delivery)
	case errors.As(f.err, &refused):
		return fmt.Sprintf("refused: %v: %v, syndrome %#x", refused.Op.LinuxString(), refused.Status, refused.Syndrome)
	case errors.As(f.err, &queue):
		return fmt.Sprintf("queue in error: %v", queue)
	case f.booting:
		return "firmware never initialized"
	}
	first, _, _ := strings.Cut(f.err.Error(), "\n")
	return first
}

// noticed is what the driver saw go wrong and got over.
func (f *findings) noticed() string {
	var all []string
	add := func(n uint64, one, many string) {
		switch {
		case n == 1:
			all = append(all, one)
		case n > 1:
			all = append(all, fmt.Sprintf(many, n))
		}
	}
	if c := f.commands; c != nil {
		add(c.LostInterrupts, "interrupt lost: 1 command was complete, its event found without an interrupt",
			"interrupt lost: %d commands were complete, their events found without an interrupt")
		add(c.LostEvents, "EQE lost: 1 command was complete without an event", "EQE lost: %d commands were complete without an event")
		add(c.LateCompletions, "late completion: 1 command was answered after it had been given up",
			"late completion: %d commands were answered after they had been given up")
		add(c.SpuriousEvents, "ghost completion: 1 event named a slot whose command was not done or that had none",
			"ghost completion: %d events named a slot whose command was not done or that had none")
	}
	add(f.raises, "interrupt lost: 1 completion event was found without an interrupt", "interrupt lost: %d completion events were found without an interrupt")
	add(f.events, "EQE lost: 1 packet completion was found without an event", "EQE lost: %d packet completions were found without an event")
	add(f.untold, "CQE lost: 1 frame was received without a completion", "CQE lost: %d frames were received without a completion")
	switch {
	case f.unrung:
		add(uint64(f.unsent), "doorbell lost: 1 frame was posted and not sent", "doorbell lost: %d frames were posted and not sent")
	case f.unsent > 0:
		add(uint64(f.unsent), "CQE lost: 1 frame was sent without a completion", "CQE lost: %d frames were sent without a completion")
	case f.late >= lateCompletion:
		all = append(all, fmt.Sprintf("CQE late: completions of sent frames were waited for %v", f.late.Round(time.Millisecond)))
	}
	if m := f.around.Module; m != nil && m.Error != "" {
		all = append(all, fmt.Sprintf("module %d: %s, %s", m.Number, m.Status, m.Error))
	}
	if p := f.around.Power; p != nil && p.Insufficient {
		all = append(all, fmt.Sprintf("insufficient power: the PCIe slot offers %d W", p.Watts))
	}
	if f.line != "" {
		all = append(all, "bad line: "+f.line)
	}
	add(f.recovers, "bad PCIe link: it recovered from errors once", "bad PCIe link: it recovered from errors %d times")
	add(f.back, "page storm: firmware gave 1 page back", "page storm: firmware gave %d pages back")
	if f.linkDown {
		all = append(all, "link down")
	} else {
		add(f.downs, "link lost: it went down once and is back", "link lost: it went down %d times and is back")
	}
	if all == nil {
		if slow := f.slowest(); slow != "" {
			return slow
		}
		return "nothing noticed"
	}
	return strings.Join(all, "; ")
}

const (
	// lateCompletion is how long the completions of sent frames may take, slowAnswer how long a command may,
	// before a diagnosis says so.
	lateCompletion = 10 * time.Millisecond
	slowAnswer     = 500 * time.Millisecond
)

// slowest names the command whose answers took longest, if one took long.
func (f *findings) slowest() string {
	if f.commands == nil {
		return ""
	}
	worst, name := time.Duration(0), ""
	for _, c := range f.commands.Opcodes {
		if c.Slowest > worst {
			worst, name = c.Slowest, prm.Opcode(c.Opcode).LinuxString()
		}
	}
	if worst < slowAnswer {
		return ""
	}
	return fmt.Sprintf("slow firmware: %s took up to %v", name, worst.Round(10*time.Millisecond))
}
