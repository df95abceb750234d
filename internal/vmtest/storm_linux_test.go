//go:build linux

package vmtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"cxkit/device"
	"cxkit/device/wire"
	"cxkit/trace"
)

// TestLinuxGivesAndTakesBackFirmwarePages lets firmware ask Linux for thousands of pages and give them
// back round by round, and compares the kernel's books with the card's after each storm (reports R01, R02).
func TestLinuxGivesAndTakesBackFirmwarePages(t *testing.T) {
	t.Parallel()
	f := findTools(t, "6.12")
	dir, err := os.MkdirTemp("", "cxkit-test-") // not t.TempDir: the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "card0")
	cards, err := ServeCards(CardsConfig{
		Sockets: []string{socket}, Ports: []wire.Port{wire.NewDiscard()}, Trace: trace.New(trace.Config{Records: 8192}),
		Device: device.Config{Lenient: true, Memory: device.Memory{TakeLimit: stormRound}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cards.Close(); err != nil {
			t.Error(err)
		}
	})
	g := f.guestFor(t, "storms.sh")
	g.Sockets, g.Modules = []string{socket}, nil
	storms := 0
	answer(t, g, func(question string) {
		var n int
		word, number, _ := strings.Cut(question, " ")
		n, err := strconv.Atoi(number)
		if err != nil {
			t.Errorf("%q: %v", question, err)
			return
		}
		switch word {
		case "same":
			if held := cards.Card(0).Books().Functions[0].Pages; held != n {
				t.Errorf("after storm %d the kernel says that firmware has %d pages, the card has %d", storms, n, held)
			}
		case "storm":
			storms++
			if err := storm(cards.Card(0), n); err != nil {
				t.Errorf("storm %d: %v", storms, err)
			}
		default:
			t.Errorf("the guest asks %q", question)
		}
	})
	run(t, g, cards)
	if storms != 21 {
		t.Errorf("the guest asked for %d storms, want 21", storms)
	}
}

// stormRound is how many pages the card gives back with one command.
const stormRound = 1000

// storm makes the card ask for so many pages and give them back, and holds what it counted against that.
func storm(c *device.Card, pages int) error {
	own := device.PageFunction{}
	if err := c.StormPages(0, own, pages); err != nil {
		return err
	}
	for limit := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // the guest is another process
		s, err := c.Storm(0, own)
		switch {
		case err != nil:
			return err
		case s.Phase != device.StormOver && time.Now().After(limit):
			return fmt.Errorf("not over after a minute: %+v", s)
		case s.Phase != device.StormOver:
			continue
		}
		if rounds := (pages + stormRound - 1) / stormRound; s.Hoarded != pages || s.Returned != pages || s.Refused || s.Takes < rounds || s.Gives == 0 {
			return fmt.Errorf("%+v: want %d pages there and back in %d rounds or more", s, pages, rounds)
		}
		return nil
	}
}
