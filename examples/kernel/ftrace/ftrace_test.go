package ftrace

import (
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// recorded is a trace that Linux 6.12 made in a guest of ours, without most of its frees.
func recorded(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("testdata/reclaim-6.12.trace")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func calls(t *testing.T, trace string) (all []Call) {
	t.Helper()
	if err := Graph(strings.NewReader(trace), func(c Call) error { all = append(all, c); return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestGraphReadsCallsInOneAnother(t *testing.T) {
	all := calls(t, recorded(t))
	if len(all) != 10 {
		t.Fatalf("%d calls, want 8 frees, mlx5_cmd_do and reclaim_pages: %v", len(all), all)
	}
	for i, want := range map[int]Call{
		0: {Name: "dma_pool_free", Depth: 2, Took: 212069},
		1: {Name: "dma_pool_free", Depth: 2, Took: 2719},
		8: {Name: "mlx5_cmd_do", Depth: 1, Took: 4957617},
		9: {Name: "reclaim_pages", Depth: 0, Took: 35280220},
	} {
		if all[i] != want {
			t.Errorf("call %d is %+v, want %+v", i, all[i], want)
		}
	}
}

func TestGraphReadsTheTraceClock(t *testing.T) {
	all := calls(t, `#     TIME        CPU  DURATION                  FUNCTION CALLS
   61.234567 |   0)               |  reclaim_pages [mlx5_core]() {
   61.235000 |   0)   1.500 us    |    dma_pool_free();
   61.240067 |   0) # 5500.100 us |  } /* reclaim_pages [mlx5_core] */
`)
	want := []Call{
		{Name: "dma_pool_free", Depth: 1, Took: 1500, At: 61235 * time.Millisecond},
		{Name: "reclaim_pages", Took: 5500100, At: 61240067 * time.Microsecond},
	}
	if !slices.Equal(all, want) {
		t.Errorf("got %+v, want %+v", all, want)
	}
}

func TestGraphLeavesOutWhatHadBegunBefore(t *testing.T) {
	if all := calls(t, " 0)   9.000 us    |  }\n 0)   ==========> |\n 0)   2.000 us    |  dma_pool_free();\n"); len(all) != 1 || all[0].Took != 2000 {
		t.Errorf("got %+v, want the call of dma_pool_free alone", all)
	}
}

func TestGraphRefusesWhatIsNoTrace(t *testing.T) {
	nothing := func(Call) error { return nil }
	for name, trace := range map[string]string{
		"time":  " 0)   nan us    |  dma_pool_free();\n",
		"big":   " 0)   1e300 us    |  dma_pool_free();\n",
		"depth": strings.Repeat(" 0)               |  a() {\n", maxDepth+1),
	} {
		if err := Graph(strings.NewReader(trace), nothing); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	stop := errors.New("stop")
	if err := Graph(strings.NewReader(recorded(t)), func(Call) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v, want the visitor's error", err)
	}
}

func TestHistogramCountsInPowersOfTwo(t *testing.T) {
	var h Histogram
	if h.Mean() != 0 || h.Quantile(0.5) != 0 {
		t.Errorf("an empty histogram has the mean %v and the median %v", h.Mean(), h.Quantile(0.5))
	}
	for _, d := range []time.Duration{-1, 0, 1, 1023, 1024, 2047, 2048, 1 << 62} {
		h.Add(d)
	}
	for bin, want := range map[int]int{0: 3, 9: 1, 10: 2, 11: 1, 62: 1} {
		if h.Bins[bin] != want {
			t.Errorf("bin %d holds %d, want %d", bin, h.Bins[bin], want)
		}
	}
	if h.N != 8 || h.Max != 1<<62 || h.Quantile(0.5) != 1024 || h.Quantile(1) != 1<<62 {
		t.Errorf("%d times, the longest %v, half below %v, all below %v", h.N, h.Max, h.Quantile(0.5), h.Quantile(1))
	}
}

const table = `# event histogram
#
# trigger info: hist:keys=common_pid:vals=hitcount:sort=hitcount:size=2048 [active]
#

{ work: 00000000c0ffee00, function: [ffffffffc0a1b2c0] cmd_work_handler                            [mlx5_core]        } hitcount:       1203
{ function: pages_work_handler [mlx5_core] } hitcount: 7  lat: 18

Totals:
    Hits: 1210
    Entries: 2
    Dropped: 3
`

func TestTriggerReadsRows(t *testing.T) {
	entries, dropped, err := Trigger(strings.NewReader(table))
	want := []Entry{
		{Key: "work: 00000000c0ffee00, function: [ffffffffc0a1b2c0] cmd_work_handler [mlx5_core]", Hits: 1203},
		{Key: "function: pages_work_handler [mlx5_core]", Hits: 7, Sums: map[string]uint64{"lat": 18}},
	}
	if err != nil || dropped != 3 || !reflect.DeepEqual(entries, want) {
		t.Errorf("got %+v, %d dropped, %v; want %+v, 3 dropped", entries, dropped, err, want)
	}
	for _, bad := range []string{"{ a: 1 }", "{ a: 1 } hitcount:", "{ a: 1 } hitcount: -1", "Dropped: x"} {
		if _, _, err := Trigger(strings.NewReader(bad)); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestPowersOfTwoAreRead(t *testing.T) {
	if n, err := PowerOfTwo("lat: ~ 2^17"); n != 17 || err != nil {
		t.Errorf("got %d, %v, want 17", n, err)
	}
	for _, bad := range []string{"", "lat: 17", "lat: ~ 2^", "lat: ~ 2^64", "lat: ~ 2^-1"} {
		if n, err := PowerOfTwo(bad); err == nil {
			t.Errorf("%q: no error, but %d", bad, n)
		}
	}
}

func FuzzTracerOutput(f *testing.F) {
	f.Add(table)
	f.Add("   61.235000 |   0) + 12.500 us   |    dma_pool_free();\n 0)  |  a() {\n 0)  # 1.0 us |  }\n")
	f.Fuzz(func(t *testing.T, text string) {
		lines := strings.Count(text, "\n") + 1
		n := 0
		_ = Graph(strings.NewReader(text), func(c Call) error {
			if n++; c.Took < 0 || c.At < 0 || c.Depth < 0 || c.Depth > maxDepth {
				t.Errorf("call %+v", c)
			}
			return nil
		})
		if entries, _, _ := Trigger(strings.NewReader(text)); n > lines || len(entries) > lines {
			t.Errorf("%d calls and %d rows in %d lines", n, len(entries), lines)
		}
	})
}
