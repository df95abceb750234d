package study

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestResultLinesAreReadAndChecked(t *testing.T) {
	name, value, err := result(`@result "hist /tmp/a b" [1,2]`)
	if err != nil || name != "hist /tmp/a b" || string(value) != "[1,2]" {
		t.Errorf("got %q %s %v", name, value, err)
	}
	if name, value, err = result(`@result kernel "6.12 #1"`); err != nil || name != "kernel" || string(value) != `"6.12 #1"` {
		t.Errorf("got %q %s %v", name, value, err)
	}
	for _, bad := range []string{"@result ", "@result a", "@result a {", `@result "a`, `@result "" 1`} {
		if _, _, err := result(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
	r := Results{"n": value}
	var n int
	if r.Get("n", &n) == nil || r.Get("m", &n) == nil {
		t.Error("a text is no number, and there is no m: no error")
	}
}

func TestNumbersAndTimesAreShort(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", -100: "-100"} {
		if got := Grouped(n); got != want {
			t.Errorf("Grouped(%d) = %q, want %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]time.Duration{0: 0, 999: 999, 1234: 1230, 98765 * time.Millisecond: 98800 * time.Millisecond, -1234: -1230} {
		if got := Round3(d); got != want {
			t.Errorf("Round3(%v) = %v, want %v", d, got, want)
		}
	}
}

func TestAReportGoesToItsFile(t *testing.T) {
	out := filepath.Join(t.TempDir(), "report.md")
	write := func(w io.Writer) error { _, err := io.WriteString(w, "text"); return err }
	if err := Report(out, write); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(out); err != nil || string(b) != "text" {
		t.Errorf("%q, %v", b, err)
	}
	if err := Report(filepath.Join(out, "nowhere"), write); err == nil {
		t.Error("a report without a place was taken")
	}
	broken := errors.New("broken")
	if err := Report(out, func(io.Writer) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}
