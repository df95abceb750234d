package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"cxkit/device/fault"
	"cxkit/driver"
	"cxkit/prm"
	"cxkit/stats"
)

// findings are what a diagnosis rests on. They are collected before the card is taken down.
type findings struct {
	err      error
	commands *stats.Commands // nil: the NIC was never up
	unsent   int             // frames without completion
	unrung   bool            // and the card has not sent them
	late     time.Duration   // how long completions of sent frames were waited for
	untold   uint64          // received frames without completion
	events   uint64          // of completions, that were not written
	raises   uint64          // and interrupts for such events that did not come
	back     uint64          // pages that firmware gave back while the driver was up
	around   stats.Health    // what the card says of itself, of its slot and of its port's module
	left     bool            // the card kept something
	downs    uint64          // how often the link went down
	linkDown bool            // and it is down now
	line     string          // the errors that the port counted
	recovers uint64          // and the recoveries of the PCIe link
	faults   []fault.Report  // what the card did wrong, as it knows itself
}

// sign is a sort of what a driver can see of a fault.
type sign string

const (
	signSilent      sign = "firmware silent"
	signGone        sign = "device gone"
	signInError     sign = "interface in error"
	signBooting     sign = "firmware never initialized"
	signRefused     sign = "refused"
	signUndelivered sign = "not delivered"
	signBadAnswer   sign = "bad answer"
	signSlow        sign = "slow firmware"
	signLate        sign = "late completion"
	signGhost       sign = "ghost completion"
	signInterrupt   sign = "interrupt lost"
	signEQE         sign = "EQE lost"
	signCQE         sign = "CQE lost"
	signLateCQE     sign = "CQE late"
	signBell        sign = "doorbell lost"
	signModule      sign = "module"
	signPower       sign = "insufficient power"
	signLine        sign = "bad line"
	signPCIe        sign = "bad PCIe link"
	signStorm       sign = "page storm"
	signLink        sign = "link"
	signOther       sign = "" // of no fault
)

// shownBy is what a driver may make of a kind of fault.
func shownBy(k fault.Kind) []sign {
	switch k {
	case fault.NoAnswer:
		return []sign{signSilent}
	case fault.Late, fault.Hang:
		return []sign{signSilent, signSlow, signLate}
	case fault.Ghost:
		return []sign{signGhost}
	case fault.WrongSlot:
		return []sign{signEQE, signGhost}
	case fault.BadToken, fault.BadSignature, fault.HalfOutput:
		return []sign{signBadAnswer}
	case fault.BadStatus:
		return []sign{signRefused}
	case fault.BadDelivery:
		return []sign{signUndelivered}
	case fault.LostEQE:
		return []sign{signEQE}
	case fault.LostInterrupt, fault.MisdirectedInterrupt:
		return []sign{signInterrupt}
	case fault.LostDoorbell: // of a command, or of a queue
		return []sign{signSilent, signBell}
	case fault.LostCQE:
		return []sign{signCQE}
	case fault.LateCQE:
		return []sign{signLateCQE}
	case fault.Health:
		return []sign{signInError}
	case fault.AllOnes, fault.Removal:
		return []sign{signGone}
	case fault.InitStuck:
		return []sign{signBooting}
	case fault.Unplug:
		return []sign{signLink}
	case fault.Module:
		return []sign{signModule}
	case fault.Power:
		return []sign{signPower}
	case fault.Storm:
		return []sign{signStorm}
	case fault.PortErrors:
		return []sign{signLine}
	case fault.PCIeErrors:
		return []sign{signPCIe}
	}
	return nil
}

// symptom is something that the driver saw, in words.
type symptom struct {
	sign sign
	text string
}

// shows tells whether one of the symptoms names a kind of fault.
func shows(all []symptom, k fault.Kind) bool {
	for _, s := range all {
		for _, by := range shownBy(k) {
			if s.sign == by {
				return true
			}
		}
	}
	return false
}

// diagnosis says in a line what went wrong, the general cause first, and which of the card's faults the
// driver did not see.
func (f *findings) diagnosis() string {
	var parts []string
	for _, s := range f.symptoms() {
		parts = append(parts, s.text)
	}
	parts = append(parts, f.unseen()...)
	if len(parts) == 0 {
		parts = append(parts, "nothing noticed")
	}
	var left *driver.LeftoverError
	switch {
	case errors.As(f.err, &left) && left.Memory != nil:
		// What else could be done: a card that can't be stopped may write to it at any time.
		parts = append(parts, "closed, the card's memory kept from use")
	case f.left:
		parts = append(parts, "not everything was given back")
	default:
		parts = append(parts, "closed cleanly")
	}
	return strings.Join(parts, "; ")
}

// symptoms are what ended the run, or what the driver saw go wrong and got over. Where something ended it,
// much else follows from that: of what was noticed only what names another fault is said.
func (f *findings) symptoms() []symptom {
	var all []symptom
	if f.err != nil {
		all = append(all, f.cause())
	}
	noticed := f.noticed()
	// Nothing but the user ended it, or the error says no more than what was noticed.
	wanted := f.err != nil && all[0].sign == signOther && (errors.Is(f.err, errInterrupted) || f.struck(noticed))
	if f.err == nil || wanted {
		if len(noticed) > 0 {
			all = noticed
		}
	} else {
		for _, s := range noticed {
			for _, r := range f.faults {
				if r.Struck > 0 && !shows(all, r.Kind) && shows([]symptom{s}, r.Kind) {
					all = append(all, s)
				}
			}
		}
	}
	if slow := f.slowest(); slow != "" && (len(all) == 0 || wanted && len(noticed) == 0) {
		all = []symptom{{signSlow, slow}}
	}
	return all
}

// struck tells whether one of the symptoms names a fault that struck.
func (f *findings) struck(all []symptom) bool {
	return slices.ContainsFunc(f.faults, func(r fault.Report) bool { return r.Struck > 0 && shows(all, r.Kind) })
}

// unseen names the faults that struck without a sign of them, and those that never struck.
func (f *findings) unseen() []string {
	var quiet, never []string
	symptoms := f.symptoms()
	for _, r := range f.faults {
		switch {
		case r.Struck == 0:
			never = append(never, r.Name)
		case !shows(symptoms, r.Kind):
			quiet = append(quiet, fmt.Sprintf("%s struck %s", r.Name, times(r.Struck)))
		}
	}
	var parts []string
	if len(quiet) > 0 {
		parts = append(parts, "unseen by the driver: "+some(quiet))
	}
	if len(never) > 0 {
		parts = append(parts, "never struck: "+some(never))
	}
	return parts
}

// some joins the first names of a list.
func some(names []string) string {
	const most = 4
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// times writes a count in words.
func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// cause is what the error that ended the run says.
func (f *findings) cause() symptom {
	var health *driver.HealthError
	var boot *driver.BootError
	silent := worstSilence(f.err)
	switch {
	case errors.Is(f.err, driver.ErrGone) || silent != nil && silent.Cause == driver.DeviceGone:
		return symptom{signGone, "device gone: its registers read as ones"}
	case errors.As(f.err, &health):
		return inError(health.Syndrome)
	case silent != nil && silent.Cause == driver.InterfaceError && silent.Syndrome != prm.HealthOK:
		return inError(silent.Syndrome)
	case errors.Is(f.err, driver.ErrDisabled):
		return symptom{signInError, fmt.Sprintf("interface in error: %v", driver.ErrDisabled)}
	case silent != nil:
		text := fmt.Sprintf("%v: %v had no answer after %v", silent.Cause, silent.Op.LinuxString(), silent.After.Round(time.Millisecond))
		switch silent.Cause {
		case driver.InterfaceError:
			return symptom{signInError, text}
		case driver.FirmwareSilent:
			return symptom{signSilent, text}
		}
		return symptom{signOther, text}
	case errors.As(f.err, &boot) && (boot.Err == nil || boot.After >= slowAnswer):
		return symptom{signBooting, "firmware never initialized"}
	}
	return f.refusal()
}

func inError(s prm.HealthSyndrome) symptom {
	return symptom{signInError, fmt.Sprintf("interface in error: health syndrome %#x: %v", uint8(s), s)}
}

// worstSilence is the command without an answer that says most, nil if there is none. One that its user
// gave up soon, or before firmware saw it, says nothing.
func worstSilence(err error) (worst *driver.NoAnswerError) {
	if e, ok := err.(*driver.NoAnswerError); ok {
		early := e.Cause == driver.FirmwareSilent && e.After < slowAnswer || e.Cause == driver.NeverIssued
		if !early || !errors.Is(e.Err, context.Canceled) {
			worst = e
		}
	}
	var inner []error
	switch x := err.(type) {
	case interface{ Unwrap() error }:
		inner = []error{x.Unwrap()}
	case interface{ Unwrap() []error }:
		inner = x.Unwrap()
	}
	for _, e := range inner {
		if s := worstSilence(e); s != nil && (worst == nil || weight(s.Cause) > weight(worst.Cause)) {
			worst = s
		}
	}
	return worst
}

// weight orders causes by how much they explain.
func weight(c driver.Cause) int {
	switch c {
	case driver.DeviceGone:
		return 4
	case driver.InterfaceError:
		return 3
	case driver.FirmwareSilent:
		return 2
	case driver.Flushed:
		return 1
	}
	return 0
}

// refusal is the cause of errors that are answers.
func (f *findings) refusal() symptom {
	var refused *prm.CommandError
	var delivery *driver.DeliveryError
	var protocol *driver.ProtocolError
	var queue *driver.QueueError
	var left *driver.LeftoverError
	err := f.err
	if errors.As(err, &left) && errors.Is(err, errInterrupted) {
		err = errInterrupted // what firmware says at a teardown is a consequence
	}
	switch {
	case errors.As(err, &protocol):
		return symptom{signBadAnswer, fmt.Sprintf("bad answer: %v: %s", protocol.Op.LinuxString(), protocol.What)}
	case errors.As(err, &delivery):
		return symptom{signUndelivered, fmt.Sprintf("not delivered: %v: %v", delivery.Op.LinuxString(), delivery.Delivery)}
	case errors.As(err, &refused):
		return symptom{signRefused, fmt.Sprintf("refused: %v: %v, syndrome %#x", refused.Op.LinuxString(), refused.Status, refused.Syndrome)}
	case errors.As(err, &queue):
		return symptom{signOther, fmt.Sprintf("queue in error: %v", queue)}
	case left != nil && len(left.Commands) > 0: // the user gave it up; so did the teardown, later
		return symptom{signSilent, fmt.Sprintf("firmware silent: %s had no answer", left.Commands[0])}
	case errors.Is(f.err, errInterrupted):
		return symptom{signOther, errInterrupted.Error()}
	}
	first, _, _ := strings.Cut(f.err.Error(), "\n")
	return symptom{signOther, first}
}

// opening finds what the commands of a bring-up that failed have done.
func (f *findings) opening(c **stats.Commands) bool {
	var open *driver.OpenError
	if !errors.As(f.err, &open) {
		return false
	}
	*c = &open.Commands
	return true
}

// noticed is what the driver saw go wrong and got over.
func (f *findings) noticed() (all []symptom) {
	add := func(s sign, n uint64, one, many string) {
		switch {
		case n == 1:
			all = append(all, symptom{s, one})
		case n > 1:
			all = append(all, symptom{s, fmt.Sprintf(many, n)})
		}
	}
	if c := f.commands; c != nil || f.opening(&c) {
		add(signInterrupt, c.LostInterrupts, "interrupt lost: 1 command was complete, its event found without an interrupt",
			"interrupt lost: %d commands were complete, their events found without an interrupt")
		add(signEQE, c.LostEvents, "EQE lost: 1 command was complete without an event", "EQE lost: %d commands were complete without an event")
		add(signLate, c.LateCompletions, "late completion: 1 command was answered after it had been given up",
			"late completion: %d commands were answered after they had been given up")
		add(signGhost, c.SpuriousEvents, "ghost completion: 1 event named a slot whose command was not done or that had none",
			"ghost completion: %d events named a slot whose command was not done or that had none")
	}
	add(signInterrupt, f.raises, "interrupt lost: 1 completion event was found without an interrupt", "interrupt lost: %d completion events were found without an interrupt")
	add(signEQE, f.events, "EQE lost: 1 packet completion was found without an event", "EQE lost: %d packet completions were found without an event")
	add(signCQE, f.untold, "CQE lost: 1 frame was received without a completion", "CQE lost: %d frames were received without a completion")
	switch {
	case f.unrung:
		add(signBell, uint64(f.unsent), "doorbell lost: 1 frame was posted and not sent", "doorbell lost: %d frames were posted and not sent")
	case f.unsent > 0:
		add(signCQE, uint64(f.unsent), "CQE lost: 1 frame was sent without a completion", "CQE lost: %d frames were sent without a completion")
	case f.late >= lateCompletion:
		all = append(all, symptom{signLateCQE, fmt.Sprintf("CQE late: completions of sent frames were waited for %v", f.late.Round(time.Millisecond))})
	}
	if s := prm.HealthSyndrome(f.around.Syndrome); s != prm.HealthOK {
		all = append(all, inError(s))
	}
	if m := f.around.Module; m != nil && m.Error != "" {
		all = append(all, symptom{signModule, fmt.Sprintf("module %d: %s, %s", m.Number, m.Status, m.Error)})
	}
	if p := f.around.Power; p != nil && p.Insufficient {
		all = append(all, symptom{signPower, fmt.Sprintf("insufficient power: the PCIe slot offers %d W", p.Watts)})
	}
	if f.line != "" {
		all = append(all, symptom{signLine, "bad line: " + f.line})
	}
	add(signPCIe, f.recovers, "bad PCIe link: it recovered from errors once", "bad PCIe link: it recovered from errors %d times")
	add(signStorm, f.back, "page storm: firmware gave 1 page back", "page storm: firmware gave %d pages back")
	if f.linkDown {
		all = append(all, symptom{signLink, "link down"})
	} else {
		add(signLink, f.downs, "link lost: it went down once and is back", "link lost: it went down %d times and is back")
	}
	return all
}

const (
	// lateCompletion is how long the completions of sent frames may take, slowAnswer how long a command may,
	// before a diagnosis says so.
	lateCompletion = 10 * time.Millisecond
	slowAnswer     = 500 * time.Millisecond
)

// slowest names the command whose answers took longest, if one took long.
func (f *findings) slowest() string {
	commands := f.commands
	if commands == nil && !f.opening(&commands) {
		return ""
	}
	worst, name := time.Duration(0), ""
	for _, c := range commands.Opcodes {
		if c.Slowest > worst {
			worst, name = c.Slowest, prm.Opcode(c.Opcode).LinuxString()
		}
	}
	if worst < slowAnswer {
		return ""
	}
	return fmt.Sprintf("slow firmware: %s took up to %v", name, worst.Round(10*time.Millisecond))
}
