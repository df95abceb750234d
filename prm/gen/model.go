package main

import (
	"fmt"

	"cxkit/prm/spec"
)

// model is the checked form of all tables: headers added, names resolved.
type model struct {
	files   []file
	layouts map[string]*layout
	enums   map[string]*spec.Enum
}

type file struct {
	name      string
	layouts   []*layout
	commands  []*command
	registers []spec.Register
	enums     []spec.Enum
}

type layout struct {
	spec.Layout
	op    *command // the command whose input this is
	outOf *command // the command whose output this is
}

type command struct {
	spec.Command
	in, out *layout
}

// opcodeField is the field of a command's input that Put writes by itself.
const opcodeField = "Opcode"

// newModel resolves the tables and reports the first mistake in them.
func newModel(files []spec.File) (*model, error) {
	m := &model{layouts: map[string]*layout{}, enums: map[string]*spec.Enum{}}
	for _, f := range files {
		out, err := m.addFile(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		m.files = append(m.files, out)
	}
	return m, m.check()
}

func (m *model) addFile(f spec.File) (file, error) {
	out := file{name: f.Name, registers: f.Registers, enums: f.Enums}
	for i := range f.Enums {
		e := &f.Enums[i]
		if m.enums[e.Name] != nil {
			return out, fmt.Errorf("enum %s: name used twice", e.Name)
		}
		m.enums[e.Name] = e
	}
	for _, c := range f.Commands {
		cmd := &command{Command: c}
		if c.In != nil {
			cmd.in = &layout{Layout: *c.In, op: cmd}
			cmd.in.Fields = append(inputHeader(c), c.In.Fields...)
			out.layouts = append(out.layouts, cmd.in)
		}
		if c.Out != nil {
			cmd.out = &layout{Layout: *c.Out, outOf: cmd}
			cmd.out.Fields = append(outputHeader(), c.Out.Fields...)
			out.layouts = append(out.layouts, cmd.out)
		}
		out.commands = append(out.commands, cmd)
	}
	for _, r := range f.Registers {
		if r.Layout != nil {
			out.layouts = append(out.layouts, &layout{Layout: *r.Layout})
		}
	}
	for _, l := range f.Layouts {
		out.layouts = append(out.layouts, &layout{Layout: l})
	}
	for _, l := range out.layouts {
		if m.layouts[l.Name] != nil || m.enums[l.Name] != nil {
			return out, fmt.Errorf("structure %s: name used twice", l.Name)
		}
		m.layouts[l.Name] = l
	}
	return out, nil
}

// inputHeader is the common start of every command's input. PRM: opcode, uid, op_mod.
func inputHeader(c spec.Command) []spec.Field {
	h := []spec.Field{
		{Name: opcodeField, PRM: "opcode", Off: 0, Hi: 31, Lo: 16, Enum: "Opcode"},
		{Name: "UID", PRM: "uid", Off: 0, Hi: 15, Lo: 0, Doc: "0: kernel"},
	}
	if !c.NoOpMod {
		h = append(h, spec.Field{Name: "OpMod", PRM: "op_mod", Off: 4, Hi: 15, Lo: 0, Enum: c.OpMod, Plain: true})
	}
	return h
}

// outputHeader is the common start of every command's output. PRM: status, syndrome.
func outputHeader() []spec.Field {
	return []spec.Field{
		{Name: "Status", PRM: "status", Off: 0, Hi: 31, Lo: 24, Enum: "Status"},
		{Name: "Syndrome", PRM: "syndrome", Off: 4, Hi: 31, Lo: 0},
	}
}

// extent is the range of bits [start, end) of a field, counted from the first bit of the structure.
func (m *model) extent(f spec.Field) (start, end int) {
	switch f.Kind {
	case spec.Bits, spec.Alias:
		unit := 32
		if f.Hi > 31 {
			unit = 64
		}
		start = f.Off*8 + unit - 1 - f.Hi
		return start, start + f.Hi - f.Lo + 1
	case spec.Blob:
		return f.Off * 8, (f.Off + f.Size) * 8
	case spec.Array:
		return f.Off * 8, (f.Off + f.Size*f.Count) * 8
	case spec.Embed:
		size := 0
		if l := m.layouts[f.Layout]; l != nil {
			size = l.Size
		}
		return f.Off * 8, (f.Off + size*f.Count) * 8
	}
	return 0, 0
}
