package command

import (
	"cxkit/device/internal/object"
	"cxkit/prm"
)

// Call is one command as its handler sees it. The slices belong to the executor and are valid during the
// call only.
type Call struct {
	// Op is the opcode, OpMod its modifier, UID the user context.
	Op    prm.Opcode
	OpMod uint16
	UID   uint16
	// In is the whole input, at least as long as the opcode's Entry says.
	In []byte
	// Out is the output area: zeroed, and as long as the driver accepts, which may be shorter than the
	// opcode's output (never than 8 bytes). The executor writes status and syndrome.
	Out []byte

	// More is set by a handler that has not come to the end: it is called again in the next step, with Done as
	// it left it.
	More bool
	Done int
	// Ended says that the handler came to its end, with this Result; the executor sets both.
	Ended  bool
	Result Result
}

// Reply writes out, one of prm's output structures, into the output area, cut off where that ends.
func (c *Call) Reply(out interface {
	Len() int
	Put([]byte)
}) {
	if n := out.Len(); n > len(c.Out) {
		b := make([]byte, n)
		out.Put(b)
		copy(c.Out, b)
		return
	}
	out.Put(c.Out)
}

// Result is how a command ended. The zero Result is success.
type Result struct {
	Status prm.Status
	// Syndrome is a number that names the failed check; each check has its own. 0 for success.
	Syndrome uint32
	// Why says it in words for the trace. It names the value that was wrong where that costs nothing.
	Why string
}

// OK reports success.
func (r Result) OK() bool { return r.Status == 0 }

// Handler executes a command. It runs in the engine when the command's latency ends, with the
// function's memory entered. It must bound its work by the input's length.
type Handler func(*Call) Result

// Phase is how far a function must have been brought up for a command (reference 00 §5).
type Phase uint8

const (
	// Live: the command queue has an address.
	Live Phase = iota
	// Enabled: after ENABLE_HCA.
	Enabled
	// Initialised: after INIT_HCA, until TEARDOWN_HCA.
	Initialised
)

// Entry is what the executor knows about an opcode.
type Entry struct {
	Handle Handler
	// Phase is the earliest phase the command is accepted in.
	Phase Phase
	// MinIn is the shortest input in bytes, the opcode's fixed part; 16 if zero. A shorter one is
	// answered with bad input length.
	MinIn int
	// MinOut is the shortest output area in bytes the command makes sense with; 8 if zero.
	MinOut int
	// Creates is the kind of object that success adds: firmware takes memory for it first, and the
	// command waits until the host has given it. None for others.
	Creates object.Kind
}

// Table maps opcodes to their entries.
type Table map[prm.Opcode]Entry

// Status is prm's, for packages that need nothing else of it.
type Status = prm.Status
