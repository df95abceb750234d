package ftrace

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Entry is a row of a hist trigger's table.
type Entry struct {
	// Key is what lies between the braces, as the kernel prints it, with single spaces.
	Key string
	// Hits is how many events had it, Sums the sums of their values.
	Hits uint64
	Sums map[string]uint64
}

// Trigger reads the hist file of an event: its rows, and how many events it dropped for want of room.
//
// Values of a row are "name: number".
func Trigger(r io.Reader) (entries []Entry, dropped uint64, err error) {
	s := bufio.NewScanner(r)
	for s.Scan() {
		line := strings.TrimSpace(s.Text())
		if count, ok := strings.CutPrefix(line, "Dropped:"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(count), 10, 64)
			if err != nil {
				return nil, 0, fmt.Errorf("hist trigger: %q: %w", line, err)
			}
			dropped += n
			continue
		}
		key, values, _ := strings.Cut(line, "}")
		key, ok := strings.CutPrefix(key, "{")
		if !ok {
			continue
		}
		e := Entry{Key: strings.Join(strings.Fields(key), " ")}
		fields := strings.Fields(values)
		hits := false
		for i := 0; i+1 < len(fields); i += 2 {
			n, err := strconv.ParseUint(fields[i+1], 10, 64)
			name, ok := strings.CutSuffix(fields[i], ":")
			switch {
			case err != nil || !ok:
				return nil, 0, fmt.Errorf("hist trigger: %q: %q is no value", line, fields[i]+" "+fields[i+1])
			case name == "hitcount":
				e.Hits, hits = n, true
			case e.Sums == nil:
				e.Sums = map[string]uint64{name: n}
			default:
				e.Sums[name] = n
			}
		}
		if !hits {
			return nil, 0, fmt.Errorf("hist trigger: %q has no hitcount", line)
		}
		entries = append(entries, e)
	}
	return entries, dropped, s.Err()
}

// PowerOfTwo reads the key of a table by log2, "lat: ~ 2^17": values above 1<<16 to 1<<17.
func PowerOfTwo(key string) (exponent int, err error) {
	_, text, ok := strings.Cut(key, "~ 2^")
	if !ok {
		return 0, fmt.Errorf("hist trigger: %q is no power of two", key)
	}
	exponent, err = strconv.Atoi(text)
	if err != nil || exponent < 0 || exponent > 63 {
		return 0, fmt.Errorf("hist trigger: %q is no power of two", key)
	}
	return exponent, nil
}
