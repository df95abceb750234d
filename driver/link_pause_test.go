package driver

import (
	"errors"
	"testing"

	"cxkit/prm"
)

// Every combination is read back as set, and the priorities' bits are theirs.
func TestPausesAreReadBackAsSet(t *testing.T) {
	nic, _ := onModel(t, Config{})
	for _, want := range []Pauses{
		{}, {Rx: true}, {Tx: true}, {Rx: true, Tx: true}, {PrioritiesRx: 1 << 3}, {PrioritiesTx: 1<<7 | 1},
		{PrioritiesRx: 0xff, PrioritiesTx: 0x0f}, {},
	} {
		if err := nic.SetPauses(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		if got, err := nic.Pauses(t.Context()); got != want || err != nil {
			t.Errorf("set %v, read %v, %v", want, got, err)
		}
	}
}

// What may not be set, or no longer, is refused, and what was set stays.
func TestPausesThatMayNotBeSetAreRefused(t *testing.T) {
	nic, _ := onModel(t, Config{})
	set := Pauses{Tx: true}
	if err := nic.SetPauses(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	var lacks *UnsupportedError
	nic.base.general.VportGroupManager = false
	if err := nic.SetPauses(t.Context(), Pauses{Rx: true}); !errors.As(err, &lacks) {
		t.Errorf("a function that does not manage its port: %v", err)
	}
	nic.base.general.VportGroupManager = true
	id := nic.base.info.DeviceID
	nic.base.info.DeviceID = id + 1 // of its virtual functions
	if err := nic.SetPauses(t.Context(), Pauses{Rx: true}); !errors.As(err, &lacks) {
		t.Errorf("a virtual function: %v", err)
	}
	nic.base.info.DeviceID = id
	if got, err := nic.Pauses(t.Context()); got != set || err != nil {
		t.Errorf("after refusals: %v, %v", got, err)
	}
	var refused *prm.CommandError
	bad := prm.RegPFCC{LocalPort: 9}
	if err := nic.register(t.Context(), prm.RegIDPFCC, accessWrite, &bad); !errors.As(err, &refused) {
		t.Errorf("a port that is not there: %v", err)
	}
	if err := nic.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := nic.SetPauses(t.Context(), set); !errors.Is(err, ErrNICClosed) {
		t.Errorf("set after Close: %v", err)
	}
	if _, err := nic.Pauses(t.Context()); !errors.Is(err, ErrNICClosed) {
		t.Errorf("read after Close: %v", err)
	}
}

func TestPausesArePrinted(t *testing.T) {
	for want, p := range map[string]Pauses{
		"off": {}, "rx tx": {Rx: true, Tx: true}, "tx rx-priorities 0x8": {Tx: true, PrioritiesRx: 8}, "tx-priorities 0xff": {PrioritiesTx: 0xff},
	} {
		if got := p.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
