package rig_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The race detector holds the order in which the card publishes completions: ownership last. This test
// holds the race detector: it seeds the wrong order into the card's code and expects a report. The seed is
// an overlay of the build, so nothing of it is in the card.

// seedFile is the file that publishes received frames, from this package.
const seedFile = "../../device/internal/queue/rq.go"

// What is moved: the call that hands the entry over, from behind the entry's body to before it.
var (
	seedHandOver = regexp.MustCompile(`(?m)^\t(\S+)\.done\(cqe, .*\)\n`)
	seedBody     = regexp.MustCompile(`(?m)^\t_ = cqe\[cqeSize-1\]\n`)
)

// wrongOrder moves the hand-over to before the body; ok tells that both are where they are expected.
func wrongOrder(source string) (changed string, ok bool) {
	body := seedBody.FindAllStringIndex(source, -1)
	if len(body) != 1 {
		return "", false
	}
	before, after := source[:body[0][1]], source[body[0][1]:]
	over := seedHandOver.FindStringSubmatchIndex(after)
	if over == nil {
		return "", false
	}
	call, queue := after[over[0]:over[1]], after[over[2]:over[3]]
	return before + call + "\t" + queue + ".flush()\n" + after[:over[0]] + after[over[1]:], true
}

func TestRaceRunReportsAWrongPublishOrder(t *testing.T) {
	requireRaceBuilds(t)
	source, err := os.ReadFile(seedFile)
	if err != nil {
		t.Fatal(err)
	}
	text, ok := wrongOrder(string(source))
	if !ok {
		t.Fatalf("%s has changed: the seed does not fit any more", seedFile)
	}

	out, err := raceRun(t, nil)
	if err != nil || strings.Contains(out, "DATA RACE") {
		t.Errorf("the right order: %v\n%s", err, out)
	}
	out, err = raceRun(t, map[string]string{seedFile: text})
	if err == nil || !strings.Contains(out, "WARNING: DATA RACE") || !strings.Contains(out, "driver.(*RxQueue)") {
		t.Errorf("the wrong order is not reported: %v\n%s", err, out)
	}
}

// raceRun runs a test of received frames on heap memory under the race detector, with files replaced, and
// returns what it printed. The first report ends it.
func raceRun(t *testing.T, replaced map[string]string) (string, error) {
	t.Helper()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	dir := t.TempDir()
	for path, text := range replaced {
		full, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		overlay.Replace[full] = filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(overlay.Replace[full], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, b, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-race", "-vet=off", "-count=1", "-timeout=2m", "-overlay="+list,
		"-run=^TestNICOnHeapMemory$/^RingWrapsManyTimes$", ".")
	// The detector compares accesses of two processors: with one, the card has always ended what it does before
	// the driver looks.
	cmd.Env = append(os.Environ(), "GORACE=halt_on_error=1", "GOFLAGS=", "GOMAXPROCS=2")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// requireRaceBuilds skips the test where Go can't build with the race detector.
func requireRaceBuilds(t *testing.T) {
	t.Helper()
	if raceDetector {
		return // this binary is such a build
	}
	env, err := exec.CommandContext(t.Context(), "go", "env", "CGO_ENABLED", "CC").Output()
	if err != nil {
		t.Skipf("no go command here, so nothing can be built with the race detector: %v", err)
	}
	cgo, cc, _ := strings.Cut(strings.TrimSpace(string(env)), "\n")
	if cgo != "1" {
		t.Skip("the race detector needs cgo, which is off: whether it reports a wrong publish order is not shown here")
	}
	if name := strings.Fields(cc); len(name) > 0 {
		if _, err := exec.LookPath(name[0]); err != nil {
			t.Skipf("the race detector needs a C compiler: %v", err)
		}
	}
}
