//go:build linux

package vmtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cxkit/device"
	"cxkit/device/wire"
	"cxkit/drivertest"
	"cxkit/pci"
	"cxkit/trace"
	"cxkit/transport/transporttest"
	"cxkit/transport/vfiouser/server"
)

// The proof of transport/vfio without a card: the guest kernel's own VFIO and an emulated IOMMU are between
// our driver, in the guest, and our model, in this process.

// TestVFIOInAGuest runs the conformance suites of package inguest in guests, and cxkit itself as a user would.
// Of the NICs' suite it runs a choice that uses each part of the transport; CXKIT_VFIO_SUITE=all runs all of
// it, which takes minutes where the guest's processor is emulated. CXKIT_VFIO_IOMMU=amd or virtio runs a guest
// with that IOMMU in place of those with Intel's.
func TestVFIOInAGuest(t *testing.T) {
	t.Parallel()
	for _, v := range vfioGuests(t) {
		t.Run(v.name, func(t *testing.T) { testVFIO(t, v) })
	}
}

func testVFIO(t *testing.T, v vfioGuest) {
	f := findTools(t, v.kernel)
	h := newVFIOHost(t)
	g := f.guestFor(t, "vfio.sh")
	g.Load = append(v.load, "vfio_iommu_type1", "vfio_pci")
	g.Modules = []string{"mlx5_core", "virtio_pci", "virtio_console"}
	g.ModuleFiles, g.Append = v.modules, v.cmdline
	g.Devices = h.devices(f.accel, v.iommu)
	g.Limit = 6 * time.Minute // machines that test are slow
	args := "-test.v -test.timeout 5m -test.run TestTransport|TestCard/(NIC|Speed)/^(" + v.tests + ")$"
	if os.Getenv("CXKIT_VFIO_SUITE") == "all" {
		g.Limit, args = 45*time.Minute, "-test.v -test.timeout 40m"
	}
	if v.skip != "" {
		args += " -test.skip " + v.skip
	}
	reporter, err := os.ReadFile("../../scripts/card-report.sh")
	if err != nil {
		t.Fatal(err)
	}
	g.Files = append(g.Files,
		File{Path: "/root/card-report.sh", Data: reporter},
		File{Path: "/usr/bin/inguest", Data: buildStatic(t, "test", "-c", "-o", "OUT", "cxkit/internal/vmtest/inguest"), Program: true},
		File{Path: "/usr/bin/cxkit", Data: buildStatic(t, "build", "-o", "OUT", "cxkit/cmd/cxkit"), Program: true},
		File{Path: "/root/suite.args", Data: []byte(args)},
	)
	opinion, missing := findOpinion(t)
	if v.iommu != "" { // rdma-core wants one
		g.Files = append(g.Files, opinion...)
	}
	answer(t, g, h.asked)
	result, err := g.Run(t.Context())
	if err != nil {
		t.Fatalf("%v\n--- the last %d trace records ---\n%s", err, TraceRecords, h.lastRecords())
	}
	t.Logf("boot %v, command %v, whole %v", result.Boot, result.Command, result.Whole)
	t.Log(result.Output)
	if result.Status != 0 {
		t.Fatalf("the guest's command ended with status %d\n--- console ---\n%s", result.Status, result.Console)
	}
	if !result.PoweredOff {
		t.Error("the guest did not power off")
	}
	h.judge()
	if v.iommu == "" {
		return
	}
	t.Run("SecondOpinion", func(t *testing.T) { judgeOpinion(t, missing, result.Output) })
}

// buildStatic builds a program or a test binary for the guest; OUT stands for where.
func buildStatic(t testing.TB, args ...string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	for i, a := range args {
		if a == "OUT" {
			args[i] = path
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=-mod=mod -ldflags=-s -ldflags=-w")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, out)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// vfioHost is the host's side: the suite's card, a ConnectX, and the calls of the guest's far end.
type vfioHost struct {
	t       testing.TB
	dir     string
	card    *device.Card
	watched []*watched
	servers []*server.Server
	rec     *trace.Recorder
	source  *countedSource // of "blast"

	mu        sync.Mutex // guards the rest
	near      *wire.End
	far       *wire.End
	ram       int                           // mappings of the ConnectX while the guest's kernel has it
	cancels   map[uint64]context.CancelFunc // of waits under way
	cancelled map[uint64]bool
}

func newVFIOHost(t testing.TB) *vfioHost {
	t.Helper()
	dir, err := os.MkdirTemp("", "cxkit-test-") // not t.TempDir: the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := &vfioHost{t: t, dir: dir, cancels: map[uint64]context.CancelFunc{}, cancelled: map[uint64]bool{}, rec: trace.New(trace.Config{Records: 8192})}
	// Little memory for firmware: the suite opens the card a hundred times, and a guest without KVM maps slowly.
	h.card, err = device.New(device.Config{Memory: device.Memory{Init: 64}, Trace: h.rec})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { h.card.Run(ctx) })
	t.Cleanup(func() {
		for _, s := range h.servers {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		stop()
		running.Wait()
		if err := h.card.Close(); err != nil {
			t.Error(err)
		}
	})
	for i, ep := range []pci.Endpoint{transporttest.NewCard(), h.card.Function(0)} {
		w := &watched{Endpoint: ep, expected: i == 0}
		s, err := server.Listen(h.socket(i), w, server.Config{})
		if err != nil {
			t.Fatal(err)
		}
		h.watched, h.servers = append(h.watched, w), append(h.servers, s)
		running.Go(func() { s.Serve(ctx) })
	}
	h.listen()
	return h
}

func (h *vfioHost) socket(i int) string { return filepath.Join(h.dir, fmt.Sprintf("card%d", i)) }

// devices are QEMU's arguments: the IOMMU comes before what is behind it.
func (h *vfioHost) devices(accel Accel, iommu string) []string {
	var args []string
	if iommu != "" {
		args = append(args, "-device", iommu)
	}
	args = append(args,
		"-chardev", "socket,id=calls,path="+filepath.Join(h.dir, "calls"),
		"-device", "virtio-serial-pci,id=serial", "-device", "virtserialport,bus=serial.0,chardev=calls,name=calls",
	)
	if accel == AccelKVM {
		args = append(args, "-machine", "kernel-irqchip=split") // for interrupt remapping
	}
	for i := range h.servers {
		args = append(args, CardArguments(i, h.socket(i))...)
	}
	return args
}

// asked answers the guest's script.
func (h *vfioHost) asked(question string) {
	books, maps := h.card.Books().Functions[0], h.servers[1].Stats().Maps
	switch question {
	case "begin": // the kernel has the card: what is mapped is the guest's memory
		h.ram = maps
	case "idle": // nobody has the card
		if !books.Clean() {
			h.t.Errorf("firmware has %d pages and objects %v", books.Pages, books.Objects)
		}
		if maps != 0 && maps != h.ram {
			h.t.Errorf("%d mappings while nobody has the card, want none, or the guest's memory (%d)", maps, h.ram)
		}
	case "end": // the kernel has it again
		if maps != h.ram {
			h.t.Errorf("%d mappings at the end, want the guest's memory as in the beginning (%d)", maps, h.ram)
		}
	case "removed": // cxkit has let go of a card that nobody could reset
		if !books.Clean() || books.Phase == "initialised" {
			h.t.Errorf("after its removal the card is %s, has %d pages and objects %v", books.Phase, books.Pages, books.Objects)
		}
	case "opinion": // a wire for the other driver
		if err := h.plug(false); err != nil {
			h.t.Error(err)
		}
	case "heard":
		if err := h.listens(); err != nil {
			h.t.Errorf("the other driver's frames: %v", err)
		}
	case "blast": // as fast as the card takes them
		h.unplug()
		h.source = &countedSource{Source: wire.NewSource(0, broadcast())}
		if _, err := h.card.Plug(0, h.source); err != nil {
			h.t.Error(err)
		}
	case "silence":
		if _, err := h.card.Plug(0, wire.NewDiscard()); err != nil {
			h.t.Error(err)
		}
	case "flood":
		h.unplug()
		frame := make([]byte, 200)
		copy(frame, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x88, 0xb5})
		rate, err := wire.ParseRate("2kpps")
		if err == nil {
			_, err = h.card.Plug(0, wire.Pace(wire.NewSource(0, frame), rate, wire.SystemClock{}))
		}
		if err != nil {
			h.t.Error(err)
		}
	default:
		h.t.Errorf("the guest asks %q", question)
	}
}

// listen answers the guest's calls.
func (h *vfioHost) listen() {
	l, err := net.Listen("unix", filepath.Join(h.dir, "calls"))
	if err != nil {
		h.t.Fatal(err)
	}
	calls := rpc.NewServer()
	if err := calls.RegisterName("Card", &farCalls{h}); err != nil {
		h.t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			calls.ServeConn(conn) // until QEMU ends
		}
	})
	h.t.Cleanup(func() {
		l.Close()
		h.unplug()
		serving.Wait()
	})
}

func (h *vfioHost) unplug() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.near != nil {
		h.near.Close()
		h.far.Close()
		h.near, h.far = nil, nil
	}
}

func (h *vfioHost) lastRecords() string {
	var b strings.Builder
	if err := trace.WriteText(&b, h.rec.Last(TraceRecords)); err != nil {
		return err.Error()
	}
	return b.String()
}

// judge looks at what only the host sees.
func (h *vfioHost) judge() {
	// Linux keeps the pages when it powers off. The end of QEMU resets the card, once its server has seen it.
	for limit := time.Now().Add(time.Minute); !h.card.Books().Functions[0].Clean() && time.Now().Before(limit); {
		time.Sleep(time.Millisecond) // another process ends
	}
	if b := h.card.Books().Functions[0]; !b.Clean() {
		h.t.Errorf("firmware has %d pages and objects %v", b.Pages, b.Objects)
	}
	h.watched[1].judge(h.t)
	for i, s := range h.servers {
		if s := s.Stats(); s.Clients != 1 || s.VectorsDropped != 0 {
			h.t.Errorf("server %d: %+v", i, s)
		}
	}
}

// farCalls are what the guest may ask for.
type farCalls struct{ h *vfioHost }

// Plug plugs a new cable into the ConnectX.
func (c *farCalls) Plug(lossy bool, _ *struct{}) error {
	return c.h.plug(lossy)
}

// begin makes a wait that Cancel ends.
func (c *farCalls) begin(id uint64) (ctx context.Context, far *wire.End, end func(), err error) {
	h := c.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.far == nil {
		return nil, nil, nil, errors.New("nothing is plugged in")
	}
	ctx, cancel := context.WithCancel(context.Background())
	if h.cancelled[id] { // the calls are served side by side, so that its end may come before it
		cancel()
	}
	h.cancels[id] = cancel
	return ctx, h.far, func() {
		cancel()
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.cancels, id)
	}, nil
}

// SendRequest and RecvRequest are those of package inguest.
type (
	SendRequest struct {
		ID     uint64
		Frames [][]byte
	}
	RecvRequest struct{ ID uint64 }
)

func (c *farCalls) Send(r SendRequest, _ *struct{}) error {
	ctx, far, end, err := c.begin(r.ID)
	if err != nil {
		return err
	}
	defer end()
	return far.SendAll(ctx, r.Frames...)
}

func (c *farCalls) Recv(r RecvRequest, frame *[]byte) error {
	ctx, far, end, err := c.begin(r.ID)
	if err != nil {
		return err
	}
	defer end()
	*frame, err = far.Recv(ctx)
	return err
}

func (c *farCalls) Cancel(id uint64, _ *struct{}) error {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	if cancel := c.h.cancels[id]; cancel != nil {
		cancel()
	}
	c.h.cancelled[id] = true
	return nil
}

func (c *farCalls) SetLink(up bool, _ *struct{}) error {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	if c.h.far != nil {
		c.h.far.SetLink(up)
	}
	return nil
}

func (c *farCalls) Books(_ struct{}, b *drivertest.CardBooks) error {
	f := c.h.card.Books().Functions[0]
	*b = drivertest.CardBooks{Pages: f.Pages, Objects: f.Objects, Commands: f.Running}
	return nil
}

// watched is an endpoint whose accesses to the host's memory are watched: none may be outside of what is mapped.
type watched struct {
	pci.Endpoint
	expected bool // it is told to reach outside
	crossings

	mu     sync.Mutex // guards missed
	missed []string
}

// judge says what was reached for and was not mapped.
func (w *watched) judge(t testing.TB) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.missed) > 0 {
		t.Errorf("the card reached for memory that was not mapped: %v", w.missed)
	}
}

func (w *watched) Attach(h pci.Host) error {
	if w.expected {
		return w.Endpoint.Attach(h)
	}
	return w.Endpoint.Attach(watchedHost{h, w})
}

func (w *watched) ReadBAR(bar int, off uint64, size int) uint64 {
	w.reads.Add(1)
	return w.Endpoint.ReadBAR(bar, off, size)
}

func (w *watched) WriteBAR(bar int, off uint64, size int, v uint64) {
	w.write(off)
	w.Endpoint.WriteBAR(bar, off, size, v)
}

type watchedHost struct {
	pci.Host
	w *watched
}

func (h watchedHost) Raise(vector int) {
	h.w.interrupts.Add(1)
	h.Host.Raise(vector)
}

func (h watchedHost) Memory() pci.Memory { return watchedMemory{h.Host.Memory(), h.w} }

type watchedMemory struct {
	pci.Memory
	w *watched
}

func (m watchedMemory) note(err error) error {
	if err != nil {
		m.w.mu.Lock()
		defer m.w.mu.Unlock()
		if len(m.w.missed) < 20 {
			m.w.missed = append(m.w.missed, err.Error())
		}
	}
	return err
}

// View without memory may be one that crosses mappings: its pages tell, without a copy of them.
func (m watchedMemory) View(addr uint64, n int, access pci.Access) []byte {
	const page = 4096
	b := m.Memory.View(addr, n, access)
	if b != nil || n <= 0 || n > 1<<20 {
		return b
	}
	for at, end := addr, addr+uint64(n); at < end; {
		part := int(min(end-at, page-at%page))
		if m.Memory.View(at, part, access) == nil && m.note(m.Memory.ReadAt(make([]byte, part), at)) != nil {
			break
		}
		at += uint64(part)
	}
	return b
}

func (m watchedMemory) ReadAt(p []byte, addr uint64) error  { return m.note(m.Memory.ReadAt(p, addr)) }
func (m watchedMemory) WriteAt(p []byte, addr uint64) error { return m.note(m.Memory.WriteAt(p, addr)) }

// Fault passes on what a Guard asks.
func (m watchedMemory) Fault(addr uintptr) bool {
	f, ok := m.Memory.(pci.Faulter)
	return ok && f.Fault(addr)
}
