package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"cxkit/device"
	"cxkit/device/wire"
	"cxkit/driver"
	"cxkit/internal/rig"
	"cxkit/pci"
	"cxkit/transport/vfio"
)

// target is a card as --device names it.
type target struct {
	kind, name string
}

// Kinds of targets.
const (
	kindSim      = "sim"          // the model in this process; name is a profile
	kindVFIOUser = "vfio-user"    // a card that another process serves; name is its socket
	kindVFIO     = "vfio"         // a real card behind an IOMMU; name is its PCI address
	kindUnsafe   = "vfio-noiommu" // a real card without one
)

// targetHelp lists the forms for --device.
const targetHelp = "sim:PROFILE is the model in this process, of profile cx4lx, cx5, cx6dx, cx7 or bf2; vfio:ADDRESS a real card " +
	"that cxkit bind has taken from the kernel (vfio-noiommu:ADDRESS without an IOMMU: it can overwrite all memory); " +
	"vfio-user:SOCKET one that another process serves"

// parseTarget reads what --device says.
func parseTarget(s string) (target, error) {
	kind, name, ok := strings.Cut(s, ":")
	t := target{kind, name}
	switch {
	case !ok || name == "" || !slices.Contains([]string{kindSim, kindVFIOUser, kindVFIO, kindUnsafe}, kind):
		return t, usagef("--device %q: want sim:PROFILE, vfio:ADDRESS or vfio-user:SOCKET, for example sim:cx5", s)
	case kind == kindVFIO || kind == kindUnsafe:
		if _, err := vfio.ParseAddress(name); err != nil {
			return t, usageError{fmt.Errorf("--device %q: %w", s, err)}
		}
	case kind == kindSim && !slices.Contains(device.Profiles(), name):
		return t, noProfile(s)
	}
	return t, nil
}

// noProfile is the mistake of a kind of card that there is not.
func noProfile(name string) error {
	return usagef("--device %q: no such card: want one of sim:%s", name, strings.Join(device.Profiles(), ", sim:"))
}

// simulated: the card is the model in this process.
func (t target) simulated() bool { return t.kind == kindSim }

// open takes the function of a card outside of this process. The caller closes it.
func (t target) open(ctx context.Context, log *slog.Logger) (pci.Function, error) {
	return openOutside(ctx, t, log)
}

// errRecalled ends a command that has a card which the kernel takes away.
var errRecalled = errors.New("the kernel wants the device back: it was unbound, removed or unplugged")

// recallKey is the context's key of what to do when the kernel wants a card back.
type recallKey struct{}

// withRecall makes cards that are opened under ctx call f when the kernel wants them back: it ends the command, which
// gives them back as at any other end.
func withRecall(ctx context.Context, f func()) context.Context {
	return context.WithValue(ctx, recallKey{}, f)
}

func recallOf(ctx context.Context) func() {
	f, _ := ctx.Value(recallKey{}).(func())
	return f
}

// openAny is open for all kinds: a card of this process comes with its rig, which is plugged in as config says.
func (t target) openAny(ctx context.Context, config rig.Config, log *slog.Logger) (f pci.Function, r *rig.Rig, err error) {
	if !t.simulated() {
		f, err = t.open(ctx, log)
		return f, nil, err
	}
	config.Device.Profile = t.name
	if r, err = rig.New(config); err != nil {
		return nil, nil, err
	}
	if f, err = r.Function(0); err != nil {
		r.Close()
		return nil, nil, err
	}
	return f, r, nil
}

// withNIC brings a card up, calls f, and takes it down.
func withNIC(w *world, device string, verbose int, f func(function pci.Function, nic *driver.NIC) error) (err error) {
	t, err := parseTarget(device)
	if err != nil {
		return err
	}
	log := logger(w.err, verbose)
	function, r, err := t.openAny(w.ctx, rig.Config{Plug: wire.NewDiscard()}, log)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, function.Close())
		if r != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	nic, err := driver.Open(w.ctx, function, driver.Config{Logger: log})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		err = errors.Join(err, nic.Close(ctx))
	}()
	return f(function, nic)
}
