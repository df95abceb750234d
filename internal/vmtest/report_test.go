package vmtest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestReportPassesTheCommandsOutputAndNoMore(t *testing.T) {
	for name, output := range map[string]string{
		"lines":           "one\ntwo\n",
		"no end of line":  "one\ntwo",
		"nothing":         "",
		"one empty line":  "\n",
		"empty lines":     "\n\n\n",
		"claims its end":  "cxkit-other exit 0 1.0\n cxkit-n exit 0 1.0\n",
		"a very long one": strings.Repeat("x", 3*maxReportLine) + "\ny",
	} {
		stream := "cxkit-n begin 1.25\r\n" + output + "\ncxkit-n exit 7 3.50\nshutting down\n"
		for _, piece := range []int{1, 3, 7, len(stream)} {
			var out bytes.Buffer
			r := report{nonce: "cxkit-n", out: &out}
			for p := range slices.Chunk([]byte(stream), piece) {
				r.Write(p)
			}
			r.flush()
			if out.String() != output {
				t.Errorf("%s, in pieces of %d: %.80q, want %.80q", name, piece, out.String(), output)
			}
			if !r.began || !r.ended || r.status != 7 || r.begin != 1250*time.Millisecond || r.end != 3500*time.Millisecond {
				t.Errorf("%s: %+v", name, r)
			}
		}
	}
}

func TestReportWithoutAnEndIsNone(t *testing.T) {
	var out bytes.Buffer
	r := report{nonce: "cxkit-n", out: &out}
	r.Write([]byte("cxkit-n begin 1\ncxkit-n exit seven 2\ncxkit-n exit 0"))
	r.flush()
	if !r.began || r.ended {
		t.Errorf("%+v", r)
	}
}

func TestKTAP(t *testing.T) {
	var k ktap
	for line := range strings.Lines(`TAP version 13
1..5
    KTAP version 1
    ok 1 inner
    not ok 2 inner that fails
not ok 1 suite
ok 2 fine
ok 3 other # SKIP no hardware
not ok 4 known # XFAIL
# # not ok 3 case
# ok 1 nested
ok: not a result
okay 1
not ok yet
ok 5 last
`) {
		k.line(strings.TrimSuffix(line, "\n"))
	}
	if k.Pass != 2 || k.Fail != 1 || k.Skip != 2 {
		t.Errorf("%d passed, %d failed, %d skipped; want 2, 1, 2", k.Pass, k.Fail, k.Skip)
	}
	if want := []string{"not ok 2 inner that fails", "not ok 1 suite", "# # not ok 3 case"}; !slices.Equal(k.Failed, want) {
		t.Errorf("failures %q, want %q", k.Failed, want)
	}
	if k.Err() == nil {
		t.Error("no error")
	}
	if (KTAP{Pass: 3, Skip: 1}).Err() != nil {
		t.Error("an error without a failure")
	}
}

func TestTailKeepsTheEndFromTheBeginningOfALine(t *testing.T) {
	var next bytes.Buffer
	c := tail{next: &next}
	for i := range 10_000 {
		fmt.Fprintf(&c, "line %d\r\n", i)
	}
	text := c.text()
	if len(text) > tailSize || len(text) < tailSize/2 {
		t.Errorf("%d bytes are kept", len(text))
	}
	if !strings.HasPrefix(text, "line ") || !strings.HasSuffix(text, "line 9999\n") || strings.Contains(text, "\r") {
		t.Errorf("the end begins with %q and ends with %q", text[:20], text[len(text)-20:])
	}
	if !strings.Contains(next.String(), "line 0\r\n") || !strings.HasSuffix(next.String(), "line 9999\r\n") {
		t.Error("not everything was passed on")
	}
}

func TestWatchSeesTextInPieces(t *testing.T) {
	found := 0
	w := watch{text: "KVM internal error", found: func() { found++ }}
	for _, piece := range []string{"noise KVM int", "ernal", " error. Suberror: 1", "KVM internal error"} {
		w.Write([]byte(piece))
	}
	if found != 1 || !w.seen {
		t.Errorf("found %d times", found)
	}
}
