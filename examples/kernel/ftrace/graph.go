package ftrace

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// Call is a call that the function_graph tracer saw the end of.
type Call struct {
	// Name is the function's, without its module.
	Name string
	// Depth is how many traced calls it is in.
	Depth int
	// Took is how long it took; what the tracer itself costs is in it.
	Took time.Duration
	// At is when it ended, by the trace's clock; of a call that calls nothing else that is traced it is when it
	// began. 0 without the option funcgraph-abstime.
	At time.Duration
}

// maxDepth bounds how deep calls lie in one another; the kernel's tracer gives up at 50.
const maxDepth = 64

// Graph reads the trace file of the function_graph tracer on one processor and calls f with each call, when it
// ends. Calls that had begun before the trace did are left out.
func Graph(r io.Reader, f func(Call) error) error {
	var open []string
	s := bufio.NewScanner(r)
	for n := 1; s.Scan(); n++ {
		head, body, ok := strings.Cut(s.Text(), "|")
		if !ok || strings.HasPrefix(strings.TrimSpace(head), "#") {
			continue
		}
		at, stamped := clock(head)
		if stamped {
			if head, body, ok = strings.Cut(body, "|"); !ok {
				continue
			}
		}
		took, timed, err := duration(head)
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		body = strings.TrimSpace(body)
		switch {
		case strings.HasSuffix(body, "{"):
			if len(open) >= maxDepth {
				return fmt.Errorf("line %d: more than %d calls in one another", n, maxDepth)
			}
			open = append(open, function(body))
		case strings.HasPrefix(body, "}"):
			if len(open) == 0 {
				continue
			}
			name := open[len(open)-1]
			open = open[:len(open)-1]
			if err := f(Call{Name: name, Depth: len(open), Took: took, At: at}); err != nil {
				return err
			}
		case strings.HasSuffix(body, ";") && timed:
			if err := f(Call{Name: function(body), Depth: len(open), Took: took, At: at}); err != nil {
				return err
			}
		}
	}
	return s.Err()
}

// clock reads "  198.784512 ", seconds of the trace's clock.
func clock(head string) (at time.Duration, ok bool) {
	s, err := strconv.ParseFloat(strings.TrimSpace(head), 64)
	if err != nil || !(s >= 0 && s < math.MaxInt64/1e9) {
		return 0, false
	}
	return time.Duration(math.Round(s * 1e9)), true
}

// duration reads " 0) ! 212.069 us  ": the processor, a mark of long times, and the time, if there is one.
func duration(head string) (took time.Duration, ok bool, err error) {
	_, rest, _ := strings.Cut(head, ")")
	fields := strings.Fields(rest)
	if len(fields) > 0 && strings.Trim(fields[0], "+!#*@$") == "" {
		fields = fields[1:]
	}
	if len(fields) != 2 || fields[1] != "us" {
		return 0, false, nil // a beginning, or an interrupt's arrow
	}
	us, err := strconv.ParseFloat(fields[0], 64)
	if err != nil || !(us >= 0 && us < math.MaxInt64/1000) {
		return 0, false, fmt.Errorf("%q is no time in us", fields[0])
	}
	return time.Duration(math.Round(us * 1000)), true, nil
}

// function is the name in "reclaim_pages [mlx5_core]() {" and "dma_pool_free();".
func function(body string) string {
	name, _, _ := strings.Cut(body, "(")
	name, _, _ = strings.Cut(name, " [")
	return strings.TrimSpace(name)
}
