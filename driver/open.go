package driver

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"cxkit/driver/internal/hca"
	"cxkit/driver/internal/queue"
	"cxkit/pci"
	"cxkit/trace"
)

// control is the part of a NIC that brings it up, watches it, and takes it down.
type control struct {
	hca      *hca.HCA
	watch    sync.WaitGroup // the goroutine of watchDevice
	closing  atomic.Bool    // a call of Close takes the NIC down
	down     chan struct{}  // closed when it has, with downErr set
	downErr  error
	shutdown chan struct{} // closed when Close begins
}

// Open brings up the function and makes a NIC of it. The function is the caller's: it must not be used
// otherwise until Close has returned, and is closed by the caller afterwards.
//
// ctx bounds bring-up. When Open fails, everything is taken back before it returns; its error names the
// step that failed, and wraps an *OpenError, and a *LeftoverError if the device did not give everything back.
// When ctx ends, and when firmware did not answer, that takes a few seconds at most.
func Open(ctx context.Context, function pci.Function, config Config) (*NIC, error) {
	config, err := config.complete()
	if err != nil {
		return nil, err
	}
	info := function.Info()
	n := &NIC{config: config, log: config.Logger.With("device", info.Address)}
	n.shutdown = make(chan struct{})
	n.down = make(chan struct{})
	n.hca, err = hca.Up(ctx, hca.Config{
		Function:     function,
		Queues:       config.MaxChannels,
		Arena:        config.Arena,
		ReclaimLimit: config.ReclaimLimit,
		HostPage:     config.HostPage,
		PageCPU:      config.PageCPU,
		Timeouts:     hca.Timeouts{Command: config.CommandTimeout, Boot: config.BootTimeout, Health: config.HealthInterval},
		Submit:       config.Submit,
		Work:         config.WorkPool,
		Mailboxes:    config.MailboxPool,
		MeasureFree:  config.MeasureMailboxes,
		Signatures:   config.CommandSignatures,
		Version:      version(),
		Log:          n.log,
		Trace:        config.Trace.For(trace.Driver, info.Address),
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", info.Address, err)
	}
	under, stop := hca.Grace(ctx)
	defer stop()
	if err := n.startPlane(under, n.handOver(function)); err != nil {
		n.hca.HurryAfter(ctx, err)
		err = errors.Join(err, n.Close(context.WithoutCancel(ctx)))
		return nil, fmt.Errorf("open %s: %w", info.Address, n.hca.Failed(err))
	}
	n.reportRefusals()
	n.watch.Go(n.watchDevice)
	return n, nil
}

// version is how the driver introduces itself to firmware, in Linux's form.
func version() string { return runtime.GOOS + ",cxkit,1.0.0" }

// handOver collects what bring-up made for the data plane.
func (n *NIC) handOver(function pci.Function) base {
	h := n.hca
	info := function.Info()
	b := base{
		function: function,
		objects:  h.Objects,
		undo:     h.Undo(),
		events:   h.Events,

		completions: h.CompletionEQs,

		door: queue.Doorbell{
			Window: h.Window, Page: h.Doorbells, Trace: n.config.Trace.For(trace.Driver, info.Address),
		},
		uarPage: h.UAR,

		pd:              h.PD,
		transportDomain: h.TD,
		lkey:            h.MKey,

		general: h.General,
		eth:     h.Eth,
		flow:    h.Flow,

		fdbLogSize: h.FDB.FlowTablePropertiesFDB.LogMaxFTSize,

		info: Info{
			Address:      info.Address,
			VendorID:     info.Vendor,
			DeviceID:     info.Device,
			Model:        model(info.Device),
			Firmware:     FirmwareVersion(h.Firmware),
			PSID:         h.PSID,
			TimestampKHz: h.General.DeviceFrequencyKHz,
		},
	}
	return b
}

// watchDevice stops the queues when the device fails. It ends when Close begins.
func (n *NIC) watchDevice() {
	select {
	case <-n.hca.Dead():
	case <-n.shutdown:
		return
	}
	err := fmt.Errorf("device failed: %w", n.hca.Err())
	for _, q := range n.queues().rx {
		q.end(err)
	}
	for _, q := range n.queues().sends() {
		q.end(err)
	}
	n.stopRepresentors(err)
}

// Err is nil while the device works, else why it does not: commands fail at once and queues have stopped.
// Close is left to do, or Reset.
func (n *NIC) Err() error { return n.hca.Err() }

// Failed is closed when the device has failed; Err says why.
func (n *NIC) Failed() <-chan struct{} { return n.hca.Dead() }

// controlBooks fills in what the control path has out.
func (n *NIC) controlBooks(b *Books) {
	out := n.hca.Books()
	b.FirmwarePages = out.Pages.Out
	b.CommandSlots = out.Commands.InFlight + len(out.Commands.Stuck)
	b.Mailboxes = out.Commands.Mailboxes
	b.Objects = make(map[string]int)
	for _, o := range out.Objects {
		b.Objects[strings.ToLower(o.Kind.String())]++
	}
}
