package pci

// Endpoint is a PCI function as a card implements it. A transport plugs it in with Attach; its methods
// may be called from any goroutine. Data in registers is big endian: a value's big-endian encoding is
// the bytes on the bus in address order.
type Endpoint interface {
	// Info describes the function.
	Info() Info
	// ReadConfig and WriteConfig access configuration space; size is 1, 2 or 4, and values are little
	// endian as PCI defines. Accesses outside the implemented space read as zero and write nowhere. A
	// function level reset that a write starts (Device Control bit 15) is over when WriteConfig returns;
	// the transport then forgets interrupts from before.
	ReadConfig(off int, size int) uint32
	WriteConfig(off int, size int, v uint32)
	// ReadBAR reads a register; size is 1, 2, 4 or 8. It is ordered behind earlier writes of the same
	// caller as far as the register read depends on them.
	ReadBAR(bar int, off uint64, size int) uint64
	// WriteBAR writes a register. It is posted: it returns once the card has taken note, and never
	// waits for the engine to act on it.
	WriteBAR(bar int, off uint64, size int, v uint64)
	// Attach plugs the function into a host. One host at a time: a second Attach is an error.
	Attach(h Host) error
	// Detach unplugs it: when it returns the card uses the host no more.
	Detach()
	// Reset performs a reset; when it returns all DMA of before has ended.
	Reset(kind ResetKind)
}

// ResetKind is how a function is reset.
type ResetKind uint8

const (
	// ResetFLR is a function level reset (Device Control bit 15).
	ResetFLR ResetKind = iota
	// ResetHot is a reset of the bus or slot, or a power cycle: configuration space starts over too.
	ResetHot
)

// Host is what a card may do to the outside of one function.
type Host interface {
	// Memory reaches the host's memory by bus address.
	Memory() Memory
	// Raise raises an MSI-X vector. It never blocks. Raises of a masked vector are kept pending by the
	// transport.
	Raise(vector int)
}

// Memory is the bus-address space that one function can reach.
//
// A card brackets its use with Enter and Leave: between them mappings do not go away, so views are
// valid. Views that are kept across Leave are valid again after the next Enter if Generation has not
// changed. Enter never waits long: a transport that removes a mapping waits for Leave, never the other
// way round. Enter may be called again by the goroutine that holds it only after Leave. Guard does both
// and survives memory that a peer takes away.
type Memory interface {
	// View returns the n bytes at bus address addr when they are one piece of mapped memory with the
	// access asked for, else nil (unmapped, no rights, straddling two mappings, or reachable by
	// messages only: then ReadAt and WriteAt decide).
	View(addr uint64, n int, access Access) []byte
	// ReadAt and WriteAt copy across mappings and through messages. They fail with *DMAError and then
	// have copied nothing or a part. They must not be used for ownership words of mapped memory.
	ReadAt(p []byte, addr uint64) error
	WriteAt(p []byte, addr uint64) error
	// Generation changes whenever a mapping was removed or replaced.
	Generation() uint64
	Enter()
	Leave()
}

// Access is what a card wants to do with memory.
type Access uint8

const (
	Read Access = 1 << iota
	Write
)
