package ftrace

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Merged is a packet that GRO made of several segments.
type Merged struct {
	Segments int
	// Pages are how many different pages of 4 KiB its segments' buffers begin on.
	Pages int
}

// GRO reads a trace of three probes, on one processor: gro_in as skb_gro_receive begins (p, the packet; head, the
// segment's buffer; rest, what of it lies elsewhere), gro_out as it returns, and gro_done as inet_gro_complete
// begins (p; head, the first segment's buffer). A segment with data elsewhere is an error, as is a trace that lost
// events.
func GRO(r io.Reader, each func(Merged) error) error {
	packets := make(map[uint64][]uint64) // pages of segments that joined, by packet
	var packet, page uint64
	entered := false
	s := bufio.NewScanner(r)
	for s.Scan() {
		line := s.Text()
		if _, counts, ok := strings.Cut(line, "entries-in-buffer/entries-written: "); ok {
			counts, _, _ = strings.Cut(counts, " ")
			if kept, written, _ := strings.Cut(counts, "/"); kept != written {
				return fmt.Errorf("GRO: the trace lost events: %s", counts)
			}
			continue
		}
		switch {
		case strings.HasPrefix(line, "#") || line == "":
			continue
		case strings.Contains(line, " gro_in: "):
			var rest uint64
			if err := fields(line, map[string]*uint64{"p": &packet, "head": &page, "rest": &rest}); err != nil {
				return err
			}
			if rest > 0 || entered {
				return fmt.Errorf("GRO: %q: a segment in several pieces, or in the middle of another", line)
			}
			page >>= 12
			entered = true
		case strings.Contains(line, " gro_out: "):
			if !entered {
				return fmt.Errorf("GRO: %q: it did not begin", line)
			}
			entered = false
			if strings.HasSuffix(line, " ret=0") { // else it did not join
				packets[packet] = append(packets[packet], page)
			}
		case strings.Contains(line, " gro_done: "):
			if err := fields(line, map[string]*uint64{"p": &packet, "head": &page}); err != nil {
				return err
			}
			joined := packets[packet]
			delete(packets, packet)
			pages := map[uint64]bool{page >> 12: true}
			for _, p := range joined {
				pages[p] = true
			}
			if err := each(Merged{Segments: len(joined) + 1, Pages: len(pages)}); err != nil {
				return err
			}
		default:
			return fmt.Errorf("GRO: %q is of no probe", line)
		}
	}
	return s.Err()
}

// fields reads NAME=NUMBER of a line.
func fields(line string, into map[string]*uint64) error {
	found := 0
	for word := range strings.FieldsSeq(line) {
		name, text, ok := strings.Cut(word, "=")
		v := into[name]
		if !ok || v == nil {
			continue
		}
		n, err := strconv.ParseUint(text, 0, 64)
		if err != nil {
			return fmt.Errorf("GRO: %q: %q is no number", line, word)
		}
		*v = n
		found++
	}
	if found != len(into) {
		return fmt.Errorf("GRO: %q: %d values, want %d", line, found, len(into))
	}
	return nil
}
