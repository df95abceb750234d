package vmtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Accel is how a guest's processors are run.
type Accel string

const (
	// AccelTCG emulates them: works everywhere.
	AccelTCG Accel = "tcg"
	// AccelKVM runs them on the host's.
	AccelKVM Accel = "kvm"
)

func (a Accel) arguments() []string {
	if a == AccelKVM {
		return []string{"-accel", "kvm", "-cpu", "host"}
	}
	return []string{"-accel", "tcg,thread=multi", "-cpu", "max"}
}

// kvmVerdict is what a trial of KVM gave, on one boot of the host.
type kvmVerdict struct {
	Boot  string `json:"boot"`
	Works bool   `json:"works"`
	Why   string `json:"why"`
}

// kvmTrialLimit is how long the trial's guest may take; with KVM that works it takes a second.
const kvmTrialLimit = 20 * time.Second

// Accel chooses KVM if it works on this machine: /dev/kvm that can be opened is not enough, on some
// virtual machines guests die in their first second. The first call after the host's boot tries it with a
// guest; the answer is kept in the cache.
func (c Cache) Accel(ctx context.Context, q QEMU, k Kernel, u Userland) (Accel, error) {
	kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return AccelTCG, nil // none here, or not for this user
	}
	kvm.Close()
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	verdict := kvmVerdict{Boot: strings.TrimSpace(string(boot))}
	if old, ok := c.kvmVerdict(); ok && old.Boot == verdict.Boot {
		return old.accel(), nil
	}
	unlock, err := c.lock()
	if err != nil {
		return AccelTCG, err
	}
	defer unlock()
	if old, ok := c.kvmVerdict(); ok && old.Boot == verdict.Boot {
		return old.accel(), nil
	}
	verdict.Works, verdict.Why, err = tryKVM(ctx, q, k, u)
	if err != nil {
		return AccelTCG, err
	}
	b, err := json.Marshal(verdict)
	if err == nil {
		err = os.WriteFile(c.kvmVerdictPath(), append(b, '\n'), 0o644)
	}
	return verdict.accel(), err
}

func (v kvmVerdict) accel() Accel {
	if v.Works {
		return AccelKVM
	}
	return AccelTCG
}

func (c Cache) kvmVerdictPath() string { return filepath.Join(c.Dir, "kvm.json") }

func (c Cache) kvmVerdict() (v kvmVerdict, ok bool) {
	b, err := os.ReadFile(c.kvmVerdictPath())
	return v, err == nil && json.Unmarshal(b, &v) == nil
}

// tryKVM boots a guest without a card.
func tryKVM(ctx context.Context, q QEMU, k Kernel, u Userland) (works bool, why string, err error) {
	trial, stop := context.WithCancel(ctx)
	defer stop()
	console := watch{text: "KVM internal error", found: stop}
	g := Guest{QEMU: q, Kernel: k, Userland: u, Accel: AccelKVM, Mem: 256, Console: &console, Limit: kvmTrialLimit}
	_, err = g.Run(trial)
	if ctx.Err() != nil {
		return false, "", ctx.Err()
	}
	var failure *Failure
	switch {
	case err == nil:
		return true, "", nil
	case console.seen:
		return false, console.text, nil
	case errors.As(err, &failure):
		return false, failure.Why, nil
	}
	return false, "", fmt.Errorf("trial of KVM: %w", err)
}

// watch calls found once when a console prints text: QEMU stops such a guest and does not exit.
type watch struct {
	text  string
	found func()
	seen  bool
	end   string
}

func (w *watch) Write(p []byte) (int, error) {
	w.end += string(p)
	if !w.seen && strings.Contains(w.end, w.text) {
		w.seen = true
		w.found()
	}
	if over := len(w.end) - len(w.text); over > 0 {
		w.end = w.end[over:]
	}
	return len(p), nil
}
