package device

import (
	"slices"

	"cxkit/device/internal/command"
	"cxkit/device/internal/steer"
	"cxkit/prm"
)

// Numbers of vports: the physical function has 0, virtual function n has n.
const (
	pfVport     = 0
	ecpfVport   = 0xfffe // a function of the card's own processor (Linux: MLX5_VPORT_ECPF)
	uplinkVport = 0xffff
)

// maxVFs is how many virtual functions a physical function may have.
const maxVFs = 127

// eswitch joins the functions of a port with one another and with the port: a physical function, its
// virtual functions, and the uplink. The physical function manages it. A card without virtual functions has
// none. The engine owns it.
//
// On a card with a processor of its own that processor's function manages it, and has a vport of its own. The
// host's physical function is then one of those that the manager lets start and gives pages.
//
// What a vport sends passes its ingress ACL and VLAN rules, the tables of FDB, and at each vport that FDB
// chooses the egress ACL and VLAN rules there. Without tables, what comes from the uplink is the manager's,
// and what a vport sends goes to the uplink.
type eswitch struct {
	port    *port
	manager *function
	vports  []*switchPort // by number
	uplink  *switchPort
	seen    int         // virtual functions that the host sees
	news    timer       // their number has changed
	ecpf    *switchPort // the manager's, if it is the card's own processor; else nil
	fdb     *steer.Domain
	verdict steer.Verdict // of FDB and ACLs
	rates   rates
}

// switchPort is a port of an e-switch, as its manager sees and sets it. It outlives resets of its function.
type switchPort struct {
	steer.Vport
	esw      *eswitch
	function *function // nil: the uplink
	enabled  bool      // a ward that has been enabled
	context  prm.ESWVportContext
	ingress  *steer.Domain // nil: there never was a table
	egress   *steer.Domain
	rate     rate
	// counters are the uplink's: functions have their own.
	counters vportCounters
}

// newESwitch makes the e-switch of a physical function.
func newESwitch(manager *function) *eswitch {
	e := &eswitch{port: manager.port, manager: manager}
	e.uplink = &switchPort{Vport: steer.Vport{Number: uplinkVport}, esw: e}
	if manager.embedded() {
		e.ecpf = &switchPort{Vport: steer.Vport{Number: ecpfVport}, esw: e, function: manager}
		manager.sw = e.ecpf
	} else {
		e.join(manager)
	}
	return e
}

// join gives a function the next vport.
func (e *eswitch) join(f *function) {
	f.sw = &switchPort{Vport: steer.Vport{Number: uint16(len(e.vports))}, esw: e, function: f}
	e.vports = append(e.vports, f.sw)
}

// vfs are the vports of virtual functions.
func (e *eswitch) vfs() []*switchPort {
	if e == nil {
		return nil
	}
	return e.vports[1:]
}

// wards are the vports of functions that start when they are enabled, and whose pages are the manager's.
func (e *eswitch) wards() []*switchPort {
	if e != nil && e.ecpf != nil {
		return e.vports
	}
	return e.vfs()
}

// all are all vports, the uplink included.
func (e *eswitch) all() []*switchPort {
	all := append(slices.Clone(e.vports), e.uplink)
	if e.ecpf != nil {
		all = append(all, e.ecpf)
	}
	return all
}

// find returns a vport by number, nil if there is none.
func (e *eswitch) find(number uint16) *switchPort {
	switch {
	case int(number) < len(e.vports):
		return e.vports[number]
	case number == uplinkVport:
		return e.uplink
	case number == ecpfVport:
		return e.ecpf
	}
	return nil
}

// reset forgets everything that the manager has set: its own reset, or teardown.
func (e *eswitch) reset() {
	e.resetTables()
	e.rates.reset()
	for _, p := range e.all() {
		p.context, p.rate = prm.ESWVportContext{}, rate{}
	}
	for _, p := range e.wards() {
		p.function.forgetManager()
	}
}

// resetTables forgets all tables.
func (e *eswitch) resetTables() {
	e.fdb = steer.NewDomain(steer.FDB, e.manager.card.profile.switchLimits(), e.manager.seed()^0x464442)
	for _, p := range e.all() {
		p.ingress, p.egress = nil, nil
	}
}

// rooted reports whether the vport is on an e-switch whose FDB has tables that decide.
func (p *switchPort) rooted() bool { return p != nil && p.esw.fdb.Root() != nil }

// isVF reports whether the vport is a virtual function's, isWard whether another function manages it.
func (p *switchPort) isVF() bool   { return p.Number != pfVport && p.Number < ecpfVport }
func (p *switchPort) isWard() bool { return p.function != nil && p.function != p.esw.manager }

// switchLimits are the limits of the e-switch's tables.
func (p *profile) switchLimits() steer.Limits {
	l := p.tableLimits()
	l.Level = maxSwitchLevel
	l.Destinations = 1 << logMaxVports
	return l
}

const (
	maxSwitchLevel = 250 // Linux stacks the priorities of all chains
	logMaxVports   = 8   // log2 of the destinations of an entry
)

// acl returns a vport's domain of a type; it is made when it is asked for first.
func (p *switchPort) acl(t steer.Type) *steer.Domain {
	at := &p.ingress
	if t == steer.EgressACL {
		at = &p.egress
	}
	if *at == nil {
		*at = steer.NewDomain(t, p.esw.manager.card.profile.switchLimits(), p.esw.manager.seed()^uint64(t)<<32^uint64(p.Number)<<16)
	}
	return *at
}

// isVF reports whether f is a virtual function, isWard whether another function's driver lets it start and
// gives it pages, and manages whether it manages an e-switch.
func (f *function) isVF() bool    { return f.sw != nil && f.sw.isVF() }
func (f *function) isWard() bool  { return f.sw != nil && f.sw.isWard() }
func (f *function) manages() bool { return f.sw != nil && f.sw.esw.manager == f }

// embedded reports whether f is a function of the card's own processor.
func (f *function) embedded() bool { return f.card.profile.embedded && f.index < f.card.config.Ports }

// virtuals are the vports of virtual functions that f has.
func (f *function) virtuals() []*switchPort {
	if f.sw != nil && f.sw.Number == pfVport {
		return f.sw.esw.vfs()
	}
	return nil
}

// esw is the e-switch that the function manages, nil if there is none.
func (f *function) esw() *eswitch {
	if f.manages() {
		return f.sw.esw
	}
	return nil
}

// vportOf finds whose vport a command means. Those of others are the manager's to name.
func (f *function) vportOf(other bool, number uint16) (*switchPort, command.Result) {
	if !other {
		if number != 0 {
			return nil, fault(prm.StatusBadParameter, synVportNumber)
		}
		if f.sw == nil {
			return &switchPort{function: f}, command.Result{}
		}
		return f.sw, command.Result{}
	}
	if !f.manages() {
		return nil, fault(prm.StatusBadParameter, synOtherVport)
	}
	p := f.sw.esw.find(number)
	if p == nil {
		return nil, fault(prm.StatusBadParameter, synVportNumber)
	}
	return p, command.Result{}
}

// functionVport is vportOf for commands that the uplink has no part in.
func (f *function) functionVport(other bool, number uint16) (*function, command.Result) {
	p, r := f.vportOf(other, number)
	if !r.OK() {
		return nil, r
	}
	if p.function == nil {
		return nil, fault(prm.StatusBadParameter, synVportNumber)
	}
	return p.function, r
}
