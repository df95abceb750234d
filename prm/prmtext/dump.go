package prmtext

import (
	"fmt"
	"strings"

	"cxkit/prm"
)

// Dump is one dumped command: its queue entry and mailbox blocks, or its message alone.
type Dump struct {
	Line   int    // line of the log where it starts, from 1
	Name   string // command name as the log has it, "" if the dump has no head
	Op     prm.Opcode
	Output bool
	Slot   int  // cmd[slot], or -1
	Data   bool // a "dump command data": Message without entry and blocks
	Entry  [prm.CmdEntrySize]byte
	Blocks [][prm.MailboxSize]byte
	Raw    []byte // Data only: the message
}

// Form chooses between the texts of kernel versions.
type Form uint8

const (
	Modern Form = iota // every line starts with cmd[slot]:, dumps start and end with a line of their own
	Old                // offsets only, as up to Linux 4.x
)

// Message returns the bytes of the command's input, or of its output.
func (d *Dump) Message() []byte {
	if d.Data {
		return clone(d.Raw)
	}
	entry := (*prm.CmdEntry)(&d.Entry)
	inline, length := entry.InlineInput(), int64(entry.InputLength())
	if d.Output {
		inline, length = entry.InlineOutput(), int64(entry.OutputLength())
	}
	msg := clone(inline[:])
	for i := range d.Blocks {
		msg = append(msg, (*prm.Mailbox)(&d.Blocks[i]).Data()[:]...)
	}
	return msg[:min(int64(len(msg)), length)]
}

// Cut tells whether the dump holds less than the command's length.
func (d *Dump) Cut() bool {
	if d.Data {
		return false
	}
	entry := (*prm.CmdEntry)(&d.Entry)
	length := entry.InputLength()
	if d.Output {
		length = entry.OutputLength()
	}
	return uint64(prm.InlineLen+len(d.Blocks)*prm.MailboxDataLen) < uint64(length)
}

// SetMessage puts a message of the same length back into entry and blocks. Everything else stays as it was dumped.
func (d *Dump) SetMessage(msg []byte) error {
	if have := len(d.Message()); len(msg) != have {
		return fmt.Errorf("set message: %d bytes, the dump holds %d", len(msg), have)
	}
	if d.Data {
		d.Raw = clone(msg)
		return nil
	}
	entry := (*prm.CmdEntry)(&d.Entry)
	inline := entry.InlineInput()
	if d.Output {
		inline = entry.InlineOutput()
	}
	n := copy(inline[:], msg)
	for i := range d.Blocks {
		n += copy((*prm.Mailbox)(&d.Blocks[i]).Data()[:], msg[n:])
	}
	return nil
}

// Opcode is the command's opcode: that of the entry, or of the head where the dump has no input.
func (d *Dump) Opcode() prm.Opcode {
	if !d.Data {
		if op, ok := prm.InputOpcode((*prm.CmdEntry)(&d.Entry).InlineInput()[:]); ok {
			return op
		}
	}
	if d.Data && !d.Output {
		if op, ok := prm.InputOpcode(d.Raw); ok {
			return op
		}
	}
	return d.Op
}

// Decode splits the message into fields. The entry of an output repeats the first bytes of the input, which say what the
// output holds; a "dump command data" has no entry, so in, the input's dump, is looked at if given.
func (d *Dump) Decode(in *Dump) (*Record, error) {
	r, err := d.decode(in)
	if err != nil {
		return nil, fmt.Errorf("dump at line %d: %w", d.Line, err)
	}
	return r, nil
}

func (d *Dump) decode(in *Dump) (*Record, error) {
	if !d.Output {
		return DecodeInput(d.Message())
	}
	head := (*prm.CmdEntry)(&d.Entry).InlineInput()[:]
	switch {
	case in != nil:
		head = in.Message()
	case d.Data:
		head = []byte{byte(d.Op >> 8), byte(d.Op), 0, 0}
	}
	return DecodeOutput(head, d.Message())
}

// Text prints the dump as mlx5_core does, without what dmesg adds.
func (d *Dump) Text(form Form) string {
	var s strings.Builder
	prefix := ""
	if form == Modern {
		prefix = fmt.Sprintf("cmd[%d]: ", max(d.Slot, 0))
		s.WriteString(prefix + "start dump\n")
	}
	name, data, direction := d.Name, "", "INPUT"
	if name == "" {
		name, _, _ = strings.Cut(d.Opcode().LinuxString(), "(")
	}
	if d.Data {
		data = "data "
	}
	if d.Output {
		direction = "OUTPUT"
	}
	fmt.Fprintf(&s, "%sdump command %s%s(0x%x) %s\n", prefix, data, name, uint16(d.Op), direction)
	offset := 0
	hex := func(b []byte) {
		for i := 0; i < len(b); i += 16 {
			var line [16]byte
			copy(line[:], b[i:])
			fmt.Fprintf(&s, "%s%03x: %x %x %x %x\n", prefix, offset, line[0:4], line[4:8], line[8:12], line[12:16])
			offset += 16
		}
	}
	if d.Data {
		hex(d.Raw)
		s.WriteString("\n")
	} else {
		hex(d.Entry[:])
		s.WriteString("\n")
		for i := range d.Blocks {
			s.WriteString(prefix + "command block:\n")
			hex(d.Blocks[i][:])
			s.WriteString("\n")
		}
	}
	if form == Modern {
		s.WriteString(prefix + "end dump\n")
	}
	return s.String()
}
