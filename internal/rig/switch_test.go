package rig_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cxkit/device"
	"cxkit/device/fault"
	"cxkit/dma"
	"cxkit/driver"
	"cxkit/internal/rig"
	"cxkit/pci"
	"cxkit/transport/inproc"
)

// host is a card with a physical function and virtual functions, all opened by this driver.
type host struct {
	*testing.T
	rig *rig.Rig
	pf  *driver.NIC
	vfs []*driver.NIC

	functions map[int]pci.Function
}

// openHost opens the physical function, enables n virtual functions in a mode and opens them.
func openHost(t *testing.T, n int, mode driver.Mode) *host {
	t.Helper()
	r, err := rig.New(rig.Config{Device: device.Config{VFs: n, Seed: 1}, Transport: inproc.Config{Kind: dma.Heap}})
	if err != nil {
		t.Fatal(err)
	}
	h := &host{T: t, rig: r, functions: map[int]pci.Function{}}
	t.Cleanup(func() {
		for i, b := range r.Card.Books().Functions {
			if !b.Clean() {
				t.Errorf("function %d is not clean: %+v", i, b)
			}
		}
		for _, f := range h.functions {
			f.Close()
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	h.pf = h.open(0)
	h.setMode(t.Context(), mode)
	h.ok(h.pf.EnableVFs(t.Context(), n))
	for i := range n {
		h.vfs = append(h.vfs, h.open(r.Card.VF(0, i+1)))
	}
	return h
}

// open opens a function; the NIC is closed with the test.
func (h *host) open(i int) *driver.NIC {
	h.Helper()
	f := h.functions[i]
	if f == nil {
		var err error
		if f, err = h.rig.Function(i); err != nil {
			h.Fatal(err)
		}
		h.functions[i] = f
	}
	nic, err := driver.Open(h.Context(), f, driver.Config{CheckBuffers: true, RxRing: 256, TxRing: 256, MaxChannels: 3})
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := nic.Close(ctx); err != nil {
			h.Errorf("close function %d: %v", i, err)
		}
	})
	return nic
}

func (h *host) ok(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// setMode changes the mode where no frame can be lost by it.
func (h *host) setMode(ctx context.Context, mode driver.Mode) {
	h.Helper()
	lost, err := h.pf.SetMode(ctx, mode)
	h.ok(err)
	if lost != (driver.Lost{}) {
		h.Errorf("the change to %v mode lost %+v", mode, lost)
	}
}

// ends is what sends and receives: a NIC's queue pair or a representor's.
type ends struct {
	rx *driver.RxQueue
	tx *driver.TxQueue
}

func nicEnds(n *driver.NIC) ends                 { return ends{n.RxQueue(0), n.TxQueue(0)} }
func representorEnds(r *driver.Representor) ends { return ends{r.Rx(), r.Tx()} }

// send sends a frame.
func (h *host) send(e ends, frame []byte) {
	h.Helper()
	pkts := make([]driver.Packet, 1)
	for e.tx.Get(pkts) == 0 {
		h.ok(e.tx.Wait(h.Context()))
	}
	pkts[0].Data = append(pkts[0].Data[:0], frame...)
	for e.tx.Send(pkts) == 0 {
		h.ok(e.tx.Wait(h.Context()))
	}
	h.ok(e.tx.Flush(h.Context()))
}

// expect waits for a frame.
func (h *host) expect(what string, e ends, want []byte) {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.Context(), time.Minute)
	defer cancel()
	pkts := make([]driver.Packet, 1)
	for e.rx.Poll(pkts) == 0 {
		if err := e.rx.Wait(ctx); err != nil {
			h.Fatalf("%s: %v", what, err)
		}
	}
	if got := pkts[0].Data; !bytes.Equal(got, want) {
		h.Errorf("%s:\n got %x\nwant %x", what, got, want)
	}
	e.rx.Release(pkts)
}

// none checks that no frame is there. Whatever could be on its way has been waited for.
func (h *host) none(what string, e ends) {
	h.Helper()
	pkts := make([]driver.Packet, 1)
	if e.rx.Poll(pkts) != 0 {
		h.Errorf("%s: %x", what, pkts[0].Data)
		e.rx.Release(pkts)
	}
}

// frame is a frame of 60 bytes.
func frame(dst, src driver.MAC, mark uint32) []byte {
	f := make([]byte, 60)
	copy(f, dst[:])
	copy(f[6:], src[:])
	binary.BigEndian.PutUint16(f[12:], 0x88b5)
	binary.BigEndian.PutUint32(f[14:], mark)
	return f
}

func TestVirtualFunctionsMeetInLegacyMode(t *testing.T) {
	h := openHost(t, 2, driver.Legacy)
	a, b, p := nicEnds(h.vfs[0]), nicEnds(h.vfs[1]), nicEnds(h.pf)
	macs := []driver.MAC{h.pf.MAC(), h.vfs[0].MAC(), h.vfs[1].MAC()}
	h.ok(h.pf.RefreshVports(t.Context()))
	f := frame(macs[2], macs[1], 1)
	h.send(a, f)
	h.expect("from one virtual function to another", b, f)
	f = frame(macs[1], macs[0], 2)
	h.send(p, f)
	h.expect("from the physical function", a, f)
	f = frame(macs[0], macs[2], 3)
	h.send(b, f)
	h.expect("to the physical function", p, f)
	f = frame(macs[1], driver.MAC{2, 9}, 4)
	h.ok(h.rig.Far.SendAll(t.Context(), f))
	h.expect("from the wire", a, f)
	f = frame(driver.MAC{2, 9}, macs[2], 5)
	h.send(b, f)
	if got, err := h.rig.Far.Recv(t.Context()); err != nil || !bytes.Equal(got, f) {
		t.Errorf("on the wire: %x, %v", got, err)
	}
	f = frame(driver.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, macs[1], 6)
	h.send(a, f)
	h.expect("broadcast", b, f)
	h.expect("broadcast", p, f)
	h.none("own broadcast", a)
	s, err := h.pf.VportStats(t.Context(), 2)
	h.ok(err)
	if s.RxUnicast.Packets != 1 || s.RxBroadcast.Packets != 1 || s.TxUnicast.Packets != 2 {
		t.Errorf("counters of vport 2: %+v", s)
	}
}

func TestVirtualFunctionsAreConfiguredByTheirManager(t *testing.T) {
	h := openHost(t, 2, driver.Legacy)
	ctx := t.Context()
	mac := driver.MAC{2, 0, 0, 0, 0, 0x11}
	h.ok(h.vfs[0].Close(ctx))
	h.ok(h.pf.SetVF(ctx, 1, driver.VFConfig{MAC: mac, SpoofCheck: true, MaxRate: 100_000}))
	h.vfs[0] = h.reopen(1)
	if h.vfs[0].MAC() != mac {
		t.Errorf("the virtual function has address %v, want %v", h.vfs[0].MAC(), mac)
	}
	h.ok(h.pf.RefreshVports(ctx))
	a, b := nicEnds(h.vfs[0]), nicEnds(h.vfs[1])
	other := h.vfs[1].MAC()
	h.send(a, frame(other, driver.MAC{2, 6, 6, 6}, 1)) // spoofed
	f := frame(other, mac, 2)
	h.send(a, f)
	h.expect("the honest frame, first of all", b, f)

	// VST: the two are in different VLANs, then in one.
	h.ok(h.pf.SetVF(ctx, 1, driver.VFConfig{MAC: mac, VLAN: 10, Priority: 2}))
	h.ok(h.pf.SetVF(ctx, 2, driver.VFConfig{VLAN: 11}))
	h.send(a, frame(other, mac, 3))
	h.ok(h.pf.SetVF(ctx, 2, driver.VFConfig{VLAN: 10}))
	f = frame(other, mac, 4)
	h.send(a, f)
	h.expect("a frame in the same VLAN, first of all", b, f)
	if c, err := h.pf.VF(ctx, 2); err != nil || c.VLAN != 10 {
		t.Errorf("configuration %+v, %v", c, err)
	}
	for _, bad := range []driver.VFConfig{{MAC: driver.MAC{1}}, {VLAN: 4095}, {Priority: 8}, {SpoofCheck: true}, {Link: 3}} {
		if err := h.pf.SetVF(ctx, 1, bad); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
	if err := h.vfs[0].SetVF(ctx, 1, driver.VFConfig{}); !errors.Is(err, driver.ErrNoSwitch) {
		t.Errorf("a virtual function configures others: %v", err)
	}
	// Link policy.
	links := h.vfs[0].LinkChanges(ctx)
	h.ok(h.pf.SetVF(ctx, 1, driver.VFConfig{MAC: mac, Link: driver.LinkDown}))
	for l := range links {
		if !l.Up {
			break
		}
	}
}

// reopen opens virtual function i again, whose function is plugged in already.
func (h *host) reopen(i int) *driver.NIC { return h.open(h.rig.Card.VF(0, i)) }

func TestTrustedVirtualFunctionsReceiveWhatIsNotTheirs(t *testing.T) {
	h := openHost(t, 2, driver.Legacy)
	ctx := t.Context()
	a, b := nicEnds(h.vfs[0]), nicEnds(h.vfs[1])
	for _, n := range h.vfs {
		h.ok(n.SetPromiscuous(ctx, true))
	}
	h.ok(h.pf.SetVF(ctx, 1, driver.VFConfig{Trust: true}))
	h.ok(h.pf.RefreshVports(ctx))
	// A marker that both get comes last.
	marker := frame(driver.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, driver.MAC{2, 9}, 99)
	strange, group := frame(driver.MAC{2, 7, 7, 7}, driver.MAC{2, 9}, 1), frame(driver.MAC{3, 7, 7, 7}, driver.MAC{2, 9}, 2)
	h.ok(h.rig.Far.SendAll(ctx, strange, group, marker))
	h.expect("of nobody, to the trusted one", a, strange)
	h.expect("multicast, to the trusted one", a, group)
	h.expect("broadcast", a, marker)
	h.expect("broadcast, and nothing before", b, marker)

	// Without trust promiscuous mode means nothing to the e-switch; a multicast address that is asked for does.
	h.ok(h.pf.SetVF(ctx, 1, driver.VFConfig{}))
	h.ok(h.vfs[1].AddMulticast(ctx, driver.MAC{3, 7, 7, 7}))
	h.ok(h.pf.RefreshVports(ctx))
	h.ok(h.rig.Far.SendAll(ctx, strange, group, marker))
	h.expect("broadcast, and nothing before", a, marker)
	h.expect("multicast that was asked for", b, group)
	h.expect("broadcast", b, marker)
	h.ok(h.vfs[1].RemoveMulticast(ctx, driver.MAC{3, 7, 7, 7}))
	h.ok(h.pf.RefreshVports(ctx))
	h.ok(h.rig.Far.SendAll(ctx, group, marker))
	h.expect("broadcast, and nothing before", b, marker)
}

func TestRepresentorsAndRulesOfSwitchdevMode(t *testing.T) {
	h := openHost(t, 2, driver.Switchdev)
	ctx := t.Context()
	a, b := nicEnds(h.vfs[0]), nicEnds(h.vfs[1])
	var reps []ends
	for i := range 2 {
		r, err := h.pf.Representor(ctx, i+1)
		h.ok(err)
		reps = append(reps, representorEnds(r))
	}
	ma, mb := h.vfs[0].MAC(), h.vfs[1].MAC()
	f := frame(mb, ma, 1)
	h.send(a, f)
	h.expect("a miss at the representor", reps[0], f)
	h.send(reps[1], f)
	h.expect("what the representor sent", b, f)

	// The bridge learns and offloads: from then on the representors see nothing.
	from := driver.Vport(1)
	rule, err := h.pf.AddSwitchRule(ctx, driver.SwitchMatch{From: &from, Destination: &mb}, driver.SwitchAction{To: []driver.Vport{2}, Count: true})
	h.ok(err)
	for i := range uint32(5) {
		f = frame(mb, ma, 10+i)
		h.send(a, f)
		h.expect("through the rule", b, f)
	}
	h.none("at the representor", reps[0])
	if n, err := h.pf.SwitchRuleCount(ctx, rule); err != nil || n != (driver.Traffic{Packets: 5, Bytes: 300}) {
		t.Errorf("the rule counted %+v, %v", n, err)
	}
	// A mirror with a tag, a drop.
	h.ok(h.pf.RemoveSwitchRule(ctx, rule))
	_, err = h.pf.AddSwitchRule(ctx, driver.SwitchMatch{From: &from, Destination: &mb},
		driver.SwitchAction{To: []driver.Vport{2, driver.Uplink}, Push: &driver.VLANTag{ID: 5, Priority: 1}})
	h.ok(err)
	h.send(a, f)
	got, err := h.rig.Far.Recv(ctx)
	h.ok(err)
	if want := append(append(bytes.Clone(f[:12]), 0x81, 0, 0x20, 5), f[12:]...); !bytes.Equal(got, want) {
		t.Errorf("on the wire:\n got %x\nwant %x", got, want)
	}
	back := driver.Vport(2)
	_, err = h.pf.AddSwitchRule(ctx, driver.SwitchMatch{From: &back}, driver.SwitchAction{})
	h.ok(err)
	h.send(b, frame(ma, mb, 3))
	h.none("a dropped frame", reps[1])
	// The uplink's representor is the NIC itself.
	f = frame(h.pf.MAC(), driver.MAC{2, 9}, 4)
	h.ok(h.rig.Far.SendAll(ctx, f))
	h.expect("a miss of the uplink", nicEnds(h.pf), f)
	f = frame(driver.MAC{2, 9}, h.pf.MAC(), 5)
	h.send(nicEnds(h.pf), f)
	if got, err := h.rig.Far.Recv(ctx); err != nil || !bytes.Equal(got, f) {
		t.Errorf("on the wire: %x, %v", got, err)
	}
	if _, err := h.pf.AddSwitchRule(ctx, driver.SwitchMatch{From: &from, Destination: &mb}, driver.SwitchAction{To: []driver.Vport{9}}); err == nil {
		t.Error("a rule to a vport that does not exist")
	}
	h.setMode(ctx, driver.Legacy)
	if _, err := h.pf.AddSwitchRule(ctx, driver.SwitchMatch{}, driver.SwitchAction{}); !errors.Is(err, driver.ErrMode) {
		t.Errorf("a rule in legacy mode: %v", err)
	}
	if err := reps[0].rx.Err(); err == nil {
		t.Error("the representor's queue outlives the mode")
	}
}

// Mode switches under traffic: commands succeed, nothing is delivered wrong, and nothing is left behind.
func TestModeSwitchesUnderTraffic(t *testing.T) {
	switches := 100 // CXKIT_MODE_SWITCHES=1000 makes it more
	if n, err := strconv.Atoi(os.Getenv("CXKIT_MODE_SWITCHES")); err == nil {
		switches = n
	}
	if testing.Short() || raceDetector {
		switches = 10
	}
	h := openHost(t, 2, driver.Legacy)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h.ok(h.pf.RefreshVports(ctx))
	ma, mb := h.vfs[0].MAC(), h.vfs[1].MAC()
	done := make(chan [2]uint32)
	// No ring overflows: so many frames are on their way at most.
	credits := make(chan struct{}, 128)
	give := func(n int) {
		for range n {
			credits <- struct{}{}
		}
	}
	give(cap(credits))
	go func() { // vport 1 sends to vport 2
		var sent uint32
		e, pkts := nicEnds(h.vfs[0]), make([]driver.Packet, 8)
		for ctx.Err() == nil {
			n := e.tx.Get(pkts)
			for i := range n {
				select {
				case <-credits:
				case <-ctx.Done():
				}
				pkts[i].Data = append(pkts[i].Data[:0], frame(mb, ma, sent)...)
				sent++
			}
			if ctx.Err() != nil {
				e.tx.Release(pkts[:n])
				break
			}
			for at := 0; at < n; {
				k := e.tx.Send(pkts[at:n])
				if at += k; k == 0 && e.tx.Wait(ctx) != nil {
					e.tx.Release(pkts[at:n])
					break
				}
			}
			if n == 0 && e.tx.Wait(ctx) != nil {
				break
			}
		}
		done <- [2]uint32{sent}
	}()
	go func() {
		var got, wrong uint32
		e, pkts := nicEnds(h.vfs[1]), make([]driver.Packet, 64)
		for {
			n := e.rx.Poll(pkts)
			for i := range pkts[:n] {
				if d := pkts[i].Data; len(d) != 60 || !bytes.Equal(d[:6], mb[:]) || !bytes.Equal(d[6:12], ma[:]) {
					wrong++
				}
			}
			e.rx.Release(pkts[:n])
			give(n)
			got += uint32(n)
			if n == 0 && e.rx.Wait(ctx) != nil {
				break
			}
		}
		done <- [2]uint32{got, wrong}
	}()
	before := h.rig.Card.Books().Functions[0].Objects
	from := driver.Vport(1)
	var lost uint64
	var polled atomic.Uint64
	var owners sync.WaitGroup
	for i := range switches &^ 1 {
		mode := driver.Mode(i+1) & 1
		l, err := h.pf.SetMode(ctx, mode)
		var held *driver.BuffersOutError // what the owner had polled and not released
		if err != nil && !errors.As(err, &held) {
			t.Fatalf("switch %d to %v: %v", i, mode, err)
		}
		lost += uint64(l.Received)
		give(l.Received)
		if l.Sending != 0 {
			t.Errorf("%d frames of representors that sent none are lost", l.Sending)
		}
		if mode == driver.Switchdev {
			r, err := h.pf.Representor(ctx, 1)
			h.ok(err)
			owners.Go(func() { // which the end of the mode surprises
				pkts := make([]driver.Packet, 16)
				for {
					n := r.Rx().Poll(pkts)
					polled.Add(uint64(n))
					r.Rx().Release(pkts[:n])
					give(n)
					if n == 0 && r.Rx().Wait(context.Background()) != nil {
						return
					}
				}
			})
			if _, err := h.pf.AddSwitchRule(ctx, driver.SwitchMatch{From: &from}, driver.SwitchAction{To: []driver.Vport{2}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	owners.Wait()
	after := h.rig.Card.Books().Functions[0].Objects
	cancel()
	var total [2]uint32
	for range 2 {
		r := <-done
		total[0], total[1] = total[0]+r[0], total[1]+r[1]
	}
	if total[1] != 0 {
		t.Errorf("%d frames came that were not sent to the vport", total[1])
	}
	if fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("objects of the manager: %v, then %v", before, after)
	}
	h.ok(h.vfs[0].TxQueue(0).Flush(t.Context()))
	s, err := h.pf.VportStats(t.Context(), 1)
	h.ok(err)
	v, err := h.pf.VportStats(t.Context(), 2)
	h.ok(err)
	m, err := h.pf.VportStats(t.Context(), 0)
	h.ok(err)
	up, err := h.pf.VportStats(t.Context(), driver.Uplink)
	h.ok(err)
	t.Logf("%d switches: vport 1 sent %d frames, vport 2 was given %d, representors %d, lost %d", switches, s.TxUnicast.Packets, v.RxUnicast.Packets, polled.Load(), lost)
	// Frames that met no rule are the manager's: between the change to switchdev and the rule.
	if m.RxUnicast.Packets != polled.Load()+lost {
		t.Errorf("the manager was given %d frames: its owners have polled %d, and %d were said to be lost", m.RxUnicast.Packets, polled.Load(), lost)
	}
	if sent, got := s.TxUnicast.Packets, v.RxUnicast.Packets+m.RxUnicast.Packets; sent != got {
		t.Errorf("vport 1 sent %d frames, vport 2 was given %d and the manager %d", sent, v.RxUnicast.Packets, m.RxUnicast.Packets)
	}
	if up.TxUnicast.Packets != 0 {
		t.Errorf("%d frames of a virtual function went to the wire", up.TxUnicast.Packets)
	}
}

func TestVirtualFunctionsAreDisabledWhileTheyAreUsed(t *testing.T) {
	r, err := rig.New(rig.Config{Device: device.Config{VFs: 4}, Transport: inproc.Config{Kind: dma.Heap}})
	if err != nil {
		t.Fatal(err)
	}
	h := &host{T: t, rig: r, functions: map[int]pci.Function{}}
	t.Cleanup(func() { r.Close() })
	h.pf = h.open(0)
	if n := h.pf.TotalVFs(); n != 4 {
		t.Errorf("%d virtual functions in all, want 4", n)
	}
	for round := range 3 {
		h.ok(h.pf.EnableVFs(t.Context(), 1+round))
		if err := h.pf.EnableVFs(t.Context(), 4); !errors.Is(err, driver.ErrBusy) {
			t.Errorf("another number of virtual functions: %v", err)
		}
		f, err := r.Function(r.Card.VF(0, 1))
		h.ok(err)
		vf, err := driver.Open(t.Context(), f, driver.Config{CheckBuffers: true, CommandTimeout: 200 * time.Millisecond})
		h.ok(err)
		h.ok(h.pf.EnableVFs(t.Context(), 0))
		if b := r.Card.Books().Functions[r.Card.VF(0, 1)]; !b.Clean() {
			t.Errorf("a disabled function holds %+v", b)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		_ = vf.Close(ctx) // says that firmware is gone
		cancel()
		f.Close()
	}
	if err := h.pf.EnableVFs(t.Context(), 5); err == nil {
		t.Error("more virtual functions than there are")
	}
}

func TestAChangeOfModeSaysWhatItLost(t *testing.T) {
	h := openHost(t, 2, driver.Switchdev)
	ctx := t.Context()
	r, err := h.pf.Representor(ctx, 1)
	h.ok(err)
	const sent = 10
	last := frame(h.vfs[1].MAC(), h.vfs[0].MAC(), sent)
	for range sent {
		h.send(nicEnds(h.vfs[0]), last)
	}
	h.expect("a miss", representorEnds(r), last)
	h.expect("a miss", representorEnds(r), last)
	held := make([]driver.Packet, 3)
	if n := r.Rx().Poll(held); n != len(held) {
		t.Fatalf("%d frames were there, want %d", n, len(held))
	}
	lost, err := h.pf.SetMode(ctx, driver.Legacy)
	var out *driver.BuffersOutError
	if !errors.As(err, &out) {
		t.Errorf("a mode ended with %d packets in use: %v", len(held), err)
	}
	if want := (driver.Lost{Received: sent - 2 - len(held)}); lost != want {
		t.Errorf("lost %+v, want %+v", lost, want)
	}
	if m, err := h.pf.Mode(ctx); err != nil || m != driver.Legacy {
		t.Errorf("the mode is %v, %v", m, err)
	}
	r.Rx().Release(held)
	if n := r.Rx().Poll(held); n != 0 || r.Rx().Err() == nil {
		t.Errorf("%d frames after the mode, %v", n, r.Rx().Err())
	}
	// Without traffic nothing is lost.
	h.setMode(ctx, driver.Switchdev)
	h.setMode(ctx, driver.Legacy)
}

// What the card has sent is not lost, though nobody has taken the completion; what it was not told of is.
func TestAChangeOfModeSaysWhatWasNotSent(t *testing.T) {
	h := openHost(t, 1, driver.Switchdev)
	ctx := t.Context()
	r, err := h.pf.Representor(ctx, 1)
	h.ok(err)
	f := frame(h.vfs[0].MAC(), driver.MAC{2, 9}, 1)
	post := func(n int) {
		t.Helper()
		pkts := make([]driver.Packet, n)
		if got := r.Tx().Get(pkts); got != n {
			t.Fatalf("%d buffers, want %d", got, n)
		}
		for i := range pkts {
			pkts[i].Data = append(pkts[i].Data[:0], f...)
		}
		if got := r.Tx().Send(pkts); got != n {
			t.Fatalf("%d frames were posted, want %d", got, n)
		}
	}
	post(1)
	h.expect("from the representor", nicEnds(h.vfs[0]), f)
	h.ok(h.rig.Card.Inject(fault.Plan{Faults: []fault.Fault{{Kind: fault.LostDoorbell, Doorbell: fault.SQBell, Times: 1}}}))
	post(3)
	lost, err := h.pf.SetMode(ctx, driver.Legacy)
	h.ok(err)
	if want := (driver.Lost{Sending: 3}); lost != want {
		t.Errorf("lost %+v, want %+v", lost, want)
	}
}
