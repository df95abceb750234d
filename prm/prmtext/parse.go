package prmtext

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"

	"cxkit/prm"
)

// ParseError is a mistake in a log.
type ParseError struct {
	Line int // from 1
	Msg  string
}

// Error names the line.
func (e *ParseError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Msg) }

// maxLine bounds the length of a line. Longer lines are an error.
const maxLine = 1 << 16

// Parse reads all command dumps in a log. Lines that belong to no dump are passed over; a dump that breaks off or whose
// offsets do not follow each other is an error.
func Parse(r io.Reader) ([]*Dump, error) {
	p := &parser{open: map[int]*building{}}
	scan := bufio.NewScanner(r)
	scan.Buffer(make([]byte, 0, 4096), maxLine)
	for scan.Scan() {
		p.line++
		if err := p.take(scan.Text()); err != nil {
			return p.dumps, err
		}
	}
	if err := scan.Err(); err != nil {
		return p.dumps, &ParseError{p.line + 1, err.Error()}
	}
	return p.dumps, p.closeAll()
}

// parser holds the dumps that are being read, by slot: newer kernels interleave them.
type parser struct {
	line  int
	dumps []*Dump
	open  map[int]*building
}

// building is a dump of which some lines have been read.
type building struct {
	d     *Dump
	bytes []byte
}

func (p *parser) errorf(format string, args ...any) error {
	return &ParseError{p.line, fmt.Sprintf(format, args...)}
}

// take reads one line.
func (p *parser) take(line string) error {
	slot, text := cutSlot(line)
	if head, ok := cutHead(text); ok {
		d, err := parseHead(head)
		if err != nil {
			return p.errorf("%v", err)
		}
		d.Line, d.Slot = p.line, slot
		return p.start(slot, d)
	}
	offset, b, ok := parseHexLine(text)
	if !ok {
		return nil
	}
	cur := p.open[slot]
	if cur == nil || (offset == 0 && len(cur.bytes) > 0) {
		if offset != 0 {
			return p.errorf("offset %#x without a dump before it", offset)
		}
		if err := p.start(slot, &Dump{Line: p.line, Slot: slot}); err != nil {
			return err
		}
		cur = p.open[slot]
	}
	if offset != len(cur.bytes) {
		return p.errorf("offset %#x follows %#x bytes", offset, len(cur.bytes))
	}
	cur.bytes = append(cur.bytes, b[:]...)
	return nil
}

func (p *parser) start(slot int, d *Dump) error {
	if err := p.finish(slot); err != nil {
		return err
	}
	p.open[slot] = &building{d: d}
	p.dumps = append(p.dumps, d)
	return nil
}

// finish cuts the bytes of the slot's dump into entry and blocks.
func (p *parser) finish(slot int) error {
	cur := p.open[slot]
	if cur == nil {
		return nil
	}
	delete(p.open, slot)
	d, b := cur.d, cur.bytes
	if d.Data {
		d.Raw = b
		return nil
	}
	if len(b) < prm.CmdEntrySize {
		return &ParseError{d.Line, fmt.Sprintf("dump of %#x bytes, an entry has %#x", len(b), prm.CmdEntrySize)}
	}
	copy(d.Entry[:], b)
	b = b[prm.CmdEntrySize:]
	if len(b)%prm.MailboxSize != 0 {
		return &ParseError{d.Line, fmt.Sprintf("block %d has %#x bytes, want %#x", len(b)/prm.MailboxSize, len(b)%prm.MailboxSize, prm.MailboxSize)}
	}
	for ; len(b) > 0; b = b[prm.MailboxSize:] {
		d.Blocks = append(d.Blocks, [prm.MailboxSize]byte(b))
	}
	if d.Name == "" { // no head: the entry says which command, and who owns it
		d.Op = d.Opcode()
		d.Output = !(*prm.CmdEntry)(&d.Entry).Own()
	}
	return nil
}

func (p *parser) closeAll() error {
	var first error
	for _, d := range p.dumps { // in the order of the log, so that the first error is
		if cur := p.open[d.Slot]; cur != nil && cur.d == d {
			if err := p.finish(d.Slot); err != nil && first == nil {
				first = err
			}
		}
	}
	return first
}

// cutSlot removes what stands before "cmd[slot]: ", and that.
func cutSlot(line string) (slot int, rest string) {
	if before, after, ok := strings.Cut(line, "cmd["); ok && !strings.Contains(before, "dump command") {
		if num, text, ok := strings.Cut(after, "]: "); ok {
			if n, err := strconv.Atoi(num); err == nil && n >= 0 && n < 64 {
				return n, text
			}
		}
	}
	return -1, line
}

// cutHead finds a dump's first line: "dump command CREATE_CQ(0x400) INPUT".
func cutHead(text string) (head string, ok bool) {
	_, head, ok = strings.Cut(text, "dump command ")
	return head, ok
}

func parseHead(head string) (*Dump, error) {
	d := &Dump{}
	if rest, ok := strings.CutPrefix(head, "data "); ok {
		d.Data, head = true, rest
	}
	name, rest, ok1 := strings.Cut(head, "(0x")
	num, direction, ok2 := strings.Cut(rest, ") ")
	op, err := strconv.ParseUint(num, 16, 16)
	if !ok1 || !ok2 || err != nil || name == "" {
		return nil, fmt.Errorf("dump command %q: no opcode", head)
	}
	d.Name, d.Op = name, prm.Opcode(op)
	switch strings.TrimSpace(direction) {
	case "INPUT":
	case "OUTPUT":
		d.Output = true
	default:
		return nil, fmt.Errorf("dump command %q: neither INPUT nor OUTPUT", head)
	}
	return d, nil
}

// parseHexLine reads "010: 01030000 00000000 00000001 00000000", whatever dmesg put in front.
func parseHexLine(text string) (offset int, b [16]byte, ok bool) {
	words := strings.Fields(text)
	if len(words) < 5 {
		return 0, b, false
	}
	words = words[len(words)-5:]
	num, isOffset := strings.CutSuffix(words[0], ":")
	if !isOffset || len(num) < 3 || len(num) > 7 {
		return 0, b, false
	}
	v, err := strconv.ParseUint(num, 16, 32)
	if err != nil || v%16 != 0 {
		return 0, b, false
	}
	for i, w := range words[1:] {
		if len(w) != 8 {
			return 0, b, false
		}
		if _, err := hex.Decode(b[4*i:], []byte(w)); err != nil {
			return 0, b, false
		}
	}
	return int(v), b, true
}

// ParseHex reads bytes written in hexadecimal: a structure pasted from a log (offsets and dmesg's prefixes allowed, groups
// of any even number of digits) or digits alone.
func ParseHex(r io.Reader) ([]byte, error) {
	var out []byte
	scan := bufio.NewScanner(r)
	scan.Buffer(make([]byte, 0, 4096), maxLine)
	line := 0
	for scan.Scan() {
		line++
		text := scan.Text()
		if i := strings.LastIndex(text, "]"); i >= 0 {
			text = text[i+1:]
		}
		if i := strings.LastIndex(text, ":"); i >= 0 {
			text = text[i+1:]
		}
		for _, w := range strings.Fields(text) {
			b, err := hex.DecodeString(strings.TrimPrefix(w, "0x"))
			if err != nil {
				return nil, &ParseError{line, fmt.Sprintf("%q is not hexadecimal", w)}
			}
			out = append(out, b...)
		}
	}
	if err := scan.Err(); err != nil {
		return nil, &ParseError{line + 1, err.Error()}
	}
	return out, nil
}
