package cmdif_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cxkit/driver/internal/cmdif"
	"cxkit/driver/internal/fwtest"
	"cxkit/prm"
)

// recorder keeps messages.
type recorder struct {
	mu    sync.Mutex
	lines []string // "LEVEL message"
	diag  []string // values of attribute diagnosis
}

func newRecorder() *recorder { return &recorder{} }

func (r *recorder) attach(c *cmdif.Config)                   { c.Log = slog.New(r) }
func (r *recorder) Enabled(context.Context, slog.Level) bool { return true }
func (r *recorder) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r *recorder) WithGroup(string) slog.Handler            { return r }
func (r *recorder) Handle(_ context.Context, x slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, x.Level.String()+" "+x.Message)
	x.Attrs(func(a slog.Attr) bool {
		if a.Key == "diagnosis" {
			r.diag = append(r.diag, a.Value.String())
		}
		return true
	})
	return nil
}

// take returns the messages so far and forgets them.
func (r *recorder) take() (lines, diagnoses []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines, diagnoses = r.lines, r.diag
	r.lines, r.diag = nil, nil
	return lines, diagnoses
}

func (r *recorder) expect(t *testing.T, message string) {
	t.Helper()
	lines, _ := r.take()
	if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, message) }) {
		t.Errorf("no message %q in\n%s", message, strings.Join(lines, "\n"))
	}
}

// exactly compares all messages and diagnoses.
func (r *recorder) exactly(t *testing.T, diagnosis string, want ...string) {
	t.Helper()
	lines, diagnoses := r.take()
	if !slices.Equal(lines, want) {
		t.Errorf("messages\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	if got := strings.Join(diagnoses, ","); got != diagnosis {
		t.Errorf("diagnosis %q, want %q", got, diagnosis)
	}
}

// Messages are the ones that mlx5_core prints in the reports: operators' patterns match them.
func TestMessagesOfATimeOut(t *testing.T) { // R04, R08, R10, R28
	log := newRecorder()
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		events(c)
		calls := hold(card, prm.OpAccessReg)
		_ = c.Exec(t.Context(), &prm.AccessRegIn{}, &prm.AccessRegOut{})
		log.exactly(t, "firmware silent",
			"WARN cmd[0]: ACCESS_REG(0x805) No done completion",
			"WARN ACCESS_REG(0x805) timeout. Will cause a leak of a command resource")
		time.Sleep(13700 * time.Millisecond)
		call := <-calls
		call.Finish()
		c.Complete(1 << call.Slot)
		log.exactly(t, "", "ERROR Command completion arrived after timeout (entry idx = 0).")
		// The same, found without an event.
		hold(card, prm.OpAccessReg)
		_ = c.Start(&prm.AccessRegIn{}, &prm.AccessRegOut{}, func(error) {})
		time.Sleep(61 * time.Second)
		log.exactly(t, "firmware silent", "WARN cmd[0]: ACCESS_REG(0x805) Async, timeout. Will cause a leak of a command resource")
	}, log.attach)
}

func TestMessagesOfLostInterruptsAndEvents(t *testing.T) { // R14
	log := newRecorder()
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		c.UseEvents(func() int { c.Complete(1); return 1 })
		_ = c.Exec(t.Context(), &prm.CreateEQIn{}, &prm.CreateEQOut{})
		log.exactly(t, "interrupt lost",
			"WARN Recovered 1 EQEs on cmd_eq", "WARN cmd[0]: CREATE_EQ(0x301) recovered after timeout")
		events(c)
		_ = c.Exec(t.Context(), &prm.CreateEQIn{}, &prm.CreateEQOut{})
		log.exactly(t, "EQE lost", "WARN cmd[0]: CREATE_EQ(0x301) recovered after timeout")
		_ = c.Start(&prm.CreateEQIn{}, &prm.CreateEQOut{}, func(error) {})
		time.Sleep(61 * time.Second)
		log.exactly(t, "EQE lost", "WARN cmd[0]: CREATE_EQ(0x301) Async, recovered after timeout")
	}, log.attach)
}

func TestMessageOfARefusalAndItsLimit(t *testing.T) { // R28
	log := newRecorder()
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		card.Handle(prm.OpAccessReg, func(c *fwtest.Call) { c.Refuse(prm.StatusBadOperation, 0x1c2af3) })
		refuse := func(n int) {
			for range n {
				_ = c.Exec(t.Context(), &prm.AccessRegIn{OpMod: 1}, &prm.AccessRegOut{})
			}
		}
		refuse(1)
		log.exactly(t, "", "ERROR ACCESS_REG(0x805) op_mod(0x1) failed, status bad operation(0x2), syndrome (0x1c2af3), err(-22)")
		refuse(1000)
		if lines, _ := log.take(); len(lines) != 9 {
			t.Errorf("%d messages more in the same 5 s, want 9", len(lines))
		}
		time.Sleep(6 * time.Second)
		refuse(1)
		log.expect(t, "991 callbacks suppressed")
	}, log.attach)
}

func TestDiagnosesOfSilence(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*fwtest.Card)
		cause   cmdif.Cause
	}{
		"nothing else": {func(*fwtest.Card) {}, cmdif.FirmwareSilent},
		"gone":         {(*fwtest.Card).Vanish, cmdif.DeviceGone},
		"disabled": {func(c *fwtest.Card) {
			c.SetRegister(prm.InitSegCmdQOff, prm.InitSegCmdQDword(1, prm.NICInterfaceDisabled, 5, 6))
		}, cmdif.InterfaceError},
		"reset": {func(c *fwtest.Card) {
			c.SetRegister(prm.InitSegCmdQOff, prm.InitSegCmdQDword(1, prm.NICInterfaceSWReset, 5, 6))
		}, cmdif.InterfaceError},
		"syndrome": {func(c *fwtest.Card) {
			c.SetRegister(prm.InitSegHealthOff+prm.HealthBufferRFRSeverityOff, prm.HealthBufferRFRSeverityDword(true, true, 3))
			c.SetRegister(prm.InitSegHealthOff+prm.HealthBufferSyndromeOff, prm.HealthBufferSyndromeDword(3, prm.HealthFWInternal, 0))
		}, cmdif.InterfaceError},
		"syndrome without a wish for a reset": {func(c *fwtest.Card) {
			c.SetRegister(prm.InitSegHealthOff+prm.HealthBufferSyndromeOff, prm.HealthBufferSyndromeDword(3, prm.HealthFWInternal, 0))
		}, cmdif.InterfaceError},
	} {
		t.Run(name, func(t *testing.T) {
			bothModes(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
				calls := hold(card, prm.OpNop)
				end := async(func() error { return nop(c, context.Background()) })
				synctest.Wait()
				test.prepare(card)
				noAnswer(t, <-end, test.cause, cmdif.ErrTimeout)
				(<-calls).Finish()
			})
		})
	}
}

// A log handler may look at the interface that logs.
func TestLogHandlerMayAskTheInterface(t *testing.T) {
	a := &asker{}
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		a.c = c
		events(c)
		calls := hold(card, prm.OpNop)
		_ = nop(c, t.Context())
		call := <-calls
		call.Finish()
		c.Complete(1 << call.Slot)
		if a.asked < 3 {
			t.Errorf("%d messages", a.asked)
		}
	}, func(c *cmdif.Config) { c.Log = slog.New(a) })
}

type asker struct {
	recorder
	c     *cmdif.Interface
	asked int
}

func (a *asker) Handle(context.Context, slog.Record) error {
	a.c.Books()
	a.c.Stats()
	a.asked++
	return nil
}
