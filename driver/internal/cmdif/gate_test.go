package cmdif_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"cxkit/driver/internal/cmdif"
	"cxkit/driver/internal/fwtest"
	"cxkit/prm"
)

func TestDownDeviceTakesTeardownAsDone(t *testing.T) {
	bothModes(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		why := errors.New("synd 0x1")
		c.Fail(why)
		for _, x := range []struct {
			in  cmdif.In
			out cmdif.Out
		}{
			{&prm.TeardownHCAIn{}, &prm.TeardownHCAOut{}}, {&prm.DisableHCAIn{}, &prm.DisableHCAOut{}},
			{&prm.DestroyEQIn{}, &prm.DestroyEQOut{}}, {&prm.DestroyCQIn{}, &prm.DestroyCQOut{}},
			{&prm.DestroyRQIn{}, &prm.DestroyRQOut{}}, {&prm.DestroySQIn{}, &prm.DestroySQOut{}},
			{&prm.DestroyMKeyIn{}, &prm.DestroyMKeyOut{}}, {&prm.DeallocUARIn{}, &prm.DeallocUAROut{}},
			{&prm.DeallocPDIn{}, &prm.DeallocPDOut{}}, {&prm.DestroyTIRIn{}, &prm.DestroyTIROut{}},
			{&prm.DeleteFlowTableEntryIn{}, &prm.DeleteFlowTableEntryOut{}},
			{&prm.DestroyFlowTableIn{}, &prm.DestroyFlowTableOut{}},
		} {
			outcome, err := c.Run(t.Context(), x.in, x.out)
			if err != nil || outcome != cmdif.Emulated {
				t.Errorf("%v: outcome %v, %v", x.in.Opcode(), outcome, err)
			}
		}
		// Nobody is told that something was made or changed, nor that there are no pages out (b898ce7bccf1).
		for _, x := range []struct {
			in  cmdif.In
			out cmdif.Out
		}{
			{&prm.NopIn{}, &prm.NopOut{}}, {&prm.CreateCQIn{}, &prm.CreateCQOut{}}, {&prm.ModifyRQIn{}, &prm.ModifyRQOut{}},
			{&prm.ModifyNICVportContextIn{}, &prm.ModifyNICVportContextOut{}}, {&prm.QueryHCACapIn{}, &prm.QueryHCACapOut{}},
			{&prm.SetFlowTableEntryIn{}, &prm.SetFlowTableEntryOut{}}, {&prm.ManagePagesIn{}, &prm.ManagePagesOut{}},
		} {
			err := c.Exec(t.Context(), x.in, x.out)
			noAnswer(t, err, cmdif.NeverIssued, why)
			if no := cmdif.Errno(err); no != "ENXIO" {
				t.Errorf("%v: errno %s", x.in.Opcode(), no)
			}
		}
		if ops := card.Ops(); len(ops) != 0 {
			t.Errorf("firmware saw %v", ops)
		}
		if s, _ := c.Stats().Lookup(uint16(prm.OpDestroyCQ)); s.Emulated != 1 || s.Count != 0 || s.Failed != 0 {
			t.Errorf("DESTROY_CQ: %+v", s)
		}
	})
}

func TestTeardownThatWaitsWhenTheDeviceGoesDownIsDoneToo(t *testing.T) {
	bothModes(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		events(c)
		calls := hold(card, prm.OpQueryISSI)
		for range 31 {
			go func() { _ = c.Exec(t.Context(), &prm.QueryISSIIn{}, &prm.QueryISSIOut{}) }()
		}
		synctest.Wait()
		end := async(func() error { return c.Exec(t.Context(), &prm.DestroyCQIn{}, &prm.DestroyCQOut{}) })
		synctest.Wait()
		c.Fail(errors.New("synd 0x1"))
		if err := <-end; err != nil {
			t.Error(err)
		}
		for range 31 {
			(<-calls).Finish()
		}
	})
}

func TestTeardownInFlightWhenTheDeviceGoesDownIsNotDone(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		calls := hold(card, prm.OpDestroyCQ)
		end := async(func() error { return c.Exec(t.Context(), &prm.DestroyCQIn{}, &prm.DestroyCQOut{}) })
		call := <-calls
		c.Fail(errors.New("synd 0x1"))
		err := <-end
		noAnswer(t, err, cmdif.Flushed, cmdif.ErrDown)
		if no := cmdif.Errno(err); no != "ENXIO" {
			t.Errorf("errno %s", no)
		}
		call.Finish()
	})
}
