package study

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"cxkit/examples/kernel/ftrace"
)

// Round is one command that takes pages back from firmware.
type Round struct {
	// Took is the whole call of reclaim_pages, Frees are the calls of dma_pool_free in it: a mailbox each.
	Took  time.Duration    `json:"took_ns"`
	Frees ftrace.Histogram `json:"frees"`
}

// Stall is what a task saw that wants the processor a thousand times a second, from the first round's begin to the
// last one's end.
type Stall struct {
	Window  time.Duration `json:"window_ns"`
	Longest time.Duration `json:"longest_ns"`
	// Late is how often it woke 100 us late or more.
	Late int `json:"late"`
}

// Bench is a folder with the programs of a study. Its cards are apart from others of this machine.
type Bench struct {
	dir string
	log io.Writer
}

// Open builds cxkit and the guest's program. The working folder must lie in cxkit's module.
func Open(ctx context.Context, log io.Writer) (*Bench, error) {
	dir, err := os.MkdirTemp("", "cxkit-study-")
	if err != nil {
		return nil, err
	}
	b := &Bench{dir: dir, log: log}
	for _, build := range [][]string{
		{"go", "build", "-o", filepath.Join(dir, "cxkit"), "cxkit/cmd/cxkit"},
		{"env", "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "go", "build", "-ldflags=-s -w", "-o", filepath.Join(dir, "guest"), "cxkit/examples/kernel/guest"},
	} {
		if out, err := exec.CommandContext(ctx, build[0], build[1:]...).CombinedOutput(); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w\n%s", strings.Join(build, " "), err, out), b.Close())
		}
	}
	return b, os.Mkdir(filepath.Join(dir, "run"), 0o700)
}

// Close removes the folder.
func (b *Bench) Close() error { return os.RemoveAll(b.dir) }

// Cxkit is a command of cxkit's.
func (b *Bench) Cxkit(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(b.dir, "cxkit"), args...)
	// Control sockets lie here: a card of another process is not taken for the study's.
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+filepath.Join(b.dir, "run"))
	// A guest is told to end, so that it takes QEMU along.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	return cmd
}

// Ctl runs `cxkit ctl` on the card of the guest that runs, and returns what it prints.
func (b *Bench) Ctl(ctx context.Context, args ...string) ([]byte, error) {
	cmd := b.Cxkit(ctx, append([]string{"ctl"}, args...)...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("cxkit ctl %s: %w: %s%s", strings.Join(args, " "), err, out, complaint.Bytes())
	}
	return out, nil
}

// Guest is a guest to boot.
type Guest struct {
	// Kernel is 6.12 or 6.1; Patch is the edit's file, "" for Debian's own module.
	Kernel, Patch string
	// Script is what it runs. It finds the guest's program at /root/guest.
	Script string
	// Flags are further ones for cxkit vm.
	Flags []string
	// Host does what the guest asks for with lines "@host WORD ...". cxkit vm passes the end of a line on with the
	// next line: something must follow.
	Host func(ctx context.Context, words []string) error
}

// Results are what a guest printed in lines "@result NAME JSON".
type Results map[string]json.RawMessage

// Get decodes a result.
func (r Results) Get(name string, v any) error {
	raw, ok := r[name]
	if !ok {
		return fmt.Errorf("the guest printed no result %q", name)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("result %q: %w", name, err)
	}
	return nil
}

// tailLines is how much of a guest's output an error shows.
const tailLines = 40

// Run boots a guest and collects its results.
func (b *Bench) Run(ctx context.Context, g Guest) (Results, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	args := []string{"vm", "--kernel", g.Kernel, "--file", filepath.Join(b.dir, "guest")}
	if g.Patch != "" {
		args = append(args, "--patch", g.Patch)
	}
	args = append(append(args, g.Flags...), "--cmd", g.Script)
	cmd := b.Cxkit(ctx, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var console bytes.Buffer
	cmd.Stderr = &console
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	results, tail, failure := b.follow(ctx, out, g)
	if failure != nil {
		cancel()
		io.Copy(io.Discard, out)
	}
	if err := errors.Join(failure, cmd.Wait()); err != nil {
		return nil, fmt.Errorf("guest with kernel %s: %w\n%s\n%s", g.Kernel, err, strings.Join(tail, "\n"), lastLines(console.String()))
	}
	return results, nil
}

// follow reads what a guest prints until its end, and does what it asks for.
func (b *Bench) follow(ctx context.Context, out io.Reader, g Guest) (Results, []string, error) {
	results := make(Results)
	var tail []string
	s := bufio.NewScanner(out)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		line := s.Text()
		switch words := strings.Fields(line); {
		case strings.HasPrefix(line, "@result "):
			name, value, err := result(line)
			if err != nil {
				return nil, tail, err
			}
			results[name] = value
		case strings.HasPrefix(line, "@host ") && g.Host != nil:
			fmt.Fprintf(b.log, "  %s\n", line)
			if err := g.Host(ctx, words[1:]); err != nil {
				return nil, tail, err
			}
		default:
			fmt.Fprintf(b.log, "  %s\n", line)
			if tail = append(tail, line); len(tail) > tailLines {
				tail = tail[1:]
			}
		}
	}
	return results, tail, s.Err()
}

// result reads a line `@result "NAME" JSON` or `@result NAME JSON`.
func result(line string) (name string, value json.RawMessage, err error) {
	rest := strings.TrimPrefix(line, "@result ")
	if quoted, err := strconv.QuotedPrefix(rest); err == nil {
		if name, err = strconv.Unquote(quoted); err != nil {
			return "", nil, err
		}
		rest = strings.TrimPrefix(rest[len(quoted):], " ")
	} else {
		name, rest, _ = strings.Cut(rest, " ")
	}
	if name == "" || !json.Valid([]byte(rest)) {
		return "", nil, fmt.Errorf("the guest printed %q: want a name and JSON", line)
	}
	return name, json.RawMessage(rest), nil
}

func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
