//go:build linux

package vmtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"cxkit/device"
	"cxkit/driver"
	"cxkit/drivertest"
	"cxkit/transport/inproc"
)

// hostSide is the host of a card with a processor of its own: its physical function, and the virtual ones that
// it has enabled.
type hostSide struct {
	card *device.Card
	pf   *driver.NIC
	vfs  []*driver.NIC
	undo []func(context.Context) error
}

// open opens a function as the host's driver does, which waits until the card's processor lets it start.
func (h *hostSide) open(ctx context.Context, n int) (*driver.NIC, error) {
	f, err := inproc.Open(h.card.Function(n), inproc.Config{})
	if err != nil {
		return nil, err
	}
	h.undo = append(h.undo, func(context.Context) error { return f.Close() })
	nic, err := driver.Open(ctx, f, driver.Config{CheckBuffers: true})
	if err != nil {
		return nil, fmt.Errorf("function %d: %w", n, err)
	}
	h.undo = append(h.undo, nic.Close)
	return nic, nil
}

// enable brings the physical function up and n virtual functions.
func (h *hostSide) enable(ctx context.Context, n int) (err error) {
	if h.pf, err = h.open(ctx, h.card.HostPF(0)); err != nil {
		return err
	}
	if err := h.pf.EnableVFs(ctx, n); err != nil {
		return err
	}
	for i := range n {
		nic, err := h.open(ctx, h.card.VF(0, i+1))
		if err != nil {
			return err
		}
		h.vfs = append(h.vfs, nic)
	}
	return nil
}

// close closes what is open, latest first.
func (h *hostSide) close(ctx context.Context) (err error) {
	for i := len(h.undo) - 1; i >= 0; i-- {
		err = errors.Join(err, h.undo[i](ctx))
	}
	h.undo = nil
	return err
}

// talk sends n frames each way between virtual functions a and b, from 1, each as answer to the one before.
// What comes beside, such as what Linux sends on its bridge, is passed over.
func (h *hostSide) talk(ctx context.Context, a, b, n int) error {
	ends := [2]*driver.NIC{h.vfs[a-1], h.vfs[b-1]}
	for i := range 2 * n {
		from, to := ends[i%2], ends[1-i%2]
		frame := drivertest.Frame(to.MAC(), 256, uint32(a<<16|i))
		mac := from.MAC()
		copy(frame[6:], mac[:])
		if err := deliver(ctx, from.TxQueue(0), to.RxQueue(0), frame); err != nil {
			return fmt.Errorf("frame %d of virtual functions %d and %d: %w", i, a, b, err)
		}
	}
	return nil
}

// deliver sends a frame until it arrives, as Linux forwards none before the bridge's port has its carrier.
func deliver(ctx context.Context, from *driver.TxQueue, to *driver.RxQueue, frame []byte) error {
	for range 60 {
		if err := send(ctx, from, frame); err != nil {
			return err
		}
		try, cancel := context.WithTimeout(ctx, time.Second)
		err := await(try, to, frame)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
	return errors.New("it does not arrive")
}

func send(ctx context.Context, q *driver.TxQueue, frame []byte) error {
	var pkts [1]driver.Packet
	for q.Get(pkts[:]) == 0 {
		if err := q.Wait(ctx); err != nil {
			return err
		}
		q.Reap()
	}
	pkts[0].Data = append(pkts[0].Data[:0], frame...)
	if q.Send(pkts[:]) != 1 {
		return errors.New("the send queue takes no frame")
	}
	return q.Flush(ctx)
}

func await(ctx context.Context, q *driver.RxQueue, frame []byte) error {
	var pkts [1]driver.Packet
	for {
		if q.Poll(pkts[:]) == 0 {
			if err := q.Wait(ctx); err != nil {
				return err
			}
			continue
		}
		found := bytes.Equal(pkts[0].Data, frame)
		q.Release(pkts[:])
		if found {
			return nil
		}
	}
}

// TestLinuxBridgesTheHostsVirtualFunctions has Linux manage the e-switch of a card as that card's own processor.
// It runs with CXKIT_EMBEDDED_SUITE=all, for it needs a kernel that no other test does.
func TestLinuxBridgesTheHostsVirtualFunctions(t *testing.T) {
	if os.Getenv("CXKIT_EMBEDDED_SUITE") != "all" {
		t.Skip("CXKIT_EMBEDDED_SUITE=all runs it, with kernel 6.12-full")
	}
	t.Parallel()
	f := findTools(t, "6.12-full")
	cards, sockets := serveCards(t, 1, CardsConfig{Device: device.Config{Profile: "bf2", VFs: 8, Lenient: true}})
	h := &hostSide{card: cards.Card(0)}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	g := f.guestFor(t, "embedded.sh")
	g.Sockets, g.Limit = sockets, 5*time.Minute
	g.Tools = append(g.Tools, "devlink", "bridge")
	g.Modules = append(g.Modules, "bridge")
	answerWith(t, g, func(question string) string {
		verb, what, _ := strings.Cut(question, " ")
		n, err := strconv.Atoi(what)
		switch verb {
		case "enable":
			err = errors.Join(err, h.enable(ctx, n))
		case "talk": // each with the next
			for i := 1; i < len(h.vfs); i += 2 {
				err = errors.Join(err, h.talk(ctx, i, i+1, n))
			}
		case "macs":
			var macs []string
			for _, nic := range h.vfs {
				macs = append(macs, nic.MAC().String())
			}
			return strings.Join(macs, " ")
		case "disable":
			err = h.close(ctx)
		}
		if err != nil {
			t.Errorf("%s: %v", question, err)
			return "failed"
		}
		return "done"
	})
	run(t, g, cards)
	for i, b := range cards.Card(0).Books().Functions {
		if !b.Clean() {
			t.Errorf("function %d: %+v", i, b)
		}
	}
}
