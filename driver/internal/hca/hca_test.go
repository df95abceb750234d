package hca_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cxkit/driver/internal/cmdif"
	"cxkit/driver/internal/fwtest"
	"cxkit/driver/internal/hca"
	"cxkit/prm"
)

// bubble runs f on virtual time and checks at its end that the driver holds no memory.
func bubble(t *testing.T, f func(t *testing.T, card *fwtest.Card)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		card := fwtest.New()
		card.SetPages(6, 130)
		f(t, card)
		card.Close()
		if n := card.Arenas(); n != 0 {
			t.Errorf("%d pieces of memory are left", n)
		}
		if n := card.BadDMA(); n != 0 {
			t.Errorf("firmware was led to unmapped memory %d times", n)
		}
		strays, zero, reserved := card.Faults()
		if strays != 0 || zero != 0 || len(reserved) != 0 {
			t.Errorf("%d doorbells of slots the driver owns, %d pages at address 0, reserved bits: %v", strays, zero, reserved)
		}
	})
}

func config(t *testing.T, card *fwtest.Card) hca.Config {
	return hca.Config{Function: card, Queues: 4, Version: "Linux,cxkit,1", Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
}

func up(t *testing.T, card *fwtest.Card) *hca.HCA {
	t.Helper()
	h, err := hca.Up(t.Context(), config(t, card))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestUpAndDownLeaveNothing(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card) {
		for range 2 {
			h := up(t, card)
			if got := len(card.Pages()); got != 136 {
				t.Errorf("firmware has %d pages, it asked for 136", got)
			}
			if b := h.Books(); b.Pages.Out != 136 || b.Commands.InFlight != 0 || b.Commands.Mailboxes != 0 || len(b.Objects) != 1+3+4+3 {
				t.Errorf("books: %+v", b)
			}
			if n := h.Counters(); n.LostEvents+n.LostInterrupts+n.SpuriousEvents != 0 {
				t.Errorf("counters: %+v", n)
			}
			if !card.BusMaster() {
				t.Error("bus mastering is off")
			}
			if h.PSID != "MT_0000000000" || h.Firmware.String() != "16.35.2000" || h.General.CmdifChecksum != 3 {
				t.Errorf("card: %q %v", h.PSID, h.Firmware)
			}
			resets := card.Resets()
			if err := h.Down(t.Context()); err != nil {
				t.Error(err)
			}
			if err := h.Down(t.Context()); err != nil {
				t.Error("second Down:", err)
			}
			if card.Resets() != resets {
				t.Error("a clean teardown needed a reset")
			}
			if n := len(card.Pages()); n != 0 || card.BusMaster() {
				t.Errorf("%d pages are left, bus master %v", n, card.BusMaster())
			}
		}
	})
}

// bringUpOps are the commands of bring-up; optional ones may be refused without harm.
var bringUpOps = []struct {
	op       prm.Opcode
	optional bool
}{
	{prm.OpEnableHCA, false}, {prm.OpQueryISSI, false}, {prm.OpSetISSI, false}, {prm.OpQueryPages, false},
	{prm.OpManagePages, false}, {prm.OpAccessReg, false}, {prm.OpQueryHCACap, false}, {prm.OpSetHCACap, false},
	{prm.OpInitHCA, false}, {prm.OpSetDriverVersion, true}, {prm.OpQueryAdapter, true}, {prm.OpAllocUAR, false},
	{prm.OpCreateEQ, false}, {prm.OpAllocPD, false}, {prm.OpAllocTransportDomain, false},
	{prm.OpQuerySpecialContexts, true}, {prm.OpCreateMKey, false},
}

func TestBringUpCommandsAreTheOnesTested(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card) {
		h := up(t, card)
		tested := map[prm.Opcode]bool{}
		for _, x := range bringUpOps {
			tested[x.op] = true
		}
		for _, op := range card.Ops() {
			if !tested[op] {
				t.Errorf("%v is part of bring-up and not in the list", op)
			}
		}
		if err := h.Down(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// nth calls f for the n-th command of an opcode only, counting from 0.
func nth(n int, f func(*fwtest.Call)) func(*fwtest.Call) {
	return func(c *fwtest.Call) {
		if c.Card.Count(c.Op) == n+1 {
			f(c)
			return
		}
		c.Default()
	}
}

func TestEachStatusOfEachBringUpCommandUndoesEverything(t *testing.T) {
	statuses := []prm.Status{
		prm.StatusInternalError, prm.StatusBadOperation, prm.StatusBadParameter, prm.StatusBadSystemState,
		prm.StatusBadResource, prm.StatusResourceBusy, prm.StatusNotReady, prm.StatusLimitExceeded,
		prm.StatusBadResourceState, prm.StatusBadIndex, prm.StatusNoResources, prm.StatusBadQPState,
		prm.StatusBadPacket, prm.StatusBadCQResize, prm.StatusBadInputLength, prm.StatusBadOutputLength, 0xEE,
	}
	for _, x := range bringUpOps {
		t.Run(x.op.String(), func(t *testing.T) {
			for _, status := range statuses {
				for n := 0; n < count(t, x.op); n++ {
					bubble(t, func(t *testing.T, card *fwtest.Card) {
						card.Handle(x.op, nth(n, func(c *fwtest.Call) { c.Refuse(status, 0x123456) }))
						h, err := hca.Up(t.Context(), config(t, card))
						if x.optional {
							if err != nil {
								t.Fatal(err)
							}
							if err := h.Down(t.Context()); err != nil {
								t.Error(err)
							}
							return
						}
						if !errors.Is(err, status) || !strings.Contains(err.Error(), "syndrome (0x123456)") {
							t.Errorf("command %d refused with %v: error %v", n, status, err)
						}
						var left *hca.LeftoverError
						if errors.As(err, &left) {
							t.Errorf("command %d refused with %v: %v", n, status, left)
						}
						if n := len(card.Pages()); n != 0 {
							t.Errorf("firmware still has %d pages", n)
						}
					})
				}
			}
		})
	}
}

// count is how often a command is part of a good bring-up.
func count(t *testing.T, op prm.Opcode) (n int) {
	bubble(t, func(t *testing.T, card *fwtest.Card) {
		h := up(t, card)
		n = card.Count(op)
		if err := h.Down(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return n
}

func TestFirmwareThatFallsSilentInBringUpIsLeftInBoundedTime(t *testing.T) {
	for _, x := range bringUpOps {
		t.Run(x.op.String(), func(t *testing.T) {
			for n := range count(t, x.op) {
				bubble(t, func(t *testing.T, card *fwtest.Card) {
					card.Handle(x.op, nth(n, func(c *fwtest.Call) {}))
					begin := time.Now()
					_, err := hca.Up(t.Context(), config(t, card))
					var silent *cmdif.NoAnswerError
					if !errors.As(err, &silent) || silent.Cause != cmdif.FirmwareSilent || silent.Op != x.op {
						t.Errorf("error: %v", err)
					}
					var left *hca.LeftoverError
					if !errors.As(err, &left) || len(left.Commands) != 1 || !strings.Contains(left.Commands[0], x.op.String()) {
						t.Errorf("leftovers: %v", left)
					}
					if d := time.Since(begin); d > 2*time.Minute {
						t.Errorf("took %v", d)
					}
					if card.Resets() != 2 {
						t.Errorf("%d resets: what firmware still owns was not taken by a reset", card.Resets())
					}
				})
			}
		})
	}
}

func TestDeviceThatVanishesInBringUpIsLeftInBoundedTime(t *testing.T) {
	for _, x := range bringUpOps {
		t.Run(x.op.String(), func(t *testing.T) {
			for n := range count(t, x.op) {
				bubble(t, func(t *testing.T, card *fwtest.Card) {
					card.Handle(x.op, nth(n, func(c *fwtest.Call) { card.Vanish() }))
					begin := time.Now()
					_, err := hca.Up(t.Context(), config(t, card))
					if !errors.Is(err, hca.ErrGone) {
						t.Errorf("error: %v", err)
					}
					if d := time.Since(begin); d > 15*time.Second {
						t.Errorf("took %v: the health watch should have noticed", d)
					}
				})
			}
		})
	}
}

func TestBadAnswersInBringUpUndoEverything(t *testing.T) {
	breaches := map[string]func(*fwtest.Call){
		"wrong token":        func(c *fwtest.Call) { c.Token++; c.Finish() },
		"longer than asked":  func(c *fwtest.Call) { c.Length++; c.Finish() },
		"not delivered":      func(c *fwtest.Call) { c.Delivery = prm.DeliveryTokenError; c.Finish() },
		"all ones":           func(c *fwtest.Call) { ones(c); c.Finish() },
		"ones and status ok": func(c *fwtest.Call) { ones(c); c.Out[0] = 0; c.Finish() },
		"zeroes":             func(c *fwtest.Call) { clear(c.Out); c.Finish() },
	}
	for name, breach := range breaches {
		t.Run(name, func(t *testing.T) {
			for _, x := range bringUpOps {
				bubble(t, func(t *testing.T, card *fwtest.Card) {
					card.Handle(x.op, breach)
					begin := time.Now()
					h, err := hca.Up(t.Context(), config(t, card))
					if err == nil {
						err = h.Down(t.Context())
					}
					if d := time.Since(begin); d > 3*time.Minute {
						t.Errorf("%v: took %v, error %v", x.op, d, err)
					}
				})
			}
		})
	}
}

func ones(c *fwtest.Call) {
	for i := range c.Out {
		c.Out[i] = 0xFF
	}
}

func TestContextEndsBringUp(t *testing.T) {
	for _, x := range bringUpOps {
		bubble(t, func(t *testing.T, card *fwtest.Card) {
			ctx, cancel := context.WithCancel(t.Context())
			card.Handle(x.op, func(c *fwtest.Call) { cancel(); c.Default() })
			h, err := hca.Up(ctx, config(t, card))
			switch {
			case err == nil && x.op == prm.OpCreateMKey: // the last command: nothing was left to stop
				err = h.Down(t.Context())
				if err != nil {
					t.Error(err)
				}
			case !errors.Is(err, context.Canceled):
				t.Errorf("%v: %v", x.op, err)
			}
			if n := len(card.Pages()); n != 0 {
				t.Errorf("%v: firmware still has %d pages", x.op, n)
			}
		})
	}
}

func TestInitializationSegmentIsChecked(t *testing.T) {
	for name, test := range map[string]struct {
		off  uint64
		v    uint32
		want string
	}{
		"revision":     {prm.InitSegCmdIfRevOff, prm.InitSegCmdIfRevDword(4, 0), "revision 4"},
		"initializing": {prm.InitSegStateOff, 1 << 31, "pre-initializing"},
		"shape":        {prm.InitSegCmdQOff, 0xFF, "at most"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, card *fwtest.Card) {
				stubborn := &stubborn{Card: card, off: test.off, v: test.v}
				c := config(t, card)
				c.Function = stubborn
				begin := time.Now()
				_, err := hca.Up(t.Context(), c)
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("error: %v", err)
				}
				if d := time.Since(begin); d > 125*time.Second {
					t.Errorf("took %v", d)
				}
			})
		})
	}
}

// stubborn is a card with a register that a reset does not change.
type stubborn struct {
	*fwtest.Card
	off uint64
	v   uint32
}

func (s *stubborn) Reset(ctx context.Context) error {
	err := s.Card.Reset(ctx)
	s.SetRegister(s.off, s.v)
	return err
}

func TestVirtualFunctionsLeaveEndiannessAlone(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card) {
		card.SetDevice(0x1018)
		h := up(t, card)
		if n := card.Count(prm.OpAccessReg); n != 0 {
			t.Errorf("%d registers were written", n)
		}
		if err := h.Down(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestCardThatIsGoneFromTheStart(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card) {
		card.Vanish()
		_, err := hca.Up(t.Context(), config(t, card))
		if !errors.Is(err, hca.ErrGone) {
			t.Errorf("error: %v", err)
		}
	})
}

func TestLostInterruptsSlowBringUpDownAndAreNamed(t *testing.T) { // R14
	bubble(t, func(t *testing.T, card *fwtest.Card) {
		card.Deaf(true)
		begin := time.Now()
		h := up(t, card)
		if d := time.Since(begin); d < 2*time.Second || d > 10*time.Second {
			t.Errorf("took %v, want a second for the first command and less for each further one", d)
		}
		if n := h.Counters(); n.LostInterrupts == 0 || n.LostEvents != 0 || n.NoAnswer != 0 {
			t.Errorf("counters: %+v", n)
		}
		card.Deaf(false)
		if err := h.Down(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
