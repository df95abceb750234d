package rig_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"cxkit/device"
	"cxkit/dma"
	"cxkit/driver"
	"cxkit/drivertest"
	"cxkit/internal/rig"
	"cxkit/transport/inproc"
)

// In switchdev mode there is a rule for each ring that sends. They follow queues to other rings and channels.
func TestSendQueuesFindTheirVportAfterChanges(t *testing.T) {
	h := openHost(t, 1, driver.Switchdev)
	ctx := t.Context()
	mark := uint32(0)
	wire := func(what string, q int) {
		t.Helper()
		mark++
		f := frame(driver.MAC{2, 9}, h.pf.MAC(), mark)
		h.send(ends{h.pf.RxQueue(q), h.pf.TxQueue(q)}, f)
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if got, err := h.rig.Far.Recv(ctx); err != nil || !bytes.Equal(got, f) {
			t.Errorf("%s: on the wire: %x, %v", what, got, err)
		}
	}
	wire("at first", 0)
	h.ok(h.pf.TxQueue(0).Resize(ctx, 64))
	wire("other rings", 0)
	rep, err := h.pf.Representor(ctx, 1)
	h.ok(err)
	h.ok(rep.Tx().Resize(ctx, 64))
	f := frame(h.vfs[0].MAC(), driver.MAC{2, 8}, 7)
	h.send(representorEnds(rep), f)
	h.expect("from a representor with other rings", nicEnds(h.vfs[0]), f)
	for _, n := range []int{3, 2, 3, 1, 3} {
		_, err := h.pf.SetChannels(ctx, n)
		h.ok(err)
		wire("other channels", n-1)
	}
	h.setMode(ctx, driver.Legacy)
	wire("in legacy mode", 2)
	_, err = h.pf.SetChannels(ctx, 1)
	h.ok(err)
	h.setMode(ctx, driver.Switchdev)
	wire("in switchdev mode again", 0)
}

// A reset keeps the number of channels and what was counted, by channels that are gone too.
func TestChannelsAndTheirCountersOutliveAReset(t *testing.T) {
	ctx := t.Context()
	r, err := rig.New(rig.Config{Device: device.Config{Seed: 1}, Transport: inproc.Config{Kind: dma.Heap}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := r.Function(0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	nic, err := driver.Open(ctx, f, driver.Config{CheckBuffers: true, RxRing: 64, TxRing: 64, MaxChannels: 3})
	ok(err)
	receive := func(nic *driver.NIC, q, n int) {
		t.Helper()
		id, err := nic.AddRule(ctx, driver.Rule{Action: driver.RuleQueue, Queue: q})
		ok(err)
		pkts := make([]driver.Packet, 1)
		for i := range n {
			ok(r.Far.SendAll(ctx, drivertest.Frame(nic.MAC(), 60, uint32(i))))
			for nic.RxQueue(q).Poll(pkts) == 0 {
				ok(nic.RxQueue(q).Wait(ctx))
			}
			nic.RxQueue(q).Release(pkts)
		}
		ok(nic.RemoveRule(ctx, id))
	}
	counters := func(nic *driver.NIC, want map[string]uint64) {
		t.Helper()
		s, err := nic.Stats(ctx)
		ok(err)
		for name, v := range want {
			if got, there := s.Lookup(name); got != v || !there {
				t.Errorf("%s is %d, want %d", name, got, v)
			}
		}
	}
	_, err = nic.SetChannels(ctx, 3)
	ok(err)
	receive(nic, 2, 5)
	receive(nic, 0, 1)
	_, err = nic.SetChannels(ctx, 2)
	ok(err)
	counters(nic, map[string]uint64{"rx_packets": 6, "rx2_packets": 5})
	next, err := nic.Reset(ctx)
	ok(err)
	if n := next.Queues(); n != 2 {
		t.Errorf("%d queues", n)
	}
	counters(next, map[string]uint64{"rx_packets": 6, "rx2_packets": 5, "rx0_packets": 1})
	_, err = next.SetChannels(ctx, 3)
	ok(err)
	receive(next, 2, 2)
	counters(next, map[string]uint64{"rx_packets": 8, "rx2_packets": 7, "rx0_packets": 1})
	ok(next.Close(ctx))
}
