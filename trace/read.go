package trace

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

const (
	// maxLine bounds a line of a trace; a why text is the only long thing in one.
	maxLine = 1 << 20
	// maxData bounds the data of one record: the longest command there is, MANAGE_PAGES with 2^32 page
	// addresses, does not fit a command's length field, whose 32 bits nobody fills.
	maxData = 64 << 20
)

// TextError is a line of a trace that can't be read.
type TextError struct {
	Line int // from 1
	Why  string
}

func (e *TextError) Error() string { return fmt.Sprintf("trace line %d: %s", e.Line, e.Why) }

// Read reads a trace in text form. On an error it also returns the records before it; the error is a
// *TextError where the text is at fault. Empty lines and lines that begin with # are skipped.
func Read(r io.Reader) ([]Record, error) {
	scan := bufio.NewScanner(r)
	scan.Buffer(make([]byte, 0, 4096), maxLine)
	var records []Record
	for n := 1; scan.Scan(); n++ {
		line := strings.TrimRight(scan.Text(), "\r")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			rec, err := parseHead(line)
			if err != nil {
				return finish(records), &TextError{n, err.Error()}
			}
			rec.Seq = uint64(len(records))
			records = append(records, rec)
		default:
			if len(records) == 0 {
				return nil, &TextError{n, "data before the first record"}
			}
			if err := parseMore(&records[len(records)-1], line); err != nil {
				return finish(records), &TextError{n, err.Error()}
			}
		}
	}
	if err := scan.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			return finish(records), &TextError{0, fmt.Sprintf("a line is longer than %d bytes", maxLine)}
		}
		return finish(records), err
	}
	return finish(records), nil
}

// finish sets the length of the records whose head did not name one.
func finish(records []Record) []Record {
	for i := range records {
		records[i].Length = max(records[i].Length, len(records[i].Data))
	}
	return records
}

// words takes a line apart. The first failure stays and later calls give zero values.
type words struct {
	rest string
	err  error
}

func (w *words) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

// upTo returns what precedes sep and skips both.
func (w *words) upTo(sep string) string {
	before, after, ok := strings.Cut(w.rest, sep)
	if w.err != nil || !ok {
		w.fail("%q missing in %.40q", sep, w.rest)
		return ""
	}
	w.rest = after
	return before
}

// has skips s if it comes next.
func (w *words) has(s string) bool {
	rest, ok := strings.CutPrefix(w.rest, s)
	if ok && w.err == nil {
		w.rest = rest
		return true
	}
	return false
}

// number parses s, in base 10 or with a leading 0x, below 2^bits.
func (w *words) number(s string, bits int) uint64 {
	v, err := strconv.ParseUint(s, 0, bits)
	if err != nil {
		w.fail("%.40q is not a number of %d bits", s, bits)
		return 0
	}
	return v
}

// next parses the number up to the next space or the end.
func (w *words) next(bits int) uint64 {
	s, rest, ok := strings.Cut(w.rest, " ")
	w.rest = rest
	if ok {
		w.rest = " " + rest
	}
	return w.number(s, bits)
}

func parseHead(line string) (Record, error) {
	w := &words{rest: line}
	var rec Record
	w.upTo("[")
	sec, frac, _ := strings.Cut(strings.TrimSpace(w.upTo("] ")), ".")
	rec.Time = time.Duration(w.number(decimal(sec), 33)) * time.Second
	if len(frac) != 9 {
		w.fail("time has no nine decimals")
	}
	rec.Time += time.Duration(w.number(decimal(frac), 30))
	switch s := w.upTo(" "); s {
	case "driver":
		rec.Side = Driver
	case "device":
		rec.Side = Device
	default:
		w.fail("unknown side %.20q", s)
	}
	rec.Function = w.upTo(": ")
	switch {
	case w.has("cmd["):
		parseCommand(w, &rec)
	case w.has("event eqn "):
		rec.Kind, rec.Number = Event, uint32(w.next(32))
		if w.has(" type ") {
			w.upTo("(")
			w.number(w.upTo(")"), 8)
		}
	case w.has("doorbell "):
		rec.Kind, rec.Bell = Doorbell, w.bell()
		rec.Number = uint32(w.next(32))
		w.expect(" value ")
		rec.Value = w.next(64)
	case w.has("write bar "):
		rec.Kind, rec.Number = Register, uint32(w.next(8))
		w.expect(" offset ")
		rec.Offset = w.next(64)
		w.expect(" size ")
		rec.Size = int(w.next(8))
		w.expect(" value ")
		rec.Value = w.next(64)
	case w.has("note "):
		rec.Kind, rec.Text = Note, w.quoted()
	default:
		w.fail("unknown record %.40q", w.rest)
	}
	if w.rest != "" {
		w.fail("unexpected %.40q", w.rest)
	}
	return rec, w.err
}

// decimal guards a number that is decimal even with leading zeros from base detection.
func decimal(s string) string {
	if t := strings.TrimLeft(s, "0"); t != "" && t[0] >= '0' && t[0] <= '9' {
		return t
	} else if t == "" && s != "" {
		return "0"
	}
	return "x" + s
}

func (w *words) expect(s string) {
	if !w.has(s) {
		w.fail("%q missing before %.40q", s, w.rest)
	}
}

func (w *words) bell() Bell {
	name := w.upTo(" ")
	for b, s := range bellNames {
		if s == name && s != "" {
			return Bell(b)
		}
	}
	w.fail("unknown doorbell %.20q", name)
	return 0
}

func parseCommand(w *words, rec *Record) {
	rec.Slot = int(w.number(w.upTo("]: dump command data "), 31))
	w.upTo("(")
	rec.Opcode = uint16(w.number(w.upTo(") "), 16))
	switch {
	case w.has("INPUT"):
		rec.Kind = CommandIn
	case w.has("OUTPUT"):
		rec.Kind = CommandOut
	default:
		w.fail("neither INPUT nor OUTPUT: %.40q", w.rest)
	}
}

// quoted takes the rest of the line as a Go string.
func (w *words) quoted() string {
	text, err := strconv.Unquote(w.rest)
	if err != nil || w.rest[0] != '"' {
		w.fail("%.40q is not a quoted text", w.rest)
		return ""
	}
	w.rest = ""
	return text
}

// parseMore reads a line that belongs to a record: data or an attribute.
func parseMore(rec *Record, line string) error {
	w := &words{rest: line}
	switch {
	case w.has("  size "):
		n := int(w.next(31))
		if have := len(rec.Data); n > have || n <= have-dumpLine || n%dumpLine == 0 {
			w.fail("size %d of %d bytes", n, have)
		} else {
			rec.Data = rec.Data[:n]
		}
	case w.has("  length "):
		rec.Length = int(w.next(31))
		if rec.Length <= len(rec.Data) {
			w.fail("length %d of %d bytes", rec.Length, len(rec.Data))
		}
	case w.has("  delivery ") && rec.Kind == CommandOut:
		rec.Delivery = uint8(w.next(8))
	case w.has("  why ") && rec.Kind != Note:
		rec.Text = w.quoted()
	default:
		parseData(w, rec)
	}
	if w.rest != "" {
		w.fail("unexpected %.40q", w.rest)
	}
	return w.err
}

// parseData reads "cmd[3]: 010: 00000000 ..." or "eqe[4] 010 ...", which must continue the record.
func parseData(w *words, rec *Record) {
	var off uint64
	switch rec.Kind {
	case CommandIn, CommandOut:
		w.expect("cmd[")
		if slot := w.number(w.upTo("]: "), 31); w.err == nil && int(slot) != rec.Slot {
			w.fail("data of slot %d in a record of slot %d", slot, rec.Slot)
		}
		off = w.number("0x"+w.upTo(": "), 31)
	case Event:
		w.expect("eqe[")
		if eqn := w.number(w.upTo("] "), 32); w.err == nil && uint32(eqn) != rec.Number {
			w.fail("data of eqn %d in a record of eqn %d", eqn, rec.Number)
		}
		off = w.number("0x"+w.upTo(" "), 31)
	default:
		w.fail("a %s has no data", rec.Kind)
	}
	switch {
	case w.err == nil && (off%dumpLine != 0 || int(off) != len(rec.Data)):
		w.fail("offset %#x where %#x is due", off, len(rec.Data))
	case len(rec.Data) >= maxData:
		w.fail("more than %d bytes of data", maxData)
	}
	row, ok := parseRow(w.rest)
	if !ok {
		w.fail("%.40q is not a line of four dwords", w.rest)
	}
	if w.err == nil {
		rec.Data = append(rec.Data, row[:]...)
		w.rest = ""
	}
}

// parseRow reads "01040000 00000000 00000000 00000000".
func parseRow(s string) (row [dumpLine]byte, ok bool) {
	words := strings.Split(s, " ")
	if len(words) != dumpLine/4 {
		return row, false
	}
	for i, word := range words {
		if len(word) != 8 {
			return row, false
		}
		if _, err := hex.Decode(row[4*i:], []byte(word)); err != nil {
			return row, false
		}
	}
	return row, true
}
