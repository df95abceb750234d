package hca

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"cxkit/dma"
	"cxkit/driver/internal/cmdif"
	"cxkit/driver/internal/event"
	"cxkit/driver/internal/fwpages"
	"cxkit/driver/internal/object"
	"cxkit/prm"
)

// step is one step of bring-up.
type step struct {
	name string
	do   func(*HCA, context.Context) error
}

// steps is bring-up in order.
var steps = [...]step{
	{"reset the function", (*HCA).reset},
	{"enable bus mastering", (*HCA).busMaster},
	{"look for virtual functions", (*HCA).findVFs},
	{"map BAR 0", (*HCA).mapBAR},
	{"wait for firmware to boot", (*HCA).waitBoot},
	{"check the initialization segment", (*HCA).checkInitSeg},
	{"read initial time-outs", (*HCA).readInitTimeouts},
	{"set up the command queue", (*HCA).commandQueue},
	{"wait for firmware to initialize", (*HCA).waitInit},
	{"watch health", (*HCA).watchHealth},
	{"enable the HCA", (*HCA).enable},
	{"agree on an interface version", (*HCA).issi},
	{"give boot pages", (*HCA).bootPages},
	{"read time-outs", (*HCA).readTimeouts},
	{"set host endianness", (*HCA).endianness},
	{"set capabilities", (*HCA).setCaps},
	{"give init pages", (*HCA).initPages},
	{"initialize the HCA", (*HCA).initHCA},
	{"set the driver version", (*HCA).driverVersion},
	{"read capabilities", (*HCA).readCaps},
	{"read the board id", (*HCA).adapter},
	{"allocate a doorbell page", (*HCA).allocUAR},
	{"create event queues", (*HCA).eventQueues},
	{"create completion event queues", (*HCA).completionQueues},
	{"allocate a protection domain", (*HCA).allocPD},
	{"allocate a transport domain", (*HCA).allocTD},
	{"query special contexts", (*HCA).specialContexts},
	{"create the memory key", (*HCA).memoryKey},
}

const (
	// regState is the dword of the initialization segment whose bit 31 is set while firmware starts.
	regState = prm.InitSegStateOff
	// cmdifRevision is the only revision of the command interface there is (Linux cmd.c).
	cmdifRevision = 5
	allOnes       = ^uint32(0)

	configCommand = 0x04   // PCI command register
	memorySpace   = 1 << 1 // PCI base specification 7.5.1.1.3
	busMaster     = 1 << 2
)

// ErrGone: the device's registers read as ones.
var ErrGone = errors.New("device registers read as ones: it is gone, or its bus is down")

func (h *HCA) reset(ctx context.Context) error {
	return h.config.Function.Reset(ctx)
}

func (h *HCA) busMaster(context.Context) error {
	set := func(on, off uint16) error {
		var b [2]byte
		if err := h.config.Function.ReadConfig(configCommand, b[:]); err != nil {
			return err
		}
		v := binary.LittleEndian.Uint16(b[:])
		if v == 0xFFFF {
			return ErrGone
		}
		binary.LittleEndian.PutUint16(b[:], v&^off|on)
		return h.config.Function.WriteConfig(configCommand, b[:])
	}
	if err := set(memorySpace|busMaster, 0); err != nil {
		return err
	}
	h.undo.Add("disable bus mastering", func(context.Context) error {
		err := set(0, busMaster)
		if errors.Is(err, ErrGone) {
			return nil // nothing left to switch off
		}
		return err
	})
	return nil
}

func (h *HCA) mapBAR(context.Context) error {
	w, err := h.config.Function.Window(0)
	if err != nil {
		return err
	}
	if w.Size() < prm.InitSegSize {
		return fmt.Errorf("BAR 0 has %#x bytes, the initialization segment alone %#x", w.Size(), prm.InitSegSize)
	}
	h.Window = w
	return nil
}

func (h *HCA) waitBoot(ctx context.Context) error {
	return h.waitInitializing(ctx, h.timeouts().Boot)
}

func (h *HCA) waitInit(ctx context.Context) error {
	return h.waitInitializing(ctx, h.timeouts().Init)
}

// BootError: firmware had not finished booting when waiting for it ended.
type BootError struct {
	After time.Duration
	Err   error // the context's; nil: it was waited for as long as it may take
}

func (e *BootError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("firmware over %v in pre-initializing state", e.After)
	}
	return fmt.Sprintf("firmware in pre-initializing state for %v: %v", e.After.Round(time.Millisecond), e.Err)
}

func (e *BootError) Unwrap() error { return e.Err }

// waitInitializing waits for bit 31 to clear, for at most limit. A device that is being reset may read as
// ones for a while, which has that bit set too.
func (h *HCA) waitInitializing(ctx context.Context, limit time.Duration) error {
	begin := time.Now()
	for {
		v := h.Window.Load32(regState)
		if !prm.InitSegState(v).Initializing() {
			return nil
		}
		if time.Since(begin) >= limit {
			if v == allOnes {
				return fmt.Errorf("after %v: %w", limit, ErrGone)
			}
			return &BootError{After: limit}
		}
		// Half a millisecond at first, so that a model starts quickly; 20 ms (Linux) at last.
		pause := min(20*time.Millisecond, max(500*time.Microsecond, time.Since(begin)/4), limit)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			if v == allOnes {
				return fmt.Errorf("after %v: %w: %w", time.Since(begin).Round(time.Millisecond), ErrGone, ctx.Err())
			}
			return &BootError{After: time.Since(begin), Err: ctx.Err()}
		}
	}
}

func (h *HCA) checkInitSeg(context.Context) error {
	rev := h.Window.Load32(prm.InitSegFWRevOff)
	cmd := h.Window.Load32(prm.InitSegCmdIfRevOff)
	if rev == allOnes && cmd == allOnes {
		return ErrGone
	}
	d := prm.InitSegCmdIfRev(cmd)
	if got := d.CmdInterfaceRev(); got != cmdifRevision {
		return fmt.Errorf("command interface revision %d, this driver needs %d", got, cmdifRevision)
	}
	h.Embedded = prm.InitSegState(h.Window.Load32(regState)).EmbeddedCPU()
	f := prm.InitSegFWRev(rev)
	h.Firmware = FirmwareVersion{f.FWRevMajor(), f.FWRevMinor(), d.FWRevSubminor()}
	h.config.Log.Info("firmware version: " + h.Firmware.String())
	return nil
}

func (h *HCA) newArena(size int, kind dma.Kind) (*dma.Arena, error) {
	if kind == dma.Auto {
		kind = h.config.Arena
	}
	return h.config.Function.NewArena(size, kind)
}

func (h *HCA) commandQueue(context.Context) error {
	h.started = true
	c, err := cmdif.Open(cmdif.Config{
		Window: h.Window, NewArena: h.newArena, Timeout: h.timeouts().Command,
		Submit: h.config.Submit, Work: h.config.Work, Mailboxes: h.config.Mailboxes, MeasureFree: h.config.MeasureFree, PageCPU: h.config.PageCPU,
		Log: h.config.Log, Trace: h.config.Trace,
	})
	if err != nil {
		return err
	}
	h.cmd = c
	h.undo.Add("settle commands", func(ctx context.Context) error { c.Settle(ctx); return nil })
	h.Objects = object.NewBook(c)
	h.Pages = fwpages.New(fwpages.Config{
		Exec: h.Objects, NewArena: h.config.Function.NewArena, ReclaimLimit: h.config.ReclaimLimit, MaxVFs: h.TotalVFs,
		MaxPages: h.config.MaxPages, HostPage: h.config.HostPage, CPU: h.config.PageCPU, Stall: h.timeouts().Stall,
		Down: h.Err, Embedded: h.Embedded, Log: h.config.Log,
	})
	return nil
}

// exec runs a command whose output nobody wants.
func (h *HCA) exec(ctx context.Context, in cmdif.In, out cmdif.Out) error {
	return h.Objects.Exec(ctx, in, out)
}

func (h *HCA) enable(ctx context.Context) error {
	if err := h.exec(ctx, &prm.EnableHCAIn{EmbeddedCPUFunction: h.Embedded}, &prm.EnableHCAOut{}); err != nil {
		return err
	}
	h.undo.Add("disable the HCA", func(ctx context.Context) error {
		return h.exec(ctx, &prm.DisableHCAIn{EmbeddedCPUFunction: h.Embedded}, &prm.DisableHCAOut{})
	})
	return nil
}

// issi chooses version 1, which all layouts in prm are of.
func (h *HCA) issi(ctx context.Context) error {
	var q prm.QueryISSIOut
	if err := h.exec(ctx, &prm.QueryISSIIn{}, &q); err != nil {
		return err
	}
	if q.SupportedISSIDw0>>1&1 == 0 {
		return fmt.Errorf("firmware supports interface versions %#x (a bit each), this driver needs version 1", q.SupportedISSIDw0)
	}
	return h.exec(ctx, &prm.SetISSIIn{CurrentISSI: 1}, &prm.SetISSIOut{})
}

func (h *HCA) bootPages(ctx context.Context) error {
	// Registered first: a GIVE without an answer leaves pages out as well.
	h.undo.Add("reclaim pages", h.Pages.ReclaimAll)
	return h.Pages.Boot(ctx, prm.QueryPagesBoot)
}

func (h *HCA) initPages(ctx context.Context) error {
	return h.Pages.Boot(ctx, prm.QueryPagesInit)
}

// Virtual tells whether a PCI device identifier is that of a virtual function (00-overview §1).
func Virtual(device uint16) bool {
	switch device {
	case 0x1012, 0x1014, 0x1016, 0x1018, 0x101A, 0x101C, 0x101E, 0xA2D3:
		return true
	}
	return false
}

// endianness says that the host is little endian. A virtual function has no say in it (Linux main.c).
func (h *HCA) endianness(ctx context.Context) error {
	if Virtual(h.config.Function.Info().Device) {
		return nil
	}
	reg := prm.RegHostEndianness{}
	in := prm.AccessRegIn{OpMod: uint16(prm.AccessRegWrite), RegisterID: prm.RegIDHostEndianness, RegisterData: make([]byte, reg.Len())}
	reg.Put(in.RegisterData)
	return h.exec(ctx, &in, &prm.AccessRegOut{RegisterData: make([]byte, reg.Len())})
}

func (h *HCA) initHCA(ctx context.Context) error {
	if err := h.exec(ctx, &prm.InitHCAIn{}, &prm.InitHCAOut{}); err != nil {
		return err
	}
	h.undo.Add("tear down the HCA", func(ctx context.Context) error {
		return h.exec(ctx, &prm.TeardownHCAIn{Profile: prm.TeardownGraceful}, &prm.TeardownHCAOut{})
	})
	return nil
}

func (h *HCA) driverVersion(ctx context.Context) error {
	if !h.General.DriverVersion || h.config.Version == "" {
		return nil
	}
	var in prm.SetDriverVersionIn
	copy(in.DriverVersion[:len(in.DriverVersion)-1], h.config.Version)
	err := h.exec(ctx, &in, &prm.SetDriverVersionOut{})
	var refused *prm.CommandError
	if errors.As(err, &refused) {
		h.config.Log.Warn("firmware does not take the driver's version", "err", err)
		return nil
	}
	return err
}

func (h *HCA) adapter(ctx context.Context) error {
	var out prm.QueryAdapterOut
	err := h.exec(ctx, &prm.QueryAdapterIn{}, &out)
	var refused *prm.CommandError
	if errors.As(err, &refused) {
		h.config.Log.Warn("firmware does not tell its board id", "err", err)
		return nil
	}
	h.PSID = printable(out.Adapter.VSDContdPSID[:])
	return err
}

// printable keeps the leading ASCII text of b.
func printable(b []byte) string {
	i := 0
	for i < len(b) && b[i] > ' ' && b[i] < 0x7F {
		i++
	}
	return strings.Clone(string(b[:i]))
}

// create makes an object that lives as long as the HCA.
func (h *HCA) create(ctx context.Context, in cmdif.In, out cmdif.Out) (object.Object, error) {
	o, err := h.Objects.Create(ctx, in, out)
	if err != nil {
		return o, err
	}
	h.undo.Add("destroy "+o.String(), func(ctx context.Context) error { return h.Objects.Destroy(ctx, o) })
	return o, nil
}

// uarPage is the size of a doorbell page: log_uar_page_sz is set to 0.
const uarPage = 4096

func (h *HCA) allocUAR(ctx context.Context) error {
	o, err := h.create(ctx, &prm.AllocUARIn{}, &prm.AllocUAROut{})
	if err != nil {
		return err
	}
	h.UAR, h.Doorbells = o.Number, uint64(o.Number)*uarPage
	switch {
	case h.Doorbells+uarPage > h.Window.Size():
		return fmt.Errorf("doorbell page %#x is beyond BAR 0 of %#x bytes", h.UAR, h.Window.Size())
	case h.Doorbells < prm.InitSegSize:
		return fmt.Errorf("doorbell page %#x lies in the initialization segment", h.UAR)
	}
	return nil
}

// asyncEvents are the types that the asynchronous event queue gets, beside those that depend on
// capabilities.
const asyncEvents = 1<<prm.EventCQError | 1<<prm.EventWQCatastrophic | 1<<prm.EventPortChange |
	1<<prm.EventWQInvalidRequest | 1<<prm.EventWQAccess

func (h *HCA) eventQueues(ctx context.Context) error {
	h.Events = event.New(event.Config{
		Function: h.config.Function, Objects: h.Objects, NewArena: h.newArena, Window: h.Window,
		Doorbells: h.Doorbells, UAR: h.UAR, Log: h.config.Log, Trace: h.config.Trace,
		Commands: h.cmd.Complete, Pages: h.Pages.Handle, Fatal: h.Fail,
	})
	h.undo.Add("stop event dispatch", func(context.Context) error { h.Events.Stop(); return nil })
	var err error
	h.cmd.Only(prm.OpCreateEQ) // until it is known how commands end
	h.commEQ, err = h.Events.CreateCommandEQ(ctx)
	h.cmd.Only(0)
	if err != nil {
		return fmt.Errorf("command EQ: %w", err)
	}
	h.cmd.UseEvents(h.commEQ.Poll)
	h.undo.Add("destroy the command EQ", func(ctx context.Context) error {
		h.cmd.UsePolling() // its own end would not be announced any more
		return h.Events.Destroy(ctx, h.commEQ)
	})
	mask := uint64(asyncEvents)
	for typ, wanted := range map[prm.EventType]bool{
		prm.EventPortModule:         h.General.PortModuleEvent,
		prm.EventTemperatureWarning: h.General.TempWarnEvent,
		prm.EventGeneral:            h.General.GeneralNotificationEvent,
		prm.EventNICVportChange:     h.General.VportGroupManager,
		prm.EventMonitorCounter:     h.General.MaxNumOfMonitorCounters != 0,
	} {
		if wanted {
			mask |= 1 << typ
		}
	}
	async, err := h.Events.CreateAsyncEQ(ctx, mask)
	if err != nil {
		return fmt.Errorf("async EQ: %w", err)
	}
	h.undo.Add("destroy the async EQ", func(ctx context.Context) error { return h.Events.Destroy(ctx, async) })
	h.watchSurroundings()
	if h.General.PageRequestDisable {
		return nil
	}
	h.Pages.Start()
	h.undo.Add("stop the page worker", h.Pages.Stop)
	pages, err := h.Events.CreatePagesEQ(ctx)
	if err != nil {
		return fmt.Errorf("pages EQ: %w", err)
	}
	h.Pages.UseEvents(pages.Poll)
	h.undo.Add("destroy the pages EQ", func(ctx context.Context) error { return h.Events.Destroy(ctx, pages) })
	return nil
}

func (h *HCA) completionQueues(ctx context.Context) error {
	n := max(1, h.config.Queues)
	if v := h.config.Function.Info().Vectors - 1; v > 0 {
		n = min(n, v)
	} else {
		n = 1
	}
	if most := maxEQs(&h.General) - 3; most < 1 {
		return fmt.Errorf("card has %d event queues, three serve commands, events and pages", most+3)
	} else if n > most {
		n = most
	}
	h.undo.Add("destroy completion EQs", h.Events.DestroyCompletionEQs)
	if err := h.Events.CreateCompletionEQs(ctx, n); err != nil {
		return err
	}
	for i := range n {
		h.CompletionEQs = append(h.CompletionEQs, h.Events.Completion(i))
	}
	return nil
}

func (h *HCA) allocPD(ctx context.Context) error {
	o, err := h.create(ctx, &prm.AllocPDIn{}, &prm.AllocPDOut{})
	h.PD = o.Number
	return err
}

func (h *HCA) allocTD(ctx context.Context) error {
	o, err := h.create(ctx, &prm.AllocTransportDomainIn{}, &prm.AllocTransportDomainOut{})
	h.TD = o.Number
	return err
}

func (h *HCA) specialContexts(ctx context.Context) error {
	err := h.exec(ctx, &prm.QuerySpecialContextsIn{}, &h.Special)
	var refused *prm.CommandError
	if errors.As(err, &refused) {
		h.config.Log.Debug("no special contexts", "err", err) // older firmware; the memory key serves
		return nil
	}
	return err
}

// memoryKey makes a key that reaches all memory by bus address, for local reads and writes (mlx5e en_main.c).
func (h *HCA) memoryKey(ctx context.Context) error {
	in := prm.CreateMKeyIn{Context: prm.MKeyContext{
		LR: true, LW: true, Length64: true, QPN: 0xFFFFFF, PD: h.PD,
	}}
	o, err := h.create(ctx, &in, &prm.CreateMKeyOut{})
	h.MKey = o.Number<<8 | uint32(in.Context.MKey7_0)
	return err
}
