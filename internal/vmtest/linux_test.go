//go:build linux

package vmtest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"cxkit/device"
)

// rounds are how often acceptance.sh does what it does in rounds.
type rounds struct{ downs, changes, returns, loads int }

// TestLinuxDrivesTheCard boots kernels whose mlx5 driver nobody here wrote. CXKIT_LINUX_SUITE=all has them do
// everything that wears out as often as a release wants it, which takes minutes.
func TestLinuxDrivesTheCard(t *testing.T) {
	t.Parallel()
	n, limit := rounds{downs: 5, changes: 2, returns: 1, loads: 2}, 8*time.Minute
	if os.Getenv("CXKIT_LINUX_SUITE") == "all" {
		n, limit = rounds{downs: 20, changes: 20, returns: 5, loads: 5}, 45*time.Minute
	}
	for _, kernel := range []string{"6.12", "6.1"} {
		t.Run(kernel, func(t *testing.T) {
			f := findTools(t, kernel)
			f.need(t, "iperf3")
			cards, sockets := serveCards(t, 2, CardsConfig{})
			g := f.guestFor(t, "acceptance.sh")
			g.Sockets, g.CPUs, g.Limit = sockets, 2, limit
			g.Tools = append(g.Tools, "devlink", "dcb", "iperf3")
			g.Files = append(g.Files, File{Path: "/root/rounds", Data: fmt.Appendf(nil,
				"downs=%d changes=%d returns=%d loads=%d\n", n.downs, n.changes, n.returns, n.loads)})
			asked := 0
			answer(t, g, func(question string) {
				asked++
				free := 2
				if question == "unbound" {
					free = 1 // the second card is in use
				}
				for i := range free {
					if n := cards.Card(i).Books().Functions[0]; !n.Clean() {
						t.Errorf("time %d, card %d: firmware has %d pages and objects %v", asked, i, n.Pages, n.Objects)
					}
				}
			})
			run(t, g, cards)
			if want := n.loads + 3*n.returns + 1; asked != want {
				t.Errorf("the guest let go of its cards %d times, want %d", asked, want)
			}
			for i := range 2 {
				if s := cards.Server(i).Stats(); s.Clients != 1 || s.VectorsDropped != 0 {
					t.Errorf("card %d's server: %+v", i, s)
				}
			}
		})
	}
}

// TestLinuxRingsByMemory boots Linux on cards whose doorbell pages it writes without a message.
func TestLinuxRingsByMemory(t *testing.T) {
	t.Parallel()
	f := findTools(t, "6.12")
	cards, sockets := serveCards(t, 2, CardsConfig{Device: device.Config{MapDoorbells: true}})
	g := f.guestFor(t, "mapped.sh")
	g.Sockets = sockets
	requests := func() uint64 { return cards.Server(0).Stats().Requests + cards.Server(1).Stats().Requests }
	var before, during uint64
	answer(t, g, func(question string) {
		switch question {
		case "before":
			before = requests()
		case "after":
			during = requests() - before
		case "books":
			for i := range 2 {
				if n := cards.Card(i).Books().Functions[0]; !n.Clean() {
					t.Errorf("card %d: firmware has %d pages and objects %v", i, n.Pages, n.Objects)
				}
			}
		}
	})
	run(t, g, cards)
	// Trapped doorbells are more than 40 for each of 20 MB; what is left is commands that ask for statistics.
	if before == 0 || during > 200 {
		t.Errorf("%d requests before transfers and %d while they ran", before, during)
	}
}

// TestAGuestThatRebootsFindsItsCardsFresh: the driver does not say good-bye, and QEMU stays connected.
func TestAGuestThatRebootsFindsItsCardsFresh(t *testing.T) {
	t.Parallel()
	f := findTools(t, "6.12")
	cards, sockets := serveCards(t, 2, CardsConfig{})
	g := f.guestFor(t, "reboot.sh")
	g.Sockets = sockets
	g.Devices = []string{"-action", "reboot=reset"} // guests of tests end instead
	boots := 0
	answerWith(t, g, func(string) string {
		boots++
		return map[int]string{1: "first"}[boots]
	})
	run(t, g, cards)
	if boots != 2 {
		t.Errorf("%d boots, want 2", boots)
	}
	for i := range 2 {
		if s := cards.Server(i).Stats(); s.Clients != 1 {
			t.Errorf("card %d's server had %d clients, want the one QEMU", i, s.Clients)
		}
	}
}
