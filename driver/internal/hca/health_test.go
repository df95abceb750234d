package hca_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cxkit/driver/internal/fwtest"
	"cxkit/driver/internal/hca"
	"cxkit/prm"
)

// lines keeps the messages of a log.
type lines struct {
	mu   sync.Mutex
	list []string
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *lines) WithGroup(string) slog.Handler            { return l }
func (l *lines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, r.Level.String()+" "+r.Message)
	return nil
}

func (l *lines) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.list
	l.list = nil
	return list
}

// upWith brings a function up with an edited configuration.
func upWith(t *testing.T, card *fwtest.Card, edit func(*hca.Config)) *hca.HCA {
	t.Helper()
	c := config(t, card)
	edit(&c)
	h, err := hca.Up(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// assertion is the health buffer of report R25, a firmware assertion on a ConnectX-6 Dx. rfr is as given.
func assertion(card *fwtest.Card, rfr bool) {
	at := func(off uint64, v uint32) { card.SetRegister(prm.InitSegHealthOff+off, v) }
	at(prm.HealthBufferAssertVarOff, 0x0521945b)
	at(prm.HealthBufferAssertExitPtrOff, 0x21492f38)
	at(prm.HealthBufferAssertCallRAOff, 0x2102d5f0)
	at(prm.HealthBufferTimeOff, 1742220438)
	at(prm.HealthBufferFWVerOff, 0x162c040c)
	at(prm.HealthBufferHWIDOff, 0x00000212)
	at(prm.HealthBufferRFRSeverityOff, prm.HealthBufferRFRSeverityDword(rfr, true, 3))
	at(prm.HealthBufferSyndromeOff, prm.HealthBufferSyndromeDword(3, prm.HealthFWInternal, 0x8f7a))
}

// assertionLines are the lines that mlx5_core printed for it.
func assertionLines(rfr int) []string {
	return []string{
		"ERROR Health issue observed, firmware internal error, severity(3) ERROR:",
		"ERROR assert_var[0] 0x0521945b", "ERROR assert_var[1] 0x00000000", "ERROR assert_var[2] 0x00000000",
		"ERROR assert_var[3] 0x00000000", "ERROR assert_var[4] 0x00000000", "ERROR assert_var[5] 0x00000000",
		"ERROR assert_exit_ptr 0x21492f38", "ERROR assert_callra 0x2102d5f0", "ERROR fw_ver 16.35.2000",
		"ERROR time 1742220438", "ERROR hw_id 0x00000212", fmt.Sprintf("ERROR rfr %d", rfr), "ERROR severity 3 (ERROR)",
		"ERROR irisc_index 3", "ERROR synd 0x1: firmware internal error", "ERROR ext_synd 0x8f7a",
		"ERROR raw fw_ver 0x162c040c",
	}
}

func TestFirmwareAssertionIsPrintedAndSurvived(t *testing.T) { // R25: rfr 0
	bubble(t, func(t *testing.T, card *fwtest.Card) {
		log := &lines{}
		h := upWith(t, card, func(c *hca.Config) { c.Log = slog.New(log) })
		log.take()
		assertion(card, false)
		card.SetRegister(prm.InitSegHealthPollOff, 77) // the heartbeat stops with it
		time.Sleep(2*time.Second + time.Millisecond)   // a look that is due at the very end counts
		synctest.Wait()
		if got := log.take(); !slices.Equal(got, assertionLines(0)) {
			t.Errorf("log\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(assertionLines(0), "\n"))
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		got := log.take()
		want := append([]string{"ERROR device's health compromised - reached miss count"}, assertionLines(0)...)
		if !slices.Equal(got, want) {
			t.Errorf("log\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if err := h.Err(); err != nil {
			t.Errorf("given up: %v", err)
		}
		s := h.Health()
		fw, fatal := s.Reporters[0], s.Reporters[1]
		if fw.Name != "fw" || fw.State != "error" || fw.Errors != 2 || fw.Message != "FW miss counter reported" || fw.Dump == nil ||
			fw.Dump.AssertCallRA != 0x2102d5f0 || s.Misses < 3 || s.Syndrome != 1 {
			t.Errorf("health: %+v", s)
		}
		if fatal.Name != "fw_fatal" || fatal.State != "healthy" || fatal.Errors != 0 || s.OK() {
			t.Errorf("fw_fatal: %+v", fatal)
		}
		if err := h.Down(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestFirmwareThatAsksForAResetIsGivenUpWithin2s(t *testing.T) { // R25
	bubble(t, func(t *testing.T, card *fwtest.Card) {
		log := &lines{}
		h := upWith(t, card, func(c *hca.Config) { c.Log = slog.New(log) })
		log.take()
		begin := time.Now()
		assertion(card, true)
		<-h.Dead()
		synctest.Wait()
		if d := time.Since(begin); d > 2*time.Second {
			t.Errorf("noticed after %v", d)
		}
		want := append([]string{"ERROR Fatal error 5 detected"}, assertionLines(1)...)
		if got := log.take(); len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
			t.Errorf("log\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		s := h.Health()
		if fatal := s.Reporters[1]; fatal.State != "error" || fatal.Errors != 1 || fatal.Message != "FW fatal error reported" ||
			fatal.Dump == nil || !fatal.Dump.Reset || fatal.Last.IsZero() {
			t.Errorf("fw_fatal: %+v", fatal)
		}
		var b strings.Builder
		if _, err := s.WriteTo(&b); err != nil || !strings.Contains(b.String(), "reporter fw_fatal\n    state error error 1 recover 0") {
			t.Errorf("printed\n%s, %v", b.String(), err)
		}
		var left *hca.LeftoverError
		if err := h.Down(t.Context()); !errors.As(err, &left) || left.Pages != 136 {
			t.Errorf("down: %v", err)
		}
	})
}

func TestEachSensorHasItsNumber(t *testing.T) {
	for want, fail := range map[string]func(*fwtest.Card){
		"ERROR Fatal error 1 detected": (*fwtest.Card).Vanish,
		"ERROR Fatal error 3 detected": func(c *fwtest.Card) {
			c.SetRegister(prm.InitSegCmdQOff, prm.InitSegCmdQDword(1, prm.NICInterfaceDisabled, 5, 6))
		},
		"ERROR Fatal error 4 detected": func(c *fwtest.Card) {
			c.SetRegister(prm.InitSegCmdQOff, prm.InitSegCmdQDword(1, prm.NICInterfaceSWReset, 5, 6))
		},
		"ERROR Fatal error 5 detected": func(c *fwtest.Card) { assertion(c, true) },
	} {
		bubble(t, func(t *testing.T, card *fwtest.Card) {
			log := &lines{}
			h := upWith(t, card, func(c *hca.Config) { c.Log = slog.New(log) })
			fail(card)
			<-h.Dead()
			synctest.Wait()
			if !slices.Contains(log.take(), want) {
				t.Errorf("no %q", want)
			}
			if err := h.Down(t.Context()); err == nil {
				t.Error("nothing was left")
			}
		})
	}
}

func TestHealthIsLookedAtAsOftenAsConfigured(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card) {
		h := upWith(t, card, func(c *hca.Config) { c.Timeouts.Health = 250 * time.Millisecond })
		begin := time.Now()
		assertion(card, true)
		<-h.Dead()
		if d := time.Since(begin); d > 250*time.Millisecond {
			t.Errorf("noticed after %v", d)
		}
		if err := h.Down(t.Context()); err == nil {
			t.Error("nothing was left")
		}
	})
}

// dtor makes the card tell time-outs.
func dtor(card *fwtest.Card, r *prm.RegDTOR) {
	card.SetRegister(prm.InitSegCmdQInitToOff, uint32(prm.TimeoutSeconds)<<29|4)
	card.SetRegister(prm.InitSegCmdExecToOff, uint32(prm.TimeoutSeconds)<<29|20)
	card.Handle(prm.OpAccessReg, func(c *fwtest.Call) {
		var in prm.AccessRegIn
		in.Get(c.In)
		if in.RegisterID != prm.RegIDDTOR {
			c.Default()
			return
		}
		out := prm.AccessRegOut{RegisterData: make([]byte, prm.RegDTORSize)}
		r.Put(out.RegisterData)
		c.Answer(&out)
	})
}

func TestTimeoutsOfTheCardAreUsed(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card) {
		card.SetPersistent(func(c *fwtest.Card) {
			dtor(c, &prm.RegDTOR{
				HealthPollTo:   prm.Timeout{Multiplier: prm.TimeoutMilliseconds, Value: 500},
				ReclaimPagesTo: prm.Timeout{Multiplier: prm.TimeoutSeconds, Value: 9},
			})
		})
		h := up(t, card)
		begin := time.Now()
		card.Handle(prm.OpNop, func(*fwtest.Call) {})
		_ = h.Objects.Exec(t.Context(), &prm.NopIn{}, &prm.NopOut{})
		if d := time.Since(begin); d < 20*time.Second || d > 21*time.Second {
			t.Errorf("a command was given %v, the card says 20 s", d)
		}
		begin = time.Now()
		assertion(card, true)
		<-h.Dead()
		if d := time.Since(begin); d > 500*time.Millisecond {
			t.Errorf("health was looked at after %v", d)
		}
		if err := h.Down(t.Context()); err == nil {
			t.Error("nothing was left")
		}
	})
}

func TestTimeoutsOfTheUserGoBeforeThoseOfTheCard(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card) {
		card.SetPersistent(func(c *fwtest.Card) {
			dtor(c, &prm.RegDTOR{HealthPollTo: prm.Timeout{Multiplier: 7, Value: 1}}) // a unit that is none
		})
		h := upWith(t, card, func(c *hca.Config) { c.Timeouts.Command = 7 * time.Second })
		begin := time.Now()
		card.Handle(prm.OpNop, func(*fwtest.Call) {})
		_ = h.Objects.Exec(t.Context(), &prm.NopIn{}, &prm.NopOut{})
		if d := time.Since(begin); d < 7*time.Second || d > 8*time.Second {
			t.Errorf("a command was given %v, the user said 7 s", d)
		}
		if err := h.Down(t.Context()); err == nil {
			t.Error("nothing was left")
		}
	})
}

func TestSignaturesAreAgreedOnWithTheCard(t *testing.T) {
	for _, wanted := range []bool{false, true} {
		t.Run(fmt.Sprint(wanted), func(t *testing.T) {
			bubble(t, func(t *testing.T, card *fwtest.Card) {
				card.Handle(prm.OpSetHCACap, func(c *fwtest.Call) {
					var g prm.CapGeneral
					g.Get(c.In[0x10:])
					c.Default() // this one is answered as before
					c.Card.Sign(g.CmdifChecksum != 0)
				})
				h := upWith(t, card, func(c *hca.Config) { c.Signatures = wanted })
				card.Handle(prm.OpQueryHCACap, func(c *fwtest.Call) {
					c.Block = func(k int, m *prm.Mailbox) { m.Data()[1] ^= 0x10 }
					c.Default()
				})
				err := h.Objects.Exec(t.Context(), &prm.QueryHCACapIn{}, &prm.QueryHCACapOut{})
				if (err != nil) != wanted {
					t.Errorf("an answer that was changed on its way: %v", err)
				}
				if err := h.Down(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestResetIsAskedOfFirmwareThatWantsOne(t *testing.T) {
	for _, able := range []bool{false, true} {
		t.Run(fmt.Sprint(able), func(t *testing.T) {
			bubble(t, func(t *testing.T, card *fwtest.Card) {
				log := &lines{}
				h := upWith(t, card, func(c *hca.Config) { c.Log = slog.New(log) })
				if able {
					card.SetRegister(prm.InitSegStateOff, 1<<30)
				}
				assertion(card, true)
				<-h.Dead()
				begin := time.Now()
				h.RequestReset(t.Context()) // the card never turns its interface off
				if d := time.Since(begin); able != (d >= 2*time.Second) || d > 3*time.Second {
					t.Errorf("took %v", d)
				}
				if asked := slices.Contains(log.take(), "WARN Issuing FW Reset"); asked != able {
					t.Errorf("asked: %v", asked)
				}
				if err := h.Down(t.Context()); err == nil {
					t.Error("nothing was left")
				}
			})
		})
	}
}
