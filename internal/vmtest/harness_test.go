//go:build linux

package vmtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"cxkit/trace"
)

// requireGuests makes a test that can't run for want of QEMU a failure.
const requireGuests = "require"

// tools are what guests of tests are made of.
type tools struct {
	qemu     QEMU
	kernel   Kernel
	userland Userland
	accel    Accel
}

// findTools finds them, or skips the test and says how to fetch them. CXKIT_VM=require makes that a
// failure; the race detector and a single processor skip always.
func findTools(t testing.TB, kernel string) tools {
	t.Helper()
	if raceDetector || runtime.GOMAXPROCS(0) == 1 {
		t.Skip("guests run once, with neither the race detector nor a single processor")
	}
	if testing.Short() {
		t.Skip("guests take too long for -short")
	}
	found, err := lookForTools(t.Context(), kernel)
	if err != nil {
		giveUp(t, err)
	}
	return found
}

// giveUp skips a test for want of what was not fetched, or fails it.
func giveUp(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, ErrMissing) && os.Getenv("CXKIT_VM") != requireGuests {
		t.Skip(err)
	}
	t.Fatal(err)
}

// need gives up if the guest can't have a program.
func (f tools) need(t testing.TB, program string) {
	t.Helper()
	if !f.userland.Has(program) {
		giveUp(t, fmt.Errorf("the guest's %s: %w", program, ErrMissing))
	}
}

func lookForTools(ctx context.Context, kernel string) (f tools, err error) {
	cache, err := DefaultCache()
	if err != nil {
		return f, err
	}
	if f.qemu, err = cache.QEMU(ctx); err != nil {
		return f, err
	}
	if f.kernel, err = cache.Kernel(kernel); err != nil {
		return f, fmt.Errorf("%w (--kernel %s)", err, kernel)
	}
	if f.userland, err = cache.Userland(); err != nil {
		return f, err
	}
	if f.userland.Root == "" {
		return f, fmt.Errorf("the guest's ip and ethtool: %w", ErrMissing)
	}
	f.accel, err = cache.Accel(ctx, f.qemu, f.kernel, f.userland)
	return f, err
}

// guestFor is a guest of a test, which runs a script of testdata.
func (f tools) guestFor(t testing.TB, script string) *Guest {
	t.Helper()
	g := &Guest{
		QEMU: f.qemu, Kernel: f.kernel, Userland: f.userland, Accel: f.accel,
		Load: []string{"mlx5_core"}, Modules: []string{"8021q", "vxlan", "ip_gre"},
		Tools: []string{"bash", "ethtool", "ip"}, Command: ". /root/" + script, Limit: 4 * time.Minute,
	}
	names, err := filepath.Glob("testdata/*.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		g.Files = append(g.Files, File{Path: "/root/" + filepath.Base(name), Data: data})
	}
	agent, err := os.ReadFile(buildAgent(t))
	if err != nil {
		t.Fatal(err)
	}
	g.Files = append(g.Files, File{Path: "/usr/bin/agent", Data: agent, Program: true})
	return g
}

// buildAgent builds the guest's test program.
func buildAgent(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", path, "cxkit/internal/vmtest/agent")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=-mod=mod")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the guest's agent: %v\n%s", err, out)
	}
	return path
}

// serveCards serves cards for a test, all on one switch unless c has ports.
func serveCards(t testing.TB, n int, c CardsConfig) (*Cards, []string) {
	t.Helper()
	// Not t.TempDir: the path of a socket must be short.
	dir, err := os.MkdirTemp("", "cxkit-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	var sockets []string
	for i := range n {
		sockets = append(sockets, filepath.Join(dir, fmt.Sprintf("card%d", i)))
	}
	c.Sockets, c.Trace = sockets, trace.New(trace.Config{Records: 8192})
	cards, err := ServeCards(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cards.Close(); err != nil {
			t.Error(err)
		}
	})
	return cards, sockets
}

// run runs a guest and fails the test if it does not do what it should.
func run(t testing.TB, g *Guest, cards *Cards) *Result {
	t.Helper()
	result := runToReport(t, g, cards)
	if !result.PoweredOff {
		t.Errorf("the guest did not power off\n--- console ---\n%s", result.Console)
	}
	return result
}

// runToReport is run for a guest whose driver may keep it from powering off.
func runToReport(t testing.TB, g *Guest, cards *Cards) *Result {
	t.Helper()
	result, err := g.Run(t.Context())
	if err != nil {
		t.Fatalf("%v\n--- the last %d trace records ---\n%s", err, TraceRecords, cards.LastRecords())
	}
	t.Logf("boot %v, command %v, whole %v", result.Boot, result.Command, result.Whole)
	if result.Status != 0 {
		t.Fatalf("the guest's command ended with status %d\n%s\n--- console ---\n%s\n--- refused commands ---\n%s",
			result.Status, result.Output, result.Console, refused(cards))
	}
	t.Log(result.Output)
	return result
}

// refused are the commands that the cards refused, of those still recorded.
func refused(cards *Cards) string {
	var b strings.Builder
	for _, r := range cards.Recorder().Last(-1) {
		if r.Kind == trace.CommandOut && r.Text != "" {
			fmt.Fprintf(&b, "%s opcode %#x: %s\n", r.Function, r.Opcode, r.Text)
		}
	}
	return b.String()
}

// host answers a guest's questions: lines "@host QUESTION" of its output.
type host struct {
	t       testing.TB
	answers *io.PipeWriter
	ask     func(question string) (answer string)

	mu   sync.Mutex
	line []byte
}

// answer lets a guest ask while it runs.
func answer(t testing.TB, g *Guest, ask func(question string)) {
	answerWith(t, g, func(question string) string {
		ask(question)
		return ""
	})
}

// answerWith is answer for a guest that wants to know.
func answerWith(t testing.TB, g *Guest, ask func(question string) (answer string)) {
	keys, answers := io.Pipe()
	t.Cleanup(func() { answers.Close() })
	g.Stdin = keys
	g.Output = &host{t: t, answers: answers, ask: ask}
}

func (h *host) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range p {
		h.line = append(h.line, c)
		if question, ok := strings.CutPrefix(string(h.line), "@host "); ok && c == ';' {
			text := h.ask(strings.TrimSuffix(question, ";"))
			go h.answers.Write([]byte(text + "\n"))
		}
		if c == '\n' || len(h.line) > 4096 {
			h.line = h.line[:0]
		}
	}
	return len(p), nil
}
