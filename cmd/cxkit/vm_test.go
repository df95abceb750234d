//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"cxkit/internal/vmtest"
)

// needGuest skips a test where guests can't run, and says what to type; with CXKIT_VM=require that is a
// failure. Guests are too slow for the race detector and a single processor.
func needGuest(t *testing.T) {
	t.Helper()
	if raceEnabled || runtime.GOMAXPROCS(0) == 1 || testing.Short() {
		t.Skip("guests run once, with neither the race detector nor a single processor")
	}
	cache, err := vmtest.DefaultCache()
	if err == nil {
		err = cache.Ready(t.Context(), "")
	}
	switch {
	case err == nil:
	case errors.Is(err, vmtest.ErrMissing) && os.Getenv("CXKIT_VM") != "require":
		t.Skip(err)
	default:
		t.Fatal(err)
	}
}

// command is a command line that runs in this process.
type command struct {
	out, err bytes.Buffer
	code     int
	stop     context.CancelFunc
	done     chan struct{}
}

// begin starts a command line.
func begin(t *testing.T, out *notice, args ...string) *command {
	c := &command{done: make(chan struct{})}
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	w := &world{ctx: ctx, in: strings.NewReader(""), out: &c.out, err: &c.err, args: args, errWidth: func() int { return 80 }}
	if out != nil {
		w.out = out
	}
	go func() {
		defer close(c.done)
		c.code = execute(w)
	}()
	t.Cleanup(func() {
		stop()
		<-c.done
	})
	return c
}

// wait waits for its end.
func (c *command) wait(t *testing.T) {
	t.Helper()
	select {
	case <-c.done:
	case <-time.After(5 * time.Minute):
		t.Fatal("the command does not end")
	}
}

// notice says when what was printed holds a text.
type notice struct {
	text string
	seen chan struct{}

	mu  sync.Mutex
	all string
}

func (n *notice) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := strings.Contains(n.all, n.text)
	n.all += string(p)
	if !before && strings.Contains(n.all, n.text) {
		close(n.seen)
	}
	return len(p), nil
}

// printed is what was printed so far.
func (n *notice) printed() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.all
}

func TestVMPrintsTheCommandsOutputAndExitsWithItsStatus(t *testing.T) {
	needGuest(t)
	// On a card that breaks: what struck is said at the end. And with a storm of firmware pages from outside,
	// which the guest sees come and go.
	t.Setenv("XDG_RUNTIME_DIR", shortDir(t))
	out := &notice{text: "ready", seen: make(chan struct{})}
	c := begin(t, out, "vm", "--fault", "../../docs/faults/power.toml", "--cmd", `ip link set eth0 up; ethtool -i eth0 | head -n 1
		for tenth in $(seq 100); do dmesg | grep -q 'insufficient power' && break; usleep 100000; done
		dmesg | grep -o 'Detected insufficient power on the PCIe slot (27W)'
		cd /sys/kernel/debug/mlx5/*/pages; echo ready
		until [ $(cat fw_pages_total) -gt 20000 ]; do :; done
		until [ $(cat fw_pages_total) -lt 2000 ]; do usleep 20000; done
		printf 'no end of line'; exit 7`)
	select {
	case <-out.seen:
	case <-c.done:
		t.Fatalf("the guest ended: %s", c.err.String())
	}
	storm := begin(t, nil, "ctl", "reclaim", "60000")
	storm.wait(t)
	if storm.code != exitDone || !strings.Contains(storm.out.String(), "given 60,000 pages") ||
		!strings.Contains(storm.out.String(), "back  60,000 pages in 2 rounds") {
		t.Errorf("ctl reclaim: exit code %d\n%s%s", storm.code, storm.out.String(), storm.err.String())
	}
	c.wait(t)
	if c.code != 7 {
		t.Errorf("exit code %d, want 7; standard error:\n%s", c.code, c.err.String())
	}
	if want := "driver: mlx5_core\nDetected insufficient power on the PCIe slot (27W)\nready\nno end of line"; out.all != want {
		t.Errorf("printed %q, want %q", out.all, want)
	}
	if !regexp.MustCompile(`faults of card 0:\nfault +kind +matched +struck\npower +power +[1-9][0-9]* +1\n`).MatchString(c.err.String()) {
		t.Errorf("standard error does not say what struck:\n%s", c.err.String())
	}
}

func TestVMFailsWhenTheGuestDoesNotReport(t *testing.T) {
	needGuest(t)
	for name, test := range map[string]struct {
		args []string
		want []string
	}{
		"hangs": {
			[]string{"--card", "0", "--load", "none", "--limit", "10s", "--cmd", "sleep 1000"},
			[]string{"no report within 10s"},
		},
		"panics": {
			[]string{"--cmd", "echo c >/proc/sysrq-trigger"},
			[]string{"panicked", "sysrq: Trigger a crash", "trace records", "dump command data"},
		},
		"powers off": {
			[]string{"--card", "0", "--load", "none", "--cmd", "poweroff -f"},
			[]string{"ended without a report"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := begin(t, nil, append([]string{"vm"}, test.args...)...)
			c.wait(t)
			if c.code != exitFailed {
				t.Errorf("exit code %d, want %d", c.code, exitFailed)
			}
			for _, want := range test.want {
				if !strings.Contains(c.err.String(), want) {
					t.Errorf("standard error lacks %q:\n%s", want, c.err.String())
				}
			}
			lines := strings.Split(strings.TrimSpace(c.err.String()), "\n")
			if last := lines[len(lines)-1]; !strings.HasPrefix(last, "cxkit: guest: ") || !strings.Contains(last, test.want[0]) {
				t.Errorf("last line %q, want the cause %q", last, test.want[0])
			}
		})
	}
}

func TestVMFailsWithTheTestsOfItsCommand(t *testing.T) {
	needGuest(t)
	c := begin(t, nil, "vm", "--card", "0", "--load", "none",
		"--cmd", `echo TAP version 13; echo 1..3; echo ok 1 first; echo not ok 2 second; echo ok 3 third '# SKIP no'`)
	c.wait(t)
	if c.code != exitFailed || !strings.Contains(c.err.String(), "1 of 3 tests failed: not ok 2 second") {
		t.Errorf("exit code %d, standard error %s", c.code, c.err.String())
	}
}
