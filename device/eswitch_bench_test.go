package device

import (
	"bytes"
	"encoding/binary"
	"testing"

	"cxkit/prm"
)

// switchBench is a card with virtual functions: the physical function's driver is pf, which enables them and
// manages the e-switch, and each of vfs is a driver of its own with memory of its own.
type switchBench struct {
	*dataBench                 // the physical function's
	vfs        []*dataBench    // of virtual function i+1
	events     []prm.EventType // of the physical function that were no page requests
	changed    []uint16        // vports whose context has changed
}

// newSwitchBench makes a card with n virtual functions that run.
func newSwitchBench(t testing.TB, n int) *switchBench {
	t.Helper()
	b := newBareSwitch(t, Config{VFs: n})
	for i := range n {
		b.must(&prm.EnableHCAIn{FunctionID: uint16(i + 1)}, &prm.EnableHCAOut{})
		b.serve()
	}
	b.setVFs(n)
	for i := range n {
		b.vfs = append(b.vfs, b.open(i+1))
	}
	return b
}

// newBareSwitch makes a card whose physical function has been brought up.
func newBareSwitch(t testing.TB, c Config) *switchBench {
	t.Helper()
	return &switchBench{dataBench: dataBenchOn(t, newBench(t, c))}
}

// Offsets of the SR-IOV capability.
const (
	sriovControl = 0x188
	sriovNumVFs  = 0x190
)

// setVFs makes the host see n virtual functions.
func (b *switchBench) setVFs(n int) {
	b.Helper()
	if err := b.fn.WriteConfig(sriovControl, []byte{0, 0}); err != nil {
		b.Fatal(err)
	}
	if n > 0 {
		for off, v := range map[int]byte{sriovNumVFs: byte(n)} {
			if err := b.fn.WriteConfig(off, []byte{v, 0}); err != nil {
				b.Fatal(err)
			}
		}
		if err := b.fn.WriteConfig(sriovControl, []byte{0x09, 0}); err != nil {
			b.Fatal(err)
		}
	}
	b.clock.advance(b.card.config.BootTime)
}

// serve takes the physical function's events, and gives and takes the pages they ask for.
func (b *switchBench) serve() {
	b.Helper()
	for range 1000 {
		b.settle()
		e := b.async.next()
		if e == nil {
			b.async.update()
			return
		}
		switch e.EventType() {
		case prm.EventPageRequest:
			var r prm.PageRequestEvent
			r.Get(e.Data()[:])
			b.pages(r.FuncID, r.ECFunction, int32(r.NumPages))
		case prm.EventNICVportChange:
			var r prm.NICVportChangeEvent
			r.Get(e.Data()[:])
			b.changed = append(b.changed, r.VportNum)
		default:
			b.events = append(b.events, e.EventType())
		}
	}
	b.Fatal("events without end")
}

// pages gives n pages to a function's firmware, or takes -n.
func (b *switchBench) pages(id uint16, embedded bool, n int32) {
	b.Helper()
	if n < 0 {
		in := prm.ManagePagesIn{OpMod: uint16(prm.PagesTake), EmbeddedCPUFunction: embedded, FunctionID: id, InputNumEntries: uint32(-n)}
		b.must(&in, &prm.ManagePagesOut{PAS: make([]uint64, -n)})
		return
	}
	in := prm.ManagePagesIn{OpMod: uint16(prm.PagesGive), EmbeddedCPUFunction: embedded, FunctionID: id, InputNumEntries: uint32(n)}
	for range n {
		in.PAS = append(in.PAS, b.nextPA)
		b.nextPA += 4096
	}
	b.must(&in, &prm.ManagePagesOut{})
}

// attachVF plugs virtual function n, from 1, into memory of its own and starts its command queue.
func (b *switchBench) attachVF(n int) *bench {
	b.Helper()
	return b.attachOther(b.card.VF(0, n))
}

// attachOther is attachVF for a function by its number.
func (b *switchBench) attachOther(index int) *bench {
	b.Helper()
	v := &bench{TB: b.TB, card: b.card, clock: b.clock, nextPA: 1 << 45, memory: 4 << 20, mailboxes: 512}
	v.rest = v.step
	v.attach(index)
	b.Cleanup(func() { v.fn.Close() })
	v.startQueue()
	return v
}

// start brings a virtual function up to INIT_HCA, as drivers do.
func (b *switchBench) start(v *bench) {
	b.Helper()
	v.must(&prm.EnableHCAIn{}, &prm.EnableHCAOut{})
	v.must(&prm.SetISSIIn{CurrentISSI: 1}, &prm.SetISSIOut{})
	for _, stage := range []prm.QueryPagesOpMod{prm.QueryPagesBoot, prm.QueryPagesInit} {
		if n := v.wanted(stage); n != 0 {
			b.Errorf("firmware wants %d pages of the virtual function's driver", n)
		}
	}
	v.must(&prm.InitHCAIn{}, &prm.InitHCAOut{})
}

// open is virtual function n with what its queues need.
func (b *switchBench) open(n int) *dataBench {
	b.Helper()
	return b.run(b.attachVF(n))
}

// run brings a function up that waits for its manager, with what its queues need.
func (b *switchBench) run(v *bench) *dataBench {
	b.Helper()
	b.start(v)
	d := &dataBench{bench: v, port: b.port}
	d.objects()
	b.serve()
	return d
}

// fdb makes FDB of a table with one group whose entries match what enable and mask say, and returns them.
func (b *switchBench) fdb(enable prm.MatchCriteria, mask prm.MatchParam) (table, group uint32) {
	b.Helper()
	return b.table(prm.FlowTableFDB, 0, enable, mask)
}

// table makes a table of a type, of a vport for ACLs, with one group, and makes it the root.
func (b *switchBench) table(typ prm.FlowTableType, vport uint16, enable prm.MatchCriteria, mask prm.MatchParam) (table, group uint32) {
	b.Helper()
	var t prm.CreateFlowTableOut
	other := typ != prm.FlowTableFDB
	b.must(&prm.CreateFlowTableIn{TableType: typ, OtherVport: other, VportNumber: vport,
		FlowTableContext: prm.FlowTableContext{LogSize: 8}}, &t)
	var g prm.CreateFlowGroupOut
	b.must(&prm.CreateFlowGroupIn{TableType: typ, OtherVport: other, VportNumber: vport, TableID: t.TableID,
		EndFlowIndex: 255, MatchCriteriaEnable: enable, MatchCriteria: mask}, &g)
	b.must(&prm.SetFlowTableRootIn{TableType: typ, OtherVport: other, VportNumber: vport, TableID: t.TableID}, &prm.SetFlowTableRootOut{})
	return t.TableID, g.GroupID
}

// toVport is a destination.
func toVport(n uint16) prm.Destination {
	return prm.Destination{DestFormat: prm.DestFormat{DestinationType: prm.DestinationVport, DestinationID: uint32(n)}}
}

// entry writes an FDB entry.
func (b *switchBench) entry(table, group, index uint32, value prm.MatchParam, ctx prm.FlowContext, to ...prm.Destination) {
	b.Helper()
	b.must(b.entryIn(prm.FlowTableFDB, 0, table, group, index, value, ctx, to...), &prm.SetFlowTableEntryOut{})
}

func (b *switchBench) entryIn(typ prm.FlowTableType, vport uint16, table, group, index uint32, value prm.MatchParam,
	ctx prm.FlowContext, to ...prm.Destination) *prm.SetFlowTableEntryIn {
	ctx.GroupID, ctx.MatchValue, ctx.DestinationListSize = group, value, uint32(len(to))
	if len(to) > 0 {
		ctx.Action |= prm.FlowActionForward
	}
	return &prm.SetFlowTableEntryIn{TableType: typ, OtherVport: typ != prm.FlowTableFDB, VportNumber: vport, TableID: table,
		FlowIndex: index, FlowContext: ctx, DestinationList: prm.DestinationList{Destinations: to}}
}

// frameTo is a frame of 60 bytes.
func frameTo(dst, src [6]byte, mark byte) []byte {
	f := make([]byte, 60)
	copy(f, dst[:])
	copy(f[6:], src[:])
	binary.BigEndian.PutUint16(f[12:], 0x88b5)
	f[14] = mark
	return f
}

// mac is the address that tests give vport n.
func vportMAC(n int) [6]byte { return [6]byte{2, 0, 0, 0, 0, byte(n)} }

// sends sends a frame from an SQ.
func (q *testSQ) sends(frame []byte) {
	q.b.Helper()
	q.send(eth{segs: []any{q.b.place(frame)}})
	q.cq.take()
}

// got are the frames that have come to a receive queue.
func (q *testRQ) got() (frames [][]byte) {
	for _, c := range q.cq.take() {
		frames = append(frames, bytes.Clone(q.data(&c)))
	}
	return frames
}

// expect holds what came to a receive queue against what should have.
func (q *testRQ) expect(what string, want ...[]byte) {
	q.b.Helper()
	got := q.got()
	if len(got) != len(want) {
		q.b.Errorf("%s: %d frames came, want %d", what, len(got), len(want))
		return
	}
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			q.b.Errorf("%s: frame %d\n got %x\nwant %x", what, i, got[i], want[i])
		}
	}
}

// keepTags leaves VLAN tags in received frames.
func keepTags(in *prm.CreateRQIn) { in.Context.VSD = true }
