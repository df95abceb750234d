package driver_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cxkit/driver"
	"cxkit/driver/internal/fwtest"
	"cxkit/prm"
)

// config is a small NIC that logs to the test.
func config(t *testing.T) driver.Config {
	return driver.Config{
		Queues: 2, RxRing: 64, TxRing: 64, CheckBuffers: true, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

// scripted runs f on virtual time with a scripted card, and checks at its end that the driver holds
// nothing of the card and the card nothing of the driver.
func scripted(t *testing.T, f func(t *testing.T, card *fwtest.Card)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		card := fwtest.New()
		card.SetPages(6, 20)
		f(t, card)
		card.Close()
		if n := card.Arenas(); n != 0 {
			t.Errorf("%d pieces of memory are left", n)
		}
		strays, zero, reserved := card.Faults()
		if strays != 0 || zero != 0 || len(reserved) != 0 || card.BadDMA() != 0 {
			t.Errorf("%d stray doorbells, %d pages at 0, %d bad accesses, reserved bits: %v", strays, zero, card.BadDMA(), reserved)
		}
		if n := len(card.Pages()); n != 0 {
			t.Errorf("the card has %d pages", n)
		}
	})
}

func open(t *testing.T, card *fwtest.Card) *driver.NIC {
	t.Helper()
	nic, err := driver.Open(t.Context(), card, config(t))
	if err != nil {
		t.Fatal(err)
	}
	return nic
}

// empty checks that a closed NIC holds nothing.
func empty(t *testing.T, nic *driver.NIC) {
	t.Helper()
	b := nic.Books()
	if b.FirmwarePages != 0 || len(b.Objects) != 0 || b.CommandSlots != 0 || b.Mailboxes != 0 {
		t.Errorf("books: %+v", b)
	}
}

// ops are the commands of Open or of Close.
func ops(t *testing.T, ofClose bool) (list []prm.Opcode) {
	t.Helper()
	scripted(t, func(t *testing.T, card *fwtest.Card) {
		nic := open(t, card)
		before := card.Ops()
		if err := nic.Close(t.Context()); err != nil {
			t.Error(err)
		}
		empty(t, nic)
		list = before
		if ofClose {
			list = slices.DeleteFunc(card.Ops(), func(op prm.Opcode) bool { return slices.Contains(before, op) })
		}
	})
	if len(list) < 12 {
		t.Fatalf("only %v", list)
	}
	return list
}

func TestOpenWhenAnyCommandIsRefused(t *testing.T) {
	optional := []prm.Opcode{prm.OpSetDriverVersion, prm.OpQueryAdapter, prm.OpQuerySpecialContexts}
	for _, op := range ops(t, false) {
		t.Run(op.String(), func(t *testing.T) {
			for status := range 256 {
				if status == 0 || status > 0x11 && status%16 != 0 {
					continue
				}
				scripted(t, func(t *testing.T, card *fwtest.Card) {
					card.Handle(op, func(c *fwtest.Call) { c.Refuse(prm.Status(status), 0xBAD) })
					nic, err := driver.Open(t.Context(), card, config(t))
					if err == nil {
						if !slices.Contains(optional, op) && op != prm.OpAllocQCounter {
							t.Errorf("status %#x was ignored", status)
						}
						if err := nic.Close(t.Context()); err != nil {
							t.Error(err)
						}
						return
					}
					var left *driver.LeftoverError
					if !errors.Is(err, prm.Status(status)) || errors.As(err, &left) {
						t.Errorf("status %#x became %v", status, err)
					}
				})
			}
		})
	}
}

func TestOpenWhenFirmwareFallsSilent(t *testing.T) {
	for _, op := range ops(t, false) {
		t.Run(op.String(), func(t *testing.T) {
			scripted(t, func(t *testing.T, card *fwtest.Card) {
				card.Handle(op, func(*fwtest.Call) {})
				begin := time.Now()
				_, err := driver.Open(t.Context(), card, config(t))
				var silent *driver.NoAnswerError
				var left *driver.LeftoverError
				if !errors.As(err, &silent) || silent.Cause != driver.FirmwareSilent || silent.Op != op || !errors.As(err, &left) {
					t.Errorf("error: %v", err)
				}
				if d := time.Since(begin); d > 2*time.Minute+10*time.Second {
					t.Errorf("took %v", d)
				}
			})
		})
	}
}

func TestOpenWhenTheCardVanishes(t *testing.T) {
	for _, op := range ops(t, false) {
		t.Run(op.String(), func(t *testing.T) {
			scripted(t, func(t *testing.T, card *fwtest.Card) {
				card.Handle(op, func(*fwtest.Call) { card.Vanish() })
				begin := time.Now()
				_, err := driver.Open(t.Context(), card, config(t))
				if !errors.Is(err, driver.ErrGone) {
					t.Errorf("error: %v", err)
				}
				if d := time.Since(begin); d > 10*time.Second {
					t.Errorf("took %v", d)
				}
			})
		})
	}
}

func TestCloseWhenAnyCommandIsRefused(t *testing.T) {
	for _, op := range ops(t, true) {
		t.Run(op.String(), func(t *testing.T) {
			scripted(t, func(t *testing.T, card *fwtest.Card) {
				nic := open(t, card)
				card.Handle(op, func(c *fwtest.Call) { c.Refuse(prm.StatusBadResourceState, 0xBAD) })
				err := nic.Close(t.Context())
				if !errors.Is(err, prm.StatusBadResourceState) || !strings.Contains(err.Error(), op.String()) {
					t.Errorf("error: %v", err)
				}
				empty(t, nic)
				card.Handle(op, nil)
				if err := open(t, card).Close(t.Context()); err != nil {
					t.Errorf("the next NIC on this function: %v", err)
				}
			})
		})
	}
}

func TestCloseWhenFirmwareIsSilent(t *testing.T) {
	for _, op := range ops(t, true) {
		t.Run(op.String(), func(t *testing.T) {
			scripted(t, func(t *testing.T, card *fwtest.Card) {
				nic := open(t, card)
				card.Handle(op, func(*fwtest.Call) {})
				begin := time.Now()
				err := nic.Close(t.Context())
				var left *driver.LeftoverError
				if !errors.As(err, &left) || len(left.Commands) != 1 || !strings.Contains(left.Commands[0], op.String()) {
					t.Errorf("error: %v", err)
				}
				if d := time.Since(begin); d > 90*time.Second {
					t.Errorf("took %v", d)
				}
				empty(t, nic)
			})
		})
	}
}

func TestCloseWithAnEndedContextStillTakesEverything(t *testing.T) {
	scripted(t, func(t *testing.T, card *fwtest.Card) {
		nic := open(t, card)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begin := time.Now()
		err := nic.Close(ctx)
		var left *driver.LeftoverError
		if !errors.As(err, &left) || left.Pages != 26 || len(left.Objects) == 0 {
			t.Errorf("error: %v", err)
		}
		if d := time.Since(begin); d > time.Second {
			t.Errorf("took %v", d)
		}
		empty(t, nic)
	})
}

func TestCloseFromManyGoroutines(t *testing.T) {
	scripted(t, func(t *testing.T, card *fwtest.Card) {
		nic := open(t, card)
		card.Handle(prm.OpTeardownHCA, func(c *fwtest.Call) { c.Refuse(prm.StatusInternalError, 1) })
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			wg.Go(func() {
				errs[i] = nic.Close(t.Context())
				empty(t, nic)
			})
		}
		wg.Wait()
		for _, err := range errs {
			if err == nil || err.Error() != errs[0].Error() {
				t.Errorf("%v and %v", err, errs[0])
			}
		}
		if n := card.Count(prm.OpTeardownHCA); n != 1 {
			t.Errorf("%d teardowns", n)
		}
	})
}

func TestDeviceThatFailsStopsTheQueues(t *testing.T) {
	scripted(t, func(t *testing.T, card *fwtest.Card) {
		nic := open(t, card)
		waiting := make(chan error, 2)
		go func() { waiting <- nic.RxQueue(0).Wait(t.Context()) }()
		synctest.Wait()
		card.Vanish()
		<-nic.Failed()
		<-waiting
		synctest.Wait()
		if !errors.Is(nic.Err(), driver.ErrGone) {
			t.Errorf("error: %v", nic.Err())
		}
		for _, err := range []error{nic.RxQueue(1).Err(), nic.TxQueue(0).Err()} {
			if !errors.Is(err, driver.ErrGone) {
				t.Errorf("queue: %v", err)
			}
		}
		begin := time.Now()
		if err := nic.SetMTU(t.Context(), 1000); !errors.Is(err, driver.ErrGone) {
			t.Errorf("a command: %v", err)
		}
		err := nic.Close(t.Context())
		var left *driver.LeftoverError
		if !errors.As(err, &left) || left.Pages != 26 || len(left.Objects) < 30 {
			t.Errorf("close: %v", err)
		}
		if d := time.Since(begin); d > time.Second {
			t.Errorf("took %v", d)
		}
		empty(t, nic)
		card.SetPages(0, 0)
	})
}

func TestFirmwareSyndromeIsNamed(t *testing.T) {
	scripted(t, func(t *testing.T, card *fwtest.Card) {
		nic := open(t, card)
		card.SetRegister(prm.InitSegHealthOff+prm.HealthBufferRFRSeverityOff, prm.HealthBufferRFRSeverityDword(true, true, 3))
		card.SetRegister(prm.InitSegHealthOff+prm.HealthBufferSyndromeOff, prm.HealthBufferSyndromeDword(3, prm.HealthHWUnrecoverable, 0))
		<-nic.Failed()
		if err := nic.Err(); !strings.Contains(err.Error(), "synd 0x8: unrecoverable hardware error") {
			t.Errorf("error: %v", err)
		}
		if err := nic.Close(t.Context()); err == nil {
			t.Error("closed without a word")
		}
		if err := open(t, card).Close(t.Context()); err != nil {
			t.Errorf("the next NIC on this function, after its reset: %v", err)
		}
	})
}

func TestBadConfigurationsAreRefusedBeforeTheCardIsTouched(t *testing.T) {
	for name, c := range map[string]driver.Config{
		"queues":  {Queues: 1000},
		"ring":    {RxRing: 100},
		"reclaim": {ReclaimLimit: new(-1)},
		"timeout": {CommandTimeout: -1},
	} {
		scripted(t, func(t *testing.T, card *fwtest.Card) {
			c.CheckBuffers = true
			if _, err := driver.Open(t.Context(), card, c); err == nil {
				t.Errorf("%s: accepted", name)
			}
			if card.Resets() != 0 {
				t.Errorf("%s: the card was reset", name)
			}
			card.SetPages(0, 0)
		})
	}
}
