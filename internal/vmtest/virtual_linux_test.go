//go:build linux

package vmtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cxkit/device"
	"cxkit/device/wire"
	"cxkit/driver"
	"cxkit/trace"
	"cxkit/transport/inproc"
	"cxkit/transport/vfiouser/server"
)

// virtualCard is a card whose physical function this process drives, and whose virtual functions are served.
type virtualCard struct {
	*Cards
	manager *driver.NIC
	sockets []string
}

func serveVirtual(t *testing.T, vfs int) *virtualCard {
	t.Helper()
	dir, err := os.MkdirTemp("", "cxkit-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	rec := trace.New(trace.Config{Records: 8192})
	card, err := device.New(device.Config{VFs: vfs, Lenient: true, Trace: rec})
	if err != nil {
		t.Fatal(err)
	}
	near, far := wire.NewCable(wire.CableOptions{Lossy: true})
	if _, err := card.Plug(0, near); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &virtualCard{Cards: &Cards{cards: []*device.Card{card}, trace: rec, stop: stop}}
	c.goRun(ctx, "engine", card.Run)
	t.Cleanup(func() {
		if err := errors.Join(c.Cards.Close(), near.Close(), far.Close()); err != nil {
			t.Error(err)
		}
	})
	f, err := inproc.Open(card.Function(0), inproc.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if c.manager, err = driver.Open(t.Context(), f, driver.Config{CheckBuffers: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := c.manager.Close(ctx); err != nil {
			t.Error(err)
		}
		for i, b := range card.Books().Functions {
			if !b.Clean() {
				t.Errorf("function %d: %+v", i, b)
			}
		}
	})
	if err := c.manager.EnableVFs(t.Context(), vfs); err != nil {
		t.Fatal(err)
	}
	for i := range vfs {
		path := filepath.Join(dir, fmt.Sprintf("vf%d", i+1))
		s, err := server.Listen(path, card.Function(card.VF(0, i+1)), server.Config{})
		if err != nil {
			t.Fatal(err)
		}
		c.servers = append(c.servers, s)
		c.goRun(ctx, "socket", s.Serve)
		c.sockets = append(c.sockets, path)
	}
	return c
}

// TestGuestsMeetThroughTheESwitch gives a virtual function to each of two guests, and changes the mode while
// they talk.
func TestGuestsMeetThroughTheESwitch(t *testing.T) {
	t.Parallel()
	f := findTools(t, "6.12")
	c := serveVirtual(t, 2)
	var meet sync.Mutex
	waiting := make(map[string]chan struct{})
	// together returns when both guests have come; the second one does do before.
	together := func(question string, do func() error) {
		meet.Lock()
		other, come := waiting[question]
		if !come {
			other = make(chan struct{})
			waiting[question] = other
			meet.Unlock()
			<-other
			return
		}
		delete(waiting, question)
		meet.Unlock()
		if err := do(); err != nil {
			t.Error(err)
		}
		close(other)
	}
	mode := func(m driver.Mode) error {
		if _, err := c.manager.SetMode(t.Context(), m); err != nil {
			return err
		}
		for from := range driver.Vport(3) {
			if m == driver.Switchdev && from > 0 {
				if _, err := c.manager.AddSwitchRule(t.Context(), driver.SwitchMatch{From: &from}, driver.SwitchAction{To: []driver.Vport{3 - from}, Count: true}); err != nil {
					return err
				}
			}
		}
		return nil
	}
	var guests sync.WaitGroup
	for i := range 2 {
		g := f.guestFor(t, "virtual.sh")
		g.Sockets, g.Limit = c.sockets[i:i+1], 3*time.Minute
		answerWith(t, g, func(question string) string {
			verb, what, _ := strings.Cut(question, " ")
			switch verb {
			case "who":
				return fmt.Sprint(i + 1)
			case "mode":
				together(question, func() error {
					return mode(map[string]driver.Mode{"legacy": driver.Legacy, "switchdev": driver.Switchdev}[what])
				})
			case "done":
				together(question, func() error { return nil })
			}
			return ""
		})
		guests.Go(func() {
			result, err := g.Run(t.Context())
			switch {
			case err != nil:
				t.Errorf("guest %d: %v\n--- refused ---\n%s", i+1, err, refused(c.Cards))
			case result.Status != 0:
				t.Errorf("guest %d: status %d\n%s\n--- console ---\n%s\n--- refused ---\n%s", i+1, result.Status, result.Output, result.Console, refused(c.Cards))
			default:
				t.Logf("guest %d: boot %v, whole %v\n%s", i+1, result.Boot, result.Whole, result.Output)
			}
		})
	}
	guests.Wait()
}
