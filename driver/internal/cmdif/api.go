package cmdif

import (
	"context"

	"cxkit/prm"
)

// In is the input of a command; prm's generated *In structures are.
type In interface {
	// Opcode is the command's number.
	Opcode() prm.Opcode
	// Len is the encoded length in bytes, lists included.
	Len() int
	// Put encodes the input into the first Len bytes of b.
	Put(b []byte)
}

// Out is the output of a command; prm's generated *Out structures are.
type Out interface {
	// Len is how many bytes the output may have: an output with a list is made with room for the longest
	// answer wanted (prm.ManagePagesOut{PAS: make([]uint64, n)}).
	Len() int
	// Get decodes b, which has the Len bytes of before the command.
	Get(b []byte)
}

// Executor runs commands. *Interface is one; tests and wrappers are others.
type Executor interface {
	// Exec runs a command and waits for its end, see Interface.Exec.
	Exec(ctx context.Context, in In, out Out) error
}
