package driver_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cxkit/driver"
	"cxkit/driver/internal/fwtest"
	"cxkit/prm"
)

func TestCommandStatsAgreeWithTheCard(t *testing.T) {
	for _, mode := range []driver.Submit{driver.SubmitCaller, driver.SubmitQueue} {
		for _, pool := range []driver.MailboxPool{driver.MailboxPoolConstant, driver.MailboxPoolLinear} {
			scripted(t, func(t *testing.T, card *fwtest.Card) {
				c := config(t)
				c.Submit, c.MailboxPool, c.MeasureMailboxes = mode, pool, true
				nic, err := driver.Open(t.Context(), card, c)
				if err != nil {
					t.Fatal(err)
				}
				for range 10 {
					if err := nic.Exec(t.Context(), &prm.QueryVportCounterIn{}, &prm.QueryVportCounterOut{}); err != nil {
						t.Fatal(err)
					}
				}
				card.Handle(prm.OpNop, func(c *fwtest.Call) { c.Refuse(prm.StatusBadParameter, 0x1234) })
				if err := nic.Exec(t.Context(), &prm.NopIn{}, &prm.NopOut{}); driver.Errno(err) != "EINVAL" {
					t.Errorf("errno %s of %v", driver.Errno(err), err)
				}
				synctest.Wait()
				s := nic.CommandStats()
				all := uint64(0)
				for _, op := range card.Ops() {
					x, _ := s.Lookup(uint16(op))
					if int(x.Count) != card.Count(op) || x.Latency.Count() != x.Count || x.Name != op.String() {
						t.Errorf("%v: %d counted, the card saw %d", op, x.Count, card.Count(op))
					}
					if op != prm.OpManagePages {
						all += x.Count
					}
				}
				if x, _ := s.Lookup(uint16(prm.OpNop)); x.Failed != 1 || x.FailedStatus != 1 || x.LastSyndrome != 0x1234 || x.LastErrno != "EINVAL" {
					t.Errorf("NOP: %+v", x)
				}
				want := uint64(0)
				if mode == driver.SubmitQueue {
					want = all
				}
				if s.Queue.Items != want {
					t.Errorf("%v: %d work items, want %d", mode, s.Queue.Items, want)
				}
				if (s.Mailbox.Searched > 0) != (pool == driver.MailboxPoolLinear) || s.Mailbox.Free.Count() == 0 || s.Mailbox.Out != 0 {
					t.Errorf("%v pool: %+v", pool, s.Mailbox)
				}
				if s.Mode != "events" || s.Slots != 32 || s.InFlight != 0 || s.Total().Count < all {
					t.Errorf("stats: %+v", s)
				}
				if err := nic.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func TestResetBringsAFailedNICBack(t *testing.T) { // R25
	scripted(t, func(t *testing.T, card *fwtest.Card) {
		nic := open(t, card)
		if !nic.Health().OK() {
			t.Errorf("health: %+v", nic.Health())
		}
		card.SetRegister(prm.InitSegHealthOff+prm.HealthBufferRFRSeverityOff, prm.HealthBufferRFRSeverityDword(true, true, 3))
		card.SetRegister(prm.InitSegHealthOff+prm.HealthBufferSyndromeOff, prm.HealthBufferSyndromeDword(3, prm.HealthFWInternal, 0x8f7a))
		<-nic.Failed()
		synctest.Wait()
		if err := nic.RxQueue(0).Err(); err == nil {
			t.Error("the data path goes on")
		}
		if nic.Health().OK() {
			t.Error("the card is called healthy")
		}
		next, err := nic.Reset(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		empty(t, nic)
		if err := errors.Join(next.Err(), next.RxQueue(0).Err(), next.TxQueue(1).Err()); err != nil {
			t.Error(err)
		}
		h := next.Health()
		if f := h.Reporters[1]; !h.OK() || f.Errors != 1 || f.Recovers != 1 || f.Dump == nil {
			t.Errorf("health: %+v", h)
		}
		// A NIC that works can be reset, too.
		again, err := next.Reset(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if f := again.Health().Reporters[1]; f.Errors != 1 || f.Recovers != 2 {
			t.Errorf("fw_fatal: %+v", f)
		}
		if err := again.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestResetOfAVanishedCardGivesUp(t *testing.T) {
	scripted(t, func(t *testing.T, card *fwtest.Card) {
		nic := open(t, card)
		card.Vanish()
		<-nic.Failed()
		begin := time.Now()
		next, err := nic.Reset(t.Context())
		if next != nil || !errors.Is(err, driver.ErrGone) || !strings.Contains(err.Error(), "health recovery aborted") {
			t.Errorf("error: %v", err)
		}
		if d := time.Since(begin); d > 70*time.Second {
			t.Errorf("took %v", d)
		}
		card.SetPages(0, 0)
	})
}

// After a failure what ends things counts as done; what the card may still have is named by Close.
func TestRulesCanBeTakenBackOnAFailedCard(t *testing.T) {
	scripted(t, func(t *testing.T, card *fwtest.Card) {
		nic := open(t, card)
		var pd prm.AllocPDOut
		if err := nic.Exec(t.Context(), &prm.AllocPDIn{}, &pd); err != nil {
			t.Fatal(err)
		}
		card.Vanish()
		<-nic.Failed()
		if err := nic.Exec(t.Context(), &prm.DeallocPDIn{PD: pd.PD}, &prm.DeallocPDOut{}); err != nil {
			t.Errorf("release: %v", err)
		}
		if err := nic.Exec(t.Context(), &prm.AllocPDIn{}, &pd); !errors.Is(err, driver.ErrDown) || driver.Errno(err) != "ENXIO" {
			t.Errorf("create: %v", err)
		}
		var left *driver.LeftoverError
		if err := nic.Close(t.Context()); !errors.As(err, &left) {
			t.Errorf("close: %v", err)
		}
		card.SetPages(0, 0)
	})
}
