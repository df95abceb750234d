package vmtest

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
)

// report takes apart what a guest's init writes: a line that it begins, the command's output, and a line
// that the command ended. Both lines start with a word nobody can guess.
type report struct {
	nonce string
	out   io.Writer // gets the command's output
	done  func()    // called at the end of the command; may be nil

	line   []byte // a line so far
	held   bool   // an end of line that may belong to the last line
	began  bool
	ended  bool
	status int
	begin  time.Duration // of userspace, since the kernel started
	end    time.Duration // of the command
	ktap   ktap
	err    error
}

// maxReportLine bounds a line of output; longer ones are passed on in pieces.
const maxReportLine = 64 << 10

// Write takes output of the guest in any pieces.
func (r *report) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			r.line = append(r.line, p...)
			p = nil
		} else {
			r.line = append(r.line, p[:i]...)
			p = p[i+1:]
		}
		if i >= 0 || len(r.line) > maxReportLine {
			r.take(string(r.line), i >= 0)
			r.line = r.line[:0]
		}
	}
	return n, nil
}

// take takes one line.
func (r *report) take(line string, whole bool) {
	line = strings.TrimSuffix(line, "\r")
	if marker, ok := strings.CutPrefix(line, r.nonce+" "); ok && whole {
		r.mark(marker)
		return
	}
	if r.ended {
		return
	}
	if r.held {
		r.pass("\n")
	}
	r.held = whole
	r.pass(line)
	r.ktap.line(line)
}

// flush passes on what has no end of line. init puts an end of line before its last line, which is not
// the command's.
func (r *report) flush() {
	if len(r.line) > 0 {
		r.take(string(r.line), false)
		r.line = r.line[:0]
	}
}

func (r *report) pass(s string) {
	if r.err == nil {
		_, r.err = io.WriteString(r.out, s)
	}
}

// mark takes a line of init's.
func (r *report) mark(marker string) {
	f := strings.Fields(marker)
	switch {
	case len(f) == 2 && f[0] == "begin":
		r.began, r.begin = true, seconds(f[1])
	case len(f) == 3 && f[0] == "exit":
		if status, err := strconv.Atoi(f[1]); err == nil {
			r.ended, r.status, r.end = true, status, seconds(f[2])
			if r.done != nil {
				r.done()
			}
		}
	}
}

func seconds(s string) time.Duration {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0
	}
	return time.Duration(v * float64(time.Second))
}

// ktap counts results in the kernel's test anything protocol (Documentation/dev-tools/ktap.rst), of all
// levels of indentation.
type ktap struct {
	KTAP
}

// KTAP are the results of tests that a command printed in the kernel's test anything protocol.
type KTAP struct {
	// Pass, Fail and Skip count results of the outermost level.
	Pass, Fail, Skip int
	// Failed are the lines of the failures, of all levels.
	Failed []string
}

// Err is an error if a test failed.
func (k KTAP) Err() error {
	if k.Fail == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d tests failed: %s", k.Fail, k.Pass+k.Fail+k.Skip, strings.Join(k.Failed, "; "))
}

func (k *ktap) line(line string) {
	text := strings.TrimLeft(line, " ")
	// kselftest's runner prints the results of a test's own cases behind "# ".
	for strings.HasPrefix(text, "# ") {
		text = strings.TrimLeft(text[2:], " ")
	}
	outermost := len(text) == len(line)
	failed := strings.HasPrefix(text, "not ok ")
	if !failed && !strings.HasPrefix(text, "ok ") {
		return
	}
	f := strings.Fields(strings.TrimPrefix(text, "not "))
	if len(f) < 2 {
		return
	}
	if _, err := strconv.Atoi(f[1]); err != nil {
		return
	}
	expected := strings.Contains(text, "# SKIP") || strings.Contains(text, "# XFAIL") || strings.Contains(text, "# TODO")
	switch {
	case expected && outermost:
		k.Skip++
	case failed && !expected:
		if len(k.Failed) < 100 {
			k.Failed = append(k.Failed, strings.TrimSpace(line))
		}
		if outermost {
			k.Fail++
		}
	case outermost:
		k.Pass++
	}
}

// tail keeps the end of what is written to it, and passes everything on.
type tail struct {
	mu   sync.Mutex // guards the rest
	buf  []byte
	next io.Writer
}

// tailSize is how much of a console a failure shows, in bytes.
const tailSize = 16 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - 2*tailSize; over > 0 {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-tailSize:]...)
	}
	return t.next.Write(p)
}

// text is the end, from the beginning of a line.
func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.buf
	if len(b) > tailSize {
		b = b[len(b)-tailSize:]
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			b = b[i+1:]
		}
	}
	return strings.ReplaceAll(string(b), "\r", "")
}

// contains tells whether the end holds s.
func (t *tail) contains(s string) bool { return strings.Contains(t.text(), s) }
