package cmdif_test

import (
	"errors"
	"testing"

	"cxkit/driver/internal/cmdif"
	"cxkit/driver/internal/fwtest"
	"cxkit/prm"
)

func TestSignedCommandsAndAnswers(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		card.Sign(true)
		c.UseSignatures(true)
		pas := make([]uint64, 1000)
		for i := range pas {
			pas[i] = uint64(i+1) << 12
		}
		give := prm.ManagePagesIn{OpMod: uint16(prm.PagesGive), InputNumEntries: 1000, PAS: pas}
		if err := c.Exec(t.Context(), &give, &prm.ManagePagesOut{}); err != nil {
			t.Fatal(err)
		}
		take := prm.ManagePagesIn{OpMod: uint16(prm.PagesTake), InputNumEntries: 1000}
		out := prm.ManagePagesOut{PAS: make([]uint64, 1000)}
		if err := c.Exec(t.Context(), &take, &out); err != nil {
			t.Fatal(err)
		}
		if out.PAS[999] != 1000<<12 {
			t.Error("pages came back different")
		}
		c.UseSignatures(false) // firmware that checks, and a driver that does not sign
		var delivery *cmdif.DeliveryError
		if err := c.Exec(t.Context(), &give, &prm.ManagePagesOut{}); !errors.As(err, &delivery) || delivery.Delivery != prm.DeliverySignatureError {
			t.Errorf("unsigned: %v", err)
		}
	})
}

func TestWrongSignaturesOfAnswers(t *testing.T) {
	for name, breach := range map[string]func(*fwtest.Call){
		"entry":              func(c *fwtest.Call) { c.Tamper = func(e *prm.CmdEntry) { e.InlineOutput()[9]++ } },
		"block's data":       block(2, func(m *prm.Mailbox) { m.Data()[17]++ }),
		"block's signature":  block(7, func(m *prm.Mailbox) { m.SetSignature(m.Signature() + 1) }),
		"control signature":  block(0, func(m *prm.Mailbox) { m.SetCtrlSignature(m.CtrlSignature() ^ 1) }),
		"both, same balance": block(0, func(m *prm.Mailbox) { m.SetCtrlSignature(m.CtrlSignature() ^ 1); m.SetSignature(m.Signature() ^ 1) }),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
				card.Sign(true)
				card.Handle(prm.OpQueryHCACap, func(c *fwtest.Call) { breach(c); c.Finish() })
				// Not asked for, not checked (reference 01 §3: Linux).
				if err := c.Exec(t.Context(), &prm.NopIn{}, &prm.NopOut{}); err != nil {
					t.Error(err)
				}
				c.UseSignatures(true)
				err := c.Exec(t.Context(), &prm.QueryHCACapIn{}, &prm.QueryHCACapOut{})
				var e *cmdif.ProtocolError
				if !errors.As(err, &e) || !errors.Is(err, cmdif.ErrSignature) || cmdif.Errno(err) != "EHWPOISON" {
					t.Errorf("error: %v", err)
				}
				card.Handle(prm.OpQueryHCACap, nil)
				if err := c.Exec(t.Context(), &prm.QueryHCACapIn{}, &prm.QueryHCACapOut{}); err != nil {
					t.Errorf("the next command: %v", err)
				}
			})
		})
	}
}

func TestSignaturesAreNotCheckedUnlessEnabled(t *testing.T) {
	bubble(t, func(t *testing.T, card *fwtest.Card, c *cmdif.Interface) {
		card.Handle(prm.OpQueryHCACap, func(c *fwtest.Call) {
			block(3, func(m *prm.Mailbox) { m.SetSignature(0x77); m.SetCtrlSignature(0x33) })(c)
			c.Finish()
		})
		if err := c.Exec(t.Context(), &prm.QueryHCACapIn{}, &prm.QueryHCACapOut{}); err != nil {
			t.Error(err)
		}
	})
}
