package trace

import (
	"encoding/binary"
	"io"
	"strconv"
	"time"
)

// header is the first line of a trace in text form.
const header = "# cxkit trace 1\n"

// WriteText writes records in text form, which Read reads.
func WriteText(w io.Writer, records []Record) error {
	if _, err := io.WriteString(w, header); err != nil {
		return err
	}
	var line []byte
	for i := range records {
		line = appendRecord(line[:0], &records[i], records[i].Data)
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	return nil
}

// String returns the record in text form.
func (rec Record) String() string { return string(appendRecord(nil, &rec, rec.Data)) }

func appendRecord(b []byte, rec *Record, data []byte) []byte {
	b = appendTime(b, rec.Time)
	b = append(b, rec.Side.String()...)
	b = append(b, ' ')
	b = append(b, rec.Function...)
	b = append(b, ": "...)
	switch rec.Kind {
	case CommandIn, CommandOut:
		b = appendCommand(b, rec)
	case Event:
		b = append(b, "event eqn "...)
		b = strconv.AppendUint(b, uint64(rec.Number), 10)
		if len(data) > 1 {
			b = appendNamed(append(b, " type"...), eventName(data[1]), uint64(data[1]))
		}
	case Doorbell:
		b = append(b, "doorbell "...)
		b = append(b, rec.Bell.String()...)
		b = appendHex(append(b, ' '), uint64(rec.Number))
		b = appendHex(append(b, " value "...), rec.Value)
	case Register:
		b = append(b, "write bar "...)
		b = strconv.AppendUint(b, uint64(rec.Number), 10)
		b = appendHex(append(b, " offset "...), rec.Offset)
		b = strconv.AppendInt(append(b, " size "...), int64(rec.Size), 10)
		b = appendHex(append(b, " value "...), rec.Value)
	case Note:
		b = strconv.AppendQuote(append(b, "note "...), rec.Text)
	default:
		b = append(b, rec.Kind.String()...)
	}
	b = append(b, '\n')
	b = appendDump(b, rec, data)
	return appendAttributes(b, rec, data)
}

// appendAttributes writes what belongs to a record besides its head and dump, a line each.
func appendAttributes(b []byte, rec *Record, data []byte) []byte {
	if len(data)%dumpLine != 0 {
		b = strconv.AppendInt(append(b, "  size "...), int64(len(data)), 10)
		b = append(b, '\n')
	}
	if rec.Length > len(data) {
		b = strconv.AppendInt(append(b, "  length "...), int64(rec.Length), 10)
		b = append(b, '\n')
	}
	if rec.Delivery != 0 {
		b = appendHex(append(b, "  delivery "...), uint64(rec.Delivery))
		b = append(b, '\n')
	}
	if rec.Text != "" && rec.Kind != Note {
		b = strconv.AppendQuote(append(b, "  why "...), rec.Text)
		b = append(b, '\n')
	}
	return b
}

// appendTime writes seconds and nanoseconds as the kernel's log does.
func appendTime(b []byte, t time.Duration) []byte {
	if t < 0 {
		t = 0
	}
	b = append(b, '[')
	sec := strconv.AppendInt(make([]byte, 0, 24), int64(t/time.Second), 10)
	for i := len(sec); i < 5; i++ {
		b = append(b, ' ')
	}
	b = append(append(b, sec...), '.')
	ns := int64(t % time.Second)
	for unit := int64(100_000_000); unit > 0; unit /= 10 {
		b = append(b, byte('0'+ns/unit%10))
	}
	return append(b, "] "...)
}

// appendCommand writes what Linux's dump_command writes above a command's data.
func appendCommand(b []byte, rec *Record) []byte {
	b = append(b, "cmd["...)
	b = strconv.AppendInt(b, int64(rec.Slot), 10)
	b = append(b, "]: dump command data"...)
	b = appendNamed(b, opcodeName(rec.Opcode), uint64(rec.Opcode))
	if rec.Kind == CommandIn {
		return append(b, " INPUT"...)
	}
	return append(b, " OUTPUT"...)
}

// appendNamed writes " NAME(0x12)".
func appendNamed(b []byte, name string, v uint64) []byte {
	b = append(append(b, ' '), name...)
	b = appendHex(append(b, '('), v)
	return append(b, ')')
}

func appendHex(b []byte, v uint64) []byte {
	return strconv.AppendUint(append(b, "0x"...), v, 16)
}

// dumpLine is how many bytes a line of a dump holds.
const dumpLine = 16

// appendDump writes data in lines of four dwords, as dump_buf does: a last line that is not full ends in
// zeros, and an attribute tells the size.
func appendDump(b []byte, rec *Record, data []byte) []byte {
	for off := 0; off < len(data); off += dumpLine {
		if rec.Kind == Event {
			b = append(b, "eqe["...)
			b = strconv.AppendUint(b, uint64(rec.Number), 10)
			b = appendDigits(append(b, "] "...), uint64(off), 3)
		} else {
			b = append(b, "cmd["...)
			b = strconv.AppendInt(b, int64(rec.Slot), 10)
			b = appendDigits(append(b, "]: "...), uint64(off), 3)
			b = append(b, ':')
		}
		var row [dumpLine]byte
		copy(row[:], data[off:])
		for i := 0; i < dumpLine; i += 4 {
			b = appendDigits(append(b, ' '), uint64(binary.BigEndian.Uint32(row[i:])), 8)
		}
		b = append(b, '\n')
	}
	return b
}

// appendDigits writes at least n hexadecimal digits.
func appendDigits(b []byte, v uint64, n int) []byte {
	const digits = "0123456789abcdef"
	for v>>(4*n) != 0 {
		n++
	}
	for i := n - 1; i >= 0; i-- {
		b = append(b, digits[v>>(4*i)&0xf])
	}
	return b
}
