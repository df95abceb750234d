package spec

// FieldKind says how a field's bytes are read.
type FieldKind uint8

const (
	Bits  FieldKind = iota // bits Hi..Lo of the big-endian dword (quadword if Hi > 31) at Off
	Blob                   // Size raw bytes from Off
	Array                  // Count big-endian words of Size bytes from Off
	Embed                  // Count copies of the structure Layout from Off
	Alias                  // a second reading, as Bits, of bits that another field names
)

// Field is one row of a structure's table.
type Field struct {
	Name   string // Go name
	PRM    string // name in the PRM and in mlx5_ifc.h
	Kind   FieldKind
	Off    int // byte offset
	Hi, Lo int // Bits, Alias: bit 31 is the first bit of the dword
	Size   int // Blob: bytes. Array: bytes of a word
	Count  int // Array, Embed
	Layout string
	Enum   string // name of the Enum its values come from
	Plain  bool   // Enum is for printing; the Go type is a plain number
	Signed bool   // a two's complement number
	Doc    string
}

// Tail is the list that follows a structure's fixed part.
type Tail struct {
	Name   string
	PRM    string
	Off    int
	Size   int    // bytes of an element: 1 (raw bytes), 2, 4, 8, or that of Layout
	Layout string // structure of an element, if it is one
	Count  string // field that limits how many elements Get takes; empty: the length alone does
	Hand   bool   // fields and coding are written by hand (methods tailLen, putTail, getTail)
	Doc    string
}

// Form is how a structure is rendered.
type Form uint8

const (
	Value Form = iota // a struct with Get and Put
	View              // an array with accessors, used in place in shared memory
)

// Dword names a dword of a View that is stored or loaded whole.
type Dword struct {
	Name string
	Off  int
	Own  bool // holds the ownership bit: no setter is made for the fields inside
}

// Layout is a structure.
type Layout struct {
	Name    string
	PRM     string // name of its struct in mlx5_ifc.h, without mlx5_ifc_ and _bits; empty if none
	Size    int    // bytes, without the tail
	Form    Form
	Fields  []Field
	Tail    *Tail
	Patch   bool // also render Patch, which leaves unnamed bits alone
	Offsets bool // also render a constant with the byte offset of every field
	Dwords  []Dword
	Doc     string
}

// Command is an opcode and the structures of its input and output. The common header (opcode, uid, op_mod; status,
// syndrome) is not in the tables. In and Out may be nil: the opcode has a name but no known body.
type Command struct {
	Name    string // Go name
	PRM     string // as Linux prints it
	Op      uint16
	In, Out *Layout
	NoOpMod bool   // the structure uses the op_mod bits itself
	OpMod   string // Enum of the values of op_mod, for printing
	Doc     string
}

// Register is a register reached by ACCESS_REG.
type Register struct {
	Name   string // as the PRM spells it
	ID     uint16
	Layout *Layout // nil: known by name only
	Doc    string
}

// Const is one value of an Enum.
type Const struct {
	Name  string // Go name
	Value uint64
	Text  string // what String returns
}

// Enum is a set of named values.
type Enum struct {
	Name   string
	Size   int  // bytes of the Go type
	Mask   bool // values are bits and may be combined
	Values []Const
	Doc    string
}

// File is one subject: a file of tables and the file generated from it.
type File struct {
	Name      string // zz_<Name>.go
	Commands  []Command
	Registers []Register
	Layouts   []Layout
	Enums     []Enum
}

// The constructors below keep a table to one short line a row.

func bits(name, prm string, off, hi, lo int, doc string) Field {
	return Field{Name: name, PRM: prm, Kind: Bits, Off: off, Hi: hi, Lo: lo, Doc: doc}
}

func alias(name, prm string, off, hi, lo int, doc string) Field {
	return Field{Name: name, PRM: prm, Kind: Alias, Off: off, Hi: hi, Lo: lo, Doc: doc}
}

func blob(name, prm string, off, size int, doc string) Field {
	return Field{Name: name, PRM: prm, Kind: Blob, Off: off, Size: size, Doc: doc}
}

func array(name, prm string, off, size, count int, doc string) Field {
	return Field{Name: name, PRM: prm, Kind: Array, Off: off, Size: size, Count: count, Doc: doc}
}

func embed(name, prm, layout string, off int, doc string) Field {
	return Field{Name: name, PRM: prm, Kind: Embed, Off: off, Count: 1, Layout: layout, Doc: doc}
}

func embeds(name, prm, layout string, off, count int, doc string) Field {
	return Field{Name: name, PRM: prm, Kind: Embed, Off: off, Count: count, Layout: layout, Doc: doc}
}

// enum gives a field's values their type.
func enum(typ string, f Field) Field {
	f.Enum = typ
	return f
}

// named names a field's values for printing and leaves its Go type a plain number.
func named(typ string, f Field) Field {
	f.Enum, f.Plain = typ, true
	return f
}

// signed makes a 32-bit field a two's complement number.
func signed(f Field) Field {
	f.Signed = true
	return f
}

// bytesTail, words and structs are the three kinds of tail.
func bytesTail(name, prm string, off int, count, doc string) *Tail {
	return &Tail{Name: name, PRM: prm, Off: off, Size: 1, Count: count, Doc: doc}
}

func words(name, prm string, off, size int, count, doc string) *Tail {
	return &Tail{Name: name, PRM: prm, Off: off, Size: size, Count: count, Doc: doc}
}

func structs(name, prm, layout string, off int, count, doc string) *Tail {
	return &Tail{Name: name, PRM: prm, Off: off, Layout: layout, Count: count, Doc: doc}
}
