//go:build linux

package vmtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cxkit/device"
	"cxkit/device/fault"
	"cxkit/internal/plan"
	"cxkit/trace"
)

// TestLinuxReportsTheCardsFaults breaks the card while Linux drives it, and looks for the lines that
// operators alert on (reports R08, R14, R25, R28, R30, R32).
func TestLinuxReportsTheCardsFaults(t *testing.T) {
	t.Parallel() // it waits for time-outs most of the time
	f := findTools(t, "6.12")
	dir, err := os.MkdirTemp("", "cxkit-test-") // not t.TempDir: the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	sockets := []string{filepath.Join(dir, "card0")}
	cards, err := ServeCards(CardsConfig{
		Sockets: sockets, Trace: trace.New(trace.Config{Records: 8192}),
		Device: device.Config{Lenient: true, CommandTimeout: time.Second},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cards.Close(); err != nil {
			t.Error(err)
		}
	})
	g := f.guestFor(t, "faults.sh")
	g.Sockets = sockets
	g.Modules = nil
	g.Limit = 4 * time.Minute // the script takes a minute on a machine that does nothing else
	answer(t, g, func(question string) {
		if err := breakCard(cards.Card(0), question); err != nil {
			t.Errorf("%s: %v", question, err)
		}
	})
	runToReport(t, g, cards) // after the last failure Linux does not power off
	for _, r := range cards.Card(0).Faults() {
		if r.Struck == 0 {
			t.Errorf("%s did not strike", r.Name)
		}
	}
}

// breakCard does what the guest's script asks for: "inject KIND KEY=VALUE..." or "slow TIME".
func breakCard(c *device.Card, question string) error {
	words := strings.Fields(question)
	switch words[0] {
	case "inject":
		// Values have no blanks in the guest's shell: names are written with underscores.
		text, err := plan.FromArguments(words[1], words[2:])
		if err != nil {
			return err
		}
		p, err := plan.Parse(question, []byte(text), 1)
		if err != nil {
			return err
		}
		return c.Inject(p)
	case "slow":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			return err
		}
		return c.Inject(fault.Plan{Other: &fault.Latency{Min: d}})
	}
	return nil
}
