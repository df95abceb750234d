package rxpages

import (
	"testing"

	"cxkit/lab"
)

// The thread's counts, exactly: 45 pages to 23 and to 2.05, a ring's memory the same and a 21st.
func TestCountsAreTheThreads(t *testing.T) {
	r, err := lab.Do(t.Context(), Experiment(), lab.Options{Set: map[string]string{"ring": "256", "packets": "42", "table": "4"}, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	before, after := &r.Comparison.Before.Rows, &r.Measured.Rows
	for i, want := range []struct{ before, after, keptBefore, keptAfter float64 }{{45, 23, 256, 256}, {45, 86.0 / 42, 256, 13}} {
		if before.Float(i, colPer) != want.before || after.Float(i, colPer) != want.after {
			t.Errorf("row %d: %v pages before, %v after; want %v, %v", i, before.Float(i, colPer), after.Float(i, colPer), want.before, want.after)
		}
		if before.Float(i, colKept) != want.keptBefore || after.Float(i, colKept) != want.keptAfter {
			t.Errorf("row %d: %v pages kept before, %v after; want %v, %v", i, before.Float(i, colKept), after.Float(i, colKept), want.keptBefore, want.keptAfter)
		}
	}
	row := after.Rows[0]
	if by := row[len(row)-1]; by != "hugetlb" && by != "madvise" && (by != "none" || after.Float(0, colHuge) != 0) {
		t.Errorf("huge pages by %v, %v ns", by, after.Float(0, colHuge))
	}
	if after.Float(0, colSmall) == 0 {
		t.Error("touching records took no time")
	}
	if after.Float(1, colMost) != 3 {
		t.Errorf("at most %v pages of 64 KiB, want 3", after.Float(1, colMost))
	}
}

// Packets of 45 segments of a real connection, with what came between: fewer pages than segments, and by the
// fragments as many as by the places of their frames.
func TestCaptureIsReceived(t *testing.T) {
	set := map[string]string{"ring": "256", "page": "4", "packets": "10", "table": "2", "capture": "../../../testdata/captures/iperf.pcapng"}
	r, err := lab.Do(t.Context(), Experiment(), lab.Options{Set: set, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if per := r.Measured.Rows.Float(0, colPer); per < 23 || per > 40 {
		t.Errorf("%v pages a packet", per)
	}
	if per := r.Comparison.Before.Rows.Float(0, colPer); per != 45 {
		t.Errorf("%v pages a packet with one for each slot", per)
	}
	set["capture"] = "../../../testdata/captures/ping.pcap"
	if _, err := lab.Do(t.Context(), Experiment(), lab.Options{Set: set, Seed: 1}); err == nil {
		t.Error("a capture without packets of 45 segments was taken")
	}
	set["capture"] = "rxpages.go"
	if _, err := lab.Do(t.Context(), Experiment(), lab.Options{Set: set, Seed: 1}); err == nil {
		t.Error("a file that is no capture was taken")
	}
}

// Other numbers of segments count as exactly.
func TestSegmentsOfAPacket(t *testing.T) {
	for segments, want := range map[string]float64{"2": 1, "20": 10, "31": 16} {
		r, err := lab.Do(t.Context(), Experiment(), lab.Options{Set: map[string]string{"ring": "64", "table": "2", "page": "4", "packets": "9", "segments": segments}, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Measured.Rows.Float(0, colPer); got != want {
			t.Errorf("%s segments lie on %v pages, want %v", segments, got, want)
		}
	}
}
