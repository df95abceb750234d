package rig_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"cxkit/device"
	"cxkit/device/fault"
	"cxkit/driver"
	"cxkit/internal/rig"
	"cxkit/pci"
	"cxkit/prm"
)

// TestAVirtualFunctionOpensWithoutThePortsSettings: firmware refuses a virtual function what is its physical
// function's. The driver says so once, and goes on.
func TestAVirtualFunctionOpensWithoutThePortsSettings(t *testing.T) {
	r, err := rig.New(rig.Config{Device: device.Config{VFs: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	function := func(i int) pci.Function {
		f, err := r.Function(i)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	physical := function(0)
	pf, err := driver.Open(t.Context(), physical, driver.Config{CheckBuffers: true})
	if err != nil {
		t.Fatal(err)
	}
	defer pf.Close(t.Context())
	if err := pf.EnableVFs(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	err = r.Card.Inject(fault.Plan{Faults: []fault.Fault{{
		Kind: fault.BadStatus, Opcodes: []prm.Opcode{prm.OpAccessReg}, Status: prm.StatusBadOperation, Syndrome: 1,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	vf, err := driver.Open(t.Context(), function(r.Card.VF(0, 1)), driver.Config{CheckBuffers: true, Logger: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		t.Fatalf("a virtual function does not open: %v", err)
	}
	defer vf.Close(t.Context())
	if n := strings.Count(said.String(), "left to its physical function"); n != 1 || !strings.Contains(said.String(), "PAOS") || !strings.Contains(said.String(), "PMTU") {
		t.Errorf("said %d times what it may not do, want once:\n%s", n, &said)
	}
	var refused *prm.CommandError
	if err := vf.SetLink(t.Context(), false); !errors.As(err, &refused) {
		t.Errorf("the link was set: %v, want the refusal", err)
	}
	var lacks *driver.UnsupportedError
	if err := vf.SetPauses(t.Context(), driver.Pauses{Rx: true}); !errors.As(err, &lacks) {
		t.Errorf("pauses were set: %v, want that they are not its own", err)
	}
	// A physical function needs them.
	vf.Close(t.Context())
	pf.Close(t.Context())
	if _, err := driver.Open(t.Context(), physical, driver.Config{CheckBuffers: true}); err == nil {
		t.Error("a physical function opens without")
	}
}
