package prm

import "strings"

// Kind says how a field's bytes are read.
type Kind uint8

const (
	KindBits   Kind = iota // bits Hi..Lo of the big-endian dword (quadword if Hi > 31) at Off
	KindBytes              // Size raw bytes
	KindWords              // Count big-endian words of Size bytes
	KindStruct             // Count copies of the structure Layout
	KindAlias              // a second reading, as KindBits, of bits that another field names
)

// Field is one row of a structure's table.
type Field struct {
	Name   string // Go name
	PRM    string // name in the PRM and in mlx5_ifc.h
	Kind   Kind
	Off    int // byte offset
	Hi, Lo int // KindBits, KindAlias
	Size   int // KindBytes, KindWords
	Count  int
	Layout string // KindStruct: a name for LayoutByName
	Enum   string // a name for EnumText
	Signed bool   // a two's complement number
}

// Tail is the list that follows a structure's fixed part.
type Tail struct {
	Name, PRM string
	Size      int    // bytes of an element; 0: see DestinationList
	Layout    string // structure of an element, if it is one
	Count     string // name of the field that counts the elements, if there is one
}

// Layout is the table of a structure.
type Layout struct {
	Name   string // Go type
	PRM    string // name of its struct in mlx5_ifc.h without mlx5_ifc_ and _bits, if there is one
	Size   int    // bytes, without the tail
	View   bool   // an array type used in place, not a struct with Get and Put
	Fields []Field
	Tail   *Tail
}

// Command is an opcode with the tables of its input and output, nil where the body is not described.
type Command struct {
	Op      Opcode
	Name    string // as Linux prints it
	In, Out *Layout
}

// Register is a register reached by ACCESS_REG, with a nil Layout if its image is not described.
type Register struct {
	ID     RegisterID
	Name   string
	Layout *Layout
}

// LayoutByName returns the table of a structure, or nil. What it returns is shared and must not be modified.
func LayoutByName(name string) *Layout { return layoutByName(name) }

// LayoutNames lists all structures in alphabetical order.
func LayoutNames() []string { return strings.Fields(layoutNames) }

// CommandByOpcode returns the tables of a command, or nil. What it returns is shared and must not be modified.
func CommandByOpcode(op Opcode) *Command {
	lo, hi := 0, len(commandTable)
	for lo < hi {
		mid := (lo + hi) / 2
		if commandTable[mid].Op < op {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(commandTable) && commandTable[lo].Op == op {
		return &commandTable[lo]
	}
	return nil
}

// Opcodes lists all known opcodes in ascending order.
func Opcodes() []Opcode {
	ops := make([]Opcode, len(commandTable))
	for i := range commandTable {
		ops[i] = commandTable[i].Op
	}
	return ops
}

// RegisterByID returns the table of a register, or nil. What it returns is shared and must not be modified.
func RegisterByID(id RegisterID) *Register { return registerByID(id) }

func registerByID(id RegisterID) *Register {
	for i := range registerTable {
		if registerTable[i].ID == id {
			return &registerTable[i]
		}
	}
	return nil
}

// RegisterIDs lists all known registers in ascending order.
func RegisterIDs() []RegisterID {
	ids := make([]RegisterID, len(registerTable))
	for i := range registerTable {
		ids[i] = registerTable[i].ID
	}
	return ids
}
