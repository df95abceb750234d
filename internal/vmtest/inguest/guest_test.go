//go:build linux

package inguest

import (
	"context"
	"errors"
	"fmt"
	"net/rpc"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"cxkit/dma"
	"cxkit/driver"
	"cxkit/drivertest"
	"cxkit/pci"
	"cxkit/transport/transporttest"
	"cxkit/transport/vfio"
)

// Where the cards are; vmtest sets both.
const (
	suiteCard = "CXKIT_GUEST_SUITE_CARD" // PCI address of transporttest's card
	nicCard   = "CXKIT_GUEST_NIC"        // PCI address of the ConnectX
	noIOMMU   = "CXKIT_GUEST_NO_IOMMU"   // not empty if there is no IOMMU
)

func TestMain(m *testing.M) {
	if os.Getenv(suiteCard) == "" {
		fmt.Println("these tests run in a guest: see internal/vmtest")
		return
	}
	os.Exit(m.Run())
}

func open(t testing.TB, variable string) *vfio.Function {
	t.Helper()
	f, err := vfio.Open(t.Context(), os.Getenv(variable), vfio.Config{NoIOMMU: os.Getenv(noIOMMU) != ""})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// TestTransport is the transports' suite. QEMU forwards interrupts and maps the guest's pages one by one.
func TestTransport(t *testing.T) {
	transporttest.Run(t, transporttest.Options{
		Open:      func(t testing.TB) pci.Function { return open(t, suiteCard) },
		Kinds:     []dma.Kind{dma.Private, dma.Shared, dma.Reserved},
		Scattered: true, Late: true,
	})
}

// TestCard is what a NIC must do, and what that costs here.
func TestCard(t *testing.T) {
	host := dialHost(t)
	t.Run("NIC", func(t *testing.T) {
		drivertest.Run(t, func(t *testing.T, o drivertest.Options) *drivertest.Bench {
			if o.Card != "" {
				t.Skipf("the card of this guest is a ConnectX-5, the test wants a %s", o.Card)
			}
			f := open(t, nicCard)
			far := host.newFar(t, o.Lossy)
			return &drivertest.Bench{Function: f, Far: far, Books: far.books, Used: true}
		})
	})
	t.Run("Speed", func(t *testing.T) { speed(t, host) })
}

// speed prints how long things take that a user waits for.
func speed(t *testing.T, host *caller) {
	far := host.newFar(t, false)
	began := time.Now()
	f := open(t, nicCard)
	nic, err := driver.Open(t.Context(), f, driver.Config{Promiscuous: true})
	if err != nil {
		t.Fatal(err)
	}
	frame := make([]byte, 64)
	copy(frame, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x88, 0xb5})
	if err := far.SendAll(t.Context(), frame); err != nil {
		t.Fatal(err)
	}
	pkts := make([]driver.Packet, 1)
	for nic.RxQueue(0).Poll(pkts) == 0 {
		if err := nic.RxQueue(0).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("open to first packet: %v", time.Since(began))
	nic.RxQueue(0).Release(pkts)
	if err := nic.Close(t.Context()); err != nil {
		t.Error(err)
	}

	began = time.Now()
	a, err := f.NewArena(128<<20, dma.Private)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("map 128 MiB on %q: %v", a.Backing(), time.Since(began))
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	began = time.Now()
	if err := f.Reset(t.Context()); err != nil {
		t.Error(err)
	}
	t.Logf("function level reset: %v", time.Since(began))
}

// caller makes calls to who serves the cards, over a serial port of the guest's.
type caller struct {
	calls *rpc.Client
	ids   atomic.Uint64
}

func dialHost(t *testing.T) *caller {
	t.Helper()
	names, err := filepath.Glob("/dev/vport*p1")
	if err != nil || len(names) != 1 {
		t.Fatalf("ports to the host: %v, %v", names, err)
	}
	f, err := os.OpenFile(names[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := &caller{calls: rpc.NewClient(f)}
	t.Cleanup(func() { c.calls.Close() })
	return c
}

func (c *caller) call(method string, args, result any) error {
	if result == nil {
		result = new(struct{})
	}
	return c.calls.Call("Card."+method, args, result)
}

// far is the far end of the card's wire. It is a drivertest.Far.
type far struct {
	*caller
	t testing.TB
}

// newFar has a new cable plugged into the card.
func (c *caller) newFar(t testing.TB, lossy bool) *far {
	t.Helper()
	if err := c.call("Plug", lossy, nil); err != nil {
		t.Fatal(err)
	}
	return &far{c, t}
}

// SendRequest and RecvRequest are waits that the guest may give up.
type (
	SendRequest struct {
		ID     uint64
		Frames [][]byte
	}
	RecvRequest struct{ ID uint64 }
)

func (f *far) SendAll(ctx context.Context, frames ...[]byte) error {
	id := f.ids.Add(1)
	return f.wait(ctx, id, "Send", SendRequest{id, frames}, new(struct{}))
}

func (f *far) Recv(ctx context.Context) (frame []byte, err error) {
	id := f.ids.Add(1)
	err = f.wait(ctx, id, "Recv", RecvRequest{id}, &frame)
	return frame, err
}

// wait makes a call that ends early when ctx does: what had come until then has come.
func (f *far) wait(ctx context.Context, id uint64, method string, args, result any) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	call := f.calls.Go("Card."+method, args, result, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		return call.Error
	case <-ctx.Done():
	}
	if err := f.call("Cancel", id, nil); err != nil {
		return err
	}
	<-call.Done
	if call.Error != nil {
		return errors.Join(ctx.Err(), call.Error)
	}
	return nil
}

func (f *far) SetLink(up bool) {
	if err := f.call("SetLink", up, nil); err != nil {
		f.t.Errorf("link: %v", err)
	}
}

func (f *far) books() (b drivertest.CardBooks, err error) {
	err = f.call("Books", struct{}{}, &b)
	return b, err
}
