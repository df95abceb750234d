package hca

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"cxkit/dma"
	"cxkit/driver/internal/cmdif"
	"cxkit/driver/internal/event"
	"cxkit/driver/internal/fwpages"
	"cxkit/driver/internal/object"
	"cxkit/mmio"
	"cxkit/pci"
	"cxkit/prm"
	"cxkit/stats"
	"cxkit/trace"
)

// Config is how to bring a function up.
type Config struct {
	Function pci.Function
	// Queues is how many completion event queues are wanted; vectors may limit them.
	Queues int
	// Arena is what command queue, mailboxes and event queues are made of.
	Arena dma.Kind
	// ReclaimLimit, MaxPages and HostPage: see fwpages.Config.
	ReclaimLimit *int
	MaxPages     int
	HostPage     int
	// PageCPU: see fwpages.Config.CPU.
	PageCPU  sync.Locker
	Timeouts Timeouts
	// Submit, Work, Mailboxes and MeasureFree: see cmdif.Config.
	Submit      cmdif.Submit
	Work        *cmdif.WorkPool
	Mailboxes   cmdif.PoolKind
	MeasureFree bool
	// Signatures makes commands carry signatures, and checks those of the answers, if the card has
	// capability cmdif_checksum.
	Signatures bool
	// Version is told to firmware, "OS,driver,version", at most 63 bytes.
	Version string
	Log     *slog.Logger // must be set
	Trace   *trace.Log   // may be nil
}

// HCA is a function that is up. Its exported fields do not change until Down.
type HCA struct {
	Objects *object.Book // runs commands; what they create is booked
	Events  *event.Dispatcher
	Pages   *fwpages.Manager
	Window  *mmio.Window // BAR 0

	Firmware FirmwareVersion
	PSID     string

	General prm.CapGeneral
	Eth     prm.CapEthernetOffloads
	Flow    prm.CapFlowTable
	FDB     prm.CapESwitchFlowTable // of a function that manages an e-switch

	// TotalVFs is how many virtual functions the function may have; 0: it has no SR-IOV.
	TotalVFs int
	// Embedded: the function is one of the card's own processor.
	Embedded bool

	UAR       uint32 // number of the doorbell page
	Doorbells uint64 // its offset in Window
	PD        uint32
	TD        uint32
	MKey      uint32 // key of all memory, for descriptors
	Special   prm.QuerySpecialContextsOut
	// CompletionEQs are the completion event queues, one or more.
	CompletionEQs []*event.EQ

	config        Config
	ctx           context.Context // ends with Down
	cancel        context.CancelFunc
	cmd           *cmdif.Interface
	undo          object.Stack
	commEQ        *event.EQ
	health        health
	surroundings  surroundings
	toutMu        sync.Mutex // guards advertised
	advertised    Timeouts   // by firmware
	tellsTimeouts bool

	started bool // firmware has been given something of the host: a queue address, pages

	patience time.Duration // of Down with a command, 0: the command's own time-out

	failure failure
	down    sync.Once
	downErr error
}

// FirmwareVersion is major.minor.subminor.
type FirmwareVersion struct{ Major, Minor, Subminor uint16 }

func (v FirmwareVersion) String() string {
	return fmt.Sprintf("%d.%d.%04d", v.Major, v.Minor, v.Subminor)
}

// failure is the first reason why the device can't be used any more.
type failure struct {
	mu     sync.Mutex // guards err
	err    error
	closed chan struct{} // closed with err set
}

// Err is nil while the device works, else why it does not.
func (h *HCA) Err() error {
	h.failure.mu.Lock()
	defer h.failure.mu.Unlock()
	return h.failure.err
}

// Dead is closed when the device has failed; Err says why.
func (h *HCA) Dead() <-chan struct{} { return h.failure.closed }

// Fail gives the device up: commands end at once from now on. Any goroutine may call it, event handlers
// too; only the first call counts.
func (h *HCA) Fail(why error) {
	h.failure.mu.Lock()
	first := h.failure.err == nil
	if first {
		h.failure.err = why
	}
	h.failure.mu.Unlock()
	if !first {
		return
	}
	h.config.Log.Error("device given up", "why", why)
	if h.cmd != nil {
		h.cmd.Fail(why)
	}
	// Last: who was told that the device has failed issues commands to an interface that knows.
	close(h.failure.closed)
}

// Up brings the function up. On an error everything is taken back before Up returns; the error names the
// step that failed, and what could not be taken back.
func Up(ctx context.Context, config Config) (*HCA, error) {
	h := &HCA{config: config}
	h.failure.closed = make(chan struct{})
	h.ctx, h.cancel = context.WithCancel(context.Background())
	under, stop := Grace(ctx)
	defer stop()
	for _, s := range steps {
		if err := h.step(ctx, under, s); err != nil {
			err = fmt.Errorf("%s: %w", s.name, err)
			h.HurryAfter(ctx, err)
			// ctx may be what has ended; what was done is taken back in bounded time all the same.
			return nil, h.Failed(errors.Join(err, h.Down(context.WithoutCancel(ctx))))
		}
	}
	return h, nil
}

// BringUpError is why a bring-up failed, with what its commands have done: they may tell more.
type BringUpError struct {
	Err      error
	Commands stats.Commands
}

func (e *BringUpError) Error() string { return e.Err.Error() }

func (e *BringUpError) Unwrap() error { return e.Err }

// Failed makes a *BringUpError of the reason, after Down.
func (h *HCA) Failed(err error) error {
	e := &BringUpError{Err: err}
	if h.cmd != nil {
		e.Commands = h.cmd.Stats()
	}
	return e
}

// step does a step under the context under, unless ctx has ended before.
func (h *HCA) step(ctx, under context.Context, s step) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := h.Err(); err != nil {
		return err
	}
	return s.do(h, under)
}

// Books are what the function and its firmware hold of each other.
type Books struct {
	Commands cmdif.Books
	Pages    fwpages.Books
	Objects  []object.Object
	Lost     []string // creations without an answer
	Rings    int      // event rings that firmware may still write
}

// Books returns what is out.
func (h *HCA) Books() Books {
	var b Books
	if h.cmd != nil {
		b.Commands = h.cmd.Books()
		b.Objects, b.Lost = h.Objects.Out(), h.Objects.Lost()
	}
	if h.Pages != nil {
		b.Pages = h.Pages.Books()
	}
	if h.Events != nil {
		b.Rings = h.Events.Leaked()
	}
	return b
}

// Address names the function.
func (h *HCA) Address() string { return h.config.Function.Info().Address }

// Counters are what the control path has done.
func (h *HCA) Counters() cmdif.Counters { return h.cmd.Counters() }

// Commands are the command interface's counters.
func (h *HCA) Commands() stats.Commands { return h.cmd.Stats() }

// LeftoverError is what a teardown could not get back from the device. The memory behind it is free
// again, because the function was reset; if the reset failed too, Memory says so.
type LeftoverError struct {
	Why      error    // first reason, nil if none is known
	Objects  []string // that firmware did not destroy
	Lost     []string // creations without an answer
	Commands []string // that firmware did not complete
	Pages    int      // that firmware did not return
	Rings    int      // event rings that firmware may have used
	Memory   error    // why the memory could not be freed; nil: it was
}

func (e *LeftoverError) Error() string {
	var parts []string
	add := func(what string, names []string) {
		if len(names) > 0 {
			parts = append(parts, fmt.Sprintf("%d %s (%s)", len(names), what, some(names)))
		}
	}
	add("objects", e.Objects)
	add("creations without an answer", e.Lost)
	add("commands", e.Commands)
	if e.Pages > 0 {
		parts = append(parts, fmt.Sprintf("%d firmware pages", e.Pages))
	}
	if e.Rings > 0 {
		parts = append(parts, fmt.Sprintf("%d event rings", e.Rings))
	}
	s := "device did not give back " + strings.Join(parts, ", ")
	if e.Why != nil {
		s += ": " + e.Why.Error()
	}
	if e.Memory != nil {
		s += "; their memory is lost: " + e.Memory.Error()
	}
	return s
}

func (e *LeftoverError) Unwrap() []error {
	var errs []error
	for _, err := range []error{e.Why, e.Memory} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// some joins at most the first names of a list.
func some(names []string) string {
	const most = 8
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
}
