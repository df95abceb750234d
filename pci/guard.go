package pci

import "runtime/debug"

// Faulter is what a Memory also is when bytes it has given out can vanish: a peer in another process may
// truncate the file behind memory that it shared.
type Faulter interface {
	// Fault is told that touching host address addr faulted. It reports whether the address is in memory
	// that this Memory gave out; then it has taken note, and the peer is lost.
	Fault(addr uintptr) bool
}

// Guard runs f, a step of a card, between m's Enter and Leave. When f touches memory that its peer has
// made vanish, Guard ends f and returns a *DMAError instead of letting the process die: the card then
// drops what the step was doing. Any other panic goes on. One goroutine may not nest Guards of one m.
func Guard(m Memory, f func()) (err error) {
	m.Enter()
	defer m.Leave()
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		r := recover()
		if r == nil {
			return
		}
		fault, ok := r.(interface{ Addr() uintptr })
		if !ok {
			panic(r)
		}
		owner, ok := m.(Faulter)
		if !ok || !owner.Fault(fault.Addr()) {
			panic(r)
		}
		err = &DMAError{Access: Read | Write, Why: "memory vanished"}
	}()
	f()
	return nil
}
