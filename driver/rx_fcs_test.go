package driver

import (
	"context"
	"errors"
	"testing"

	"cxkit/dma"
	"cxkit/driver/internal/cmdif"
	"cxkit/driver/internal/object"
	"cxkit/prm"
)

func TestWrongCombinationsWithCheckSequencesAreNamed(t *testing.T) {
	fcs := Offloads{ReceiveFCS: true}
	for want, c := range map[string]Config{
		"config: check sequences of received frames with large receives, which have none":  {Offloads: Offloads{ReceiveFCS: true, LargeReceive: true, Striding: true}},
		"config: check sequences of received frames with GRO: they are no payload":         {Offloads: fcs, Receiving: Receiving{GRO: true}},
		"config: check sequences of received frames with a program, which would send them": {Offloads: fcs, Receiving: Receiving{Program: func(*Frame) Verdict { return Pass }}},
		"config: buffers of 1525 bytes: MTU 1500 needs 1526 to 65536":                      {Offloads: fcs, BufferSize: 1525},
	} {
		if _, err := c.complete(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	n := newWriter(t, Config{Arena: dma.Heap, Offloads: fcs}).nic
	var lacks *UnsupportedError
	if err := n.checkOffloads(); !errors.As(err, &lacks) || lacks.What != "check sequences of received frames" {
		t.Errorf("a card without scatter_fcs: %v", err)
	}
}

// portChecks is a card that has register PCMR and nothing else.
type portChecks struct {
	reg    prm.RegPCMR
	writes int
	err    error
}

func (c *portChecks) Exec(_ context.Context, in cmdif.In, out cmdif.Out) error {
	access, to := in.(*prm.AccessRegIn), out.(*prm.AccessRegOut)
	if access.RegisterID != prm.RegIDPCMR || c.err != nil {
		return errors.Join(errors.New("refused"), c.err)
	}
	if access.OpMod == accessWrite {
		c.writes++
		c.reg.Get(access.RegisterData)
	}
	c.reg.Put(to.RegisterData)
	return nil
}

// Cards may put time stamps where the check sequence is: that ends, and nothing else is changed.
func TestTimeStampsDoNotCoverCheckSequences(t *testing.T) {
	for _, c := range []struct {
		what        string
		fcs, ports  bool
		able, cover bool
		writes      int
	}{
		{"covered", true, true, true, true, 1}, {"uncovered", true, true, true, false, 0}, {"cannot", true, true, false, false, 0},
		{"no register", true, false, true, true, 0}, {"not asked for", false, true, true, true, 0},
	} {
		card := &portChecks{reg: prm.RegPCMR{LocalPort: 1, RXTSOverCRCCap: c.able, RXTSOverCRC: c.cover, FCSChk: true, EntropyCalc: true}}
		n := newWriter(t, Config{Arena: dma.Heap, Offloads: Offloads{ReceiveFCS: c.fcs}}).nic
		n.base.objects, n.base.general.PortsCheck = object.NewBook(card), c.ports
		want := card.reg
		want.RXTSOverCRC = want.RXTSOverCRC && c.writes == 0
		if err := n.uncoverFCS(t.Context()); err != nil || card.writes != c.writes || card.reg != want {
			t.Errorf("%s: %v, %d writes, %+v", c.what, err, card.writes, card.reg)
		}
	}
	card := &portChecks{err: errors.New("no")}
	n := newWriter(t, Config{Arena: dma.Heap, Offloads: Offloads{ReceiveFCS: true}}).nic
	n.base.objects, n.base.general.PortsCheck = object.NewBook(card), true
	if err := n.uncoverFCS(t.Context()); !errors.Is(err, card.err) {
		t.Errorf("a card that refuses: %v", err)
	}
}
