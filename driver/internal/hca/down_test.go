package hca_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cxkit/driver/internal/cmdif"
	"cxkit/driver/internal/fwtest"
	"cxkit/driver/internal/hca"
	"cxkit/pci"
	"cxkit/prm"
)

func TestTeardownOfSilentFirmwareIsBoundedAndNamesWhatIsLeft(t *testing.T) {
	for _, op := range []prm.Opcode{
		prm.OpDestroyMKey, prm.OpDeallocTransportDomain, prm.OpDeallocPD, prm.OpDestroyEQ, prm.OpDeallocUAR,
		prm.OpTeardownHCA, prm.OpManagePages, prm.OpDisableHCA,
	} {
		t.Run(op.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, card *fwtest.Card) {
				h := up(t, card)
				card.Handle(op, func(c *fwtest.Call) {})
				begin := time.Now()
				err := h.Down(t.Context())
				var left *hca.LeftoverError
				if !errors.As(err, &left) || len(left.Commands) != 1 || !strings.Contains(left.Commands[0], op.String()) {
					t.Fatalf("error: %v", err)
				}
				if d := time.Since(begin); d > 90*time.Second {
					t.Errorf("took %v", d)
				}
				if op != prm.OpDisableHCA && left.Pages != 136 {
					t.Errorf("%d pages named, firmware has 136", left.Pages)
				}
				if strings.HasPrefix(op.String(), "DE") && len(left.Objects) == 0 {
					t.Errorf("no object named: %v", err)
				}
				if b := h.Books(); b.Pages.Out != 0 || len(b.Objects) != 0 || len(b.Commands.Stuck) != 0 {
					t.Errorf("books after the reset: %+v", b)
				}
			})
		})
	}
}

// A user who stops a bring-up, and one whose bring-up failed because firmware is silent, wait for a few
// seconds and not for the time of one more command; what firmware keeps is named.
func TestBringUpOfSilentFirmwareIsTakenBackSoon(t *testing.T) {
	for name, test := range map[string]struct {
		prepare  func(*fwtest.Card)
		stop     time.Duration // when it ends: the user's wish, or a command's time-out
		cause    cmdif.Cause
		syndrome prm.HealthSyndrome
	}{
		"stopped":      {func(*fwtest.Card) {}, 2 * time.Second, cmdif.FirmwareSilent, 0},
		"never":        {func(*fwtest.Card) {}, time.Minute, cmdif.FirmwareSilent, 0},
		"gone":         {(*fwtest.Card).Vanish, 500 * time.Millisecond, cmdif.DeviceGone, 0}, // before the health watch looks
		"with a cause": {syndrome, time.Minute, cmdif.InterfaceError, prm.HealthFWInternal},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, card *fwtest.Card) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				begin := time.Now()
				card.Handle(prm.OpAllocPD, func(*fwtest.Call) { // and no further command is answered
					for _, op := range prm.Opcodes() {
						card.Handle(op, func(*fwtest.Call) {})
					}
					if test.stop < time.Minute {
						time.AfterFunc(test.stop, cancel)
					}
					test.prepare(card)
				})
				_, err := hca.Up(ctx, config(t, card))
				var silent *cmdif.NoAnswerError
				if !errors.As(err, &silent) || silent.Cause != test.cause || silent.Syndrome != test.syndrome || silent.Op != prm.OpAllocPD {
					t.Errorf("error: %v", err)
				}
				var left *hca.LeftoverError
				if !errors.As(err, &left) || left.Pages != 136 || len(left.Commands) == 0 {
					t.Errorf("left: %v", err)
				}
				if d := time.Since(begin); d > test.stop+5*time.Second {
					t.Errorf("took %v", d)
				}
			})
		})
	}
}

// syndrome makes firmware report a failure without asking for a reset.
func syndrome(c *fwtest.Card) {
	c.SetRegister(prm.InitSegHealthOff+prm.HealthBufferSyndromeOff, prm.HealthBufferSyndromeDword(3, prm.HealthFWInternal, 0))
}

// A bring-up that is stopped while firmware boots says so.
func TestStoppedBootNamesTheFirmware(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card) {
		card.SetPersistent(func(c *fwtest.Card) { c.SetRegister(prm.InitSegStateOff, 1<<31) })
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := hca.Up(ctx, config(t, card))
		var boot *hca.BootError
		if !errors.As(err, &boot) || boot.After < 4*time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error: %v", err)
		}
	})
}

func TestFirmwareThatKeepsPages(t *testing.T) { // R04
	bubble(t, func(t *testing.T, card *fwtest.Card) {
		h := up(t, card)
		card.Handle(prm.OpManagePages, func(c *fwtest.Call) {
			if n := len(card.Pages()); n == 4 {
				c.Answer(&prm.ManagePagesOut{}) // still in use by something
				return
			} else if c.In[7] == byte(prm.PagesTake) && n < 768 {
				c.In[15], c.In[14] = byte(n-4), byte((n-4)>>8)
			}
			c.Default()
		})
		begin := time.Now()
		err := h.Down(t.Context())
		var left *hca.LeftoverError
		if !errors.As(err, &left) || left.Pages != 4 || len(left.Commands) != 0 {
			t.Errorf("error: %v", err)
		}
		if d := time.Since(begin); d < 5*time.Second || d > 7*time.Second {
			t.Errorf("took %v, want the 5 s without progress", d)
		}
		if card.Count(prm.OpDisableHCA) != 1 {
			t.Error("teardown did not go on")
		}
	})
}

func TestTeardownOfAVanishedCard(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card) {
		h := up(t, card)
		card.Vanish()
		select {
		case <-h.Dead():
		case <-time.After(time.Minute):
			t.Fatal("nobody noticed")
		}
		if !errors.Is(h.Err(), hca.ErrGone) {
			t.Errorf("error: %v", h.Err())
		}
		begin := time.Now()
		err := h.Down(t.Context())
		var left *hca.LeftoverError
		if !errors.As(err, &left) || !errors.Is(err, hca.ErrGone) || left.Pages != 136 {
			t.Errorf("error: %v", err)
		}
		if d := time.Since(begin); d > time.Second {
			t.Errorf("took %v", d)
		}
	})
}

func TestResetThatFailsKeepsTheMemoryAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		card := fwtest.New()
		card.SetPages(6, 10)
		h := up(t, card)
		card.Vanish()
		card.FailReset(errors.New("no reset"))
		<-h.Dead()
		before := card.Arenas()
		err := h.Down(t.Context())
		var left *hca.LeftoverError
		if !errors.As(err, &left) || left.Memory == nil {
			t.Fatalf("error: %v", err)
		}
		if n := card.Arenas(); n != before {
			t.Errorf("%d of %d pieces of memory are left: a device that was not reset may write them", n, before)
		}
		card.Close()
	})
}

func TestHealthSyndromeEndsTheDevice(t *testing.T) { // R25
	bubble(t, func(t *testing.T, card *fwtest.Card) {
		h := up(t, card)
		card.Handle(prm.OpNop, func(c *fwtest.Call) {}) // hangs
		done := make(chan error, 1)
		go func() { done <- h.Objects.Exec(t.Context(), &prm.NopIn{}, &prm.NopOut{}) }()
		time.Sleep(100 * time.Millisecond)
		begin := time.Now()
		card.SetRegister(prm.InitSegHealthOff+prm.HealthBufferRFRSeverityOff, prm.HealthBufferRFRSeverityDword(true, true, 3))
		card.SetRegister(prm.InitSegHealthOff+prm.HealthBufferSyndromeOff, prm.HealthBufferSyndromeDword(3, prm.HealthFWInternal, 0x8f7a))
		err := <-done
		var health *hca.HealthError
		if !errors.As(err, &health) || health.Syndrome != prm.HealthFWInternal || health.ExtSyndrome != 0x8f7a {
			t.Errorf("error of the command in flight: %v", err)
		}
		if d := time.Since(begin); d > 2*time.Second {
			t.Errorf("noticed after %v", d)
		}
		if err := h.Down(t.Context()); !errors.As(err, &health) {
			t.Errorf("down: %v", err)
		}
	})
}

func TestHealthCounterThatStopsIsNotFatal(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card) {
		h := up(t, card)
		card.SetRegister(prm.InitSegHealthPollOff, 77)
		time.Sleep(time.Minute)
		if err := h.Err(); err != nil {
			t.Errorf("given up: %v", err)
		}
		if err := h.Down(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestInterfaceThatFirmwareDisables(t *testing.T) {
	for _, state := range []prm.NICInterface{prm.NICInterfaceDisabled, prm.NICInterfaceSWReset} {
		bubble(t, func(t *testing.T, card *fwtest.Card) {
			h := up(t, card)
			card.SetRegister(prm.InitSegCmdQOff, prm.InitSegCmdQDword(1, state, 5, 6))
			<-h.Dead()
			if !errors.Is(h.Err(), hca.ErrDisabled) {
				t.Errorf("error: %v", h.Err())
			}
			var left *hca.LeftoverError
			if err := h.Down(t.Context()); !errors.As(err, &left) {
				t.Errorf("down: %v", err)
			}
		})
	}
}

func TestFunctionThatIsClosedUnderneath(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card) {
		h := up(t, card)
		card.Close()
		<-h.Dead()
		if !errors.Is(h.Err(), pci.ErrClosed) {
			t.Errorf("error: %v", h.Err())
		}
		if err := h.Down(t.Context()); err == nil {
			t.Error("nothing was left")
		}
	})
}

func TestVectorsLimitCompletionQueues(t *testing.T) {
	for vectors, want := range map[int]int{1: 1, 2: 1, 3: 2, 5: 4, 64: 4} {
		t.Run(fmt.Sprint(vectors), func(t *testing.T) {
			bubble(t, func(t *testing.T, card *fwtest.Card) {
				card.SetVectors(vectors)
				h := up(t, card)
				if got := len(h.CompletionEQs); got != want {
					t.Errorf("%d completion EQs, want %d", got, want)
				}
				for i, q := range h.CompletionEQs {
					if v := min(i+1, vectors-1); q.Vector() != v {
						t.Errorf("EQ %d on vector %d", i, q.Vector())
					}
				}
				if err := h.Down(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
