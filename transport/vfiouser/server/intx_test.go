//go:build linux

package server_test

import (
	"testing"

	"cxkit/pci"
	"cxkit/transport/vfiouser"
	"cxkit/transport/vfiouser/server"
)

// pinned is a card whose configuration space names an INTx wire.
type pinned struct{ pci.Endpoint }

func (p pinned) ReadConfig(off, size int) uint32 {
	if off == 0x3d && size == 1 {
		return 1
	}
	return p.Endpoint.ReadConfig(off, size)
}

// TestAnINTxWireIsAcceptedAndStaysQuiet: QEMU connects the wire of every function with an interrupt pin,
// and gives the device up if that is refused.
func TestAnINTxWireIsAcceptedAndStaysQuiet(t *testing.T) {
	c := newCard()
	r := connect(t, listen(t, pinned{c}, server.Config{}))
	r.hello()
	r.host = <-c.hosts
	var info vfiouser.IRQInfo
	ask := vfiouser.IRQInfo{Index: vfiouser.IRQIntX}
	if err := info.Parse(r.must(vfiouser.DeviceGetIRQ, ask.Append(nil))); err != nil || info.Count != 1 {
		t.Errorf("INTx: %+v, %v; want one wire", info, err)
	}
	files, wire := openFiles(t), eventFD(t)
	r.must(vfiouser.DeviceSetIRQs, setIRQs(toEventFD, vfiouser.IRQIntX, 0, 1), wire)
	r.must(vfiouser.DeviceSetIRQs, setIRQs(vfiouser.IRQDataNone|vfiouser.IRQMask, vfiouser.IRQIntX, 0, 1))
	r.must(vfiouser.DeviceSetIRQs, setIRQs(vfiouser.IRQDataNone|vfiouser.IRQUnmask, vfiouser.IRQIntX, 0, 1))
	r.host.Raise(0)
	if n := count(wire); n != 0 {
		t.Errorf("the wire was signalled %d times", n)
	}
	r.must(vfiouser.DeviceSetIRQs, setIRQs(now, vfiouser.IRQIntX, 0, 0))
	if got := openFiles(t); got != files+1 { // the test's own
		t.Errorf("%d files open, want %d", got, files+1)
	}
	if _, err := r.ask(vfiouser.DeviceSetIRQs, setIRQs(toEventFD, vfiouser.IRQIntX, 0, 2), wire, wire); err == nil {
		t.Error("a second wire is accepted")
	}
}
