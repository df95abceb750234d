package driver

import (
	"bytes"
	"errors"
	"testing"

	"cxkit/dma"
	"cxkit/driver/internal/queue"
	"cxkit/prm"
)

// census counts the writer's buffers and checks that none is lost.
func (w *writer) census(t *testing.T) BufferBooks {
	t.Helper()
	b := w.nic.bufferBooks()
	if n := b.Free + b.Posted + b.Application + b.Sending; n != w.nic.config.Buffers {
		t.Errorf("%d of %d buffers in the books: %+v", n, w.nic.config.Buffers, b)
	}
	return b
}

func small() Config {
	return Config{RxRing: 8, TxRing: 8, Buffers: 64, Arena: dma.Heap, CheckBuffers: true}
}

func TestPollDeliversFramesInOrderAcrossWraps(t *testing.T) {
	w := newWriter(t, small())
	w.frame = make([]byte, 1514)
	pkts := make([]Packet, 5)
	for i := range 100 {
		w.frame[0] = byte(i)
		w.receive(3, 60+i)
		n := w.rx.Poll(pkts)
		if n != 3 {
			t.Fatalf("burst %d: polled %d frames, want 3", i, n)
		}
		for _, p := range pkts[:n] {
			if !bytes.Equal(p.Data, w.frame[:60+i]) || cap(p.Data) != w.nic.config.BufferSize {
				t.Fatalf("burst %d: got %d bytes of capacity %d", i, len(p.Data), cap(p.Data))
			}
		}
		w.rx.Release(pkts[:n])
	}
	if s := w.rx.Stats(); s.Packets != 300 || s.ChecksumOK != 300 || s.Bytes != 3*(60*100+99*100/2) {
		t.Errorf("stats %+v", s)
	}
	w.census(t)
}

func TestPollReportsWhatTheCompletionSays(t *testing.T) {
	w := newWriter(t, small())
	w.receive(1, 100)
	e := w.rxCQ.entry(0)
	e.SetRSSHashResult(0x01020304)
	e.SetRSSHashType(0x48) // IPv6, TCP
	e.SetChecksum(0xbeef)
	e.SetHDSIPExt(6)
	e.SetL4L3HdrType(0x45) // TCP with data, IPv6, VLAN stripped
	e.SetVLANInfo(0x2abc)
	e.SetTimestamp(0x1122334455667788)
	e.SetFlowTag(0x123456)
	var pkts [1]Packet
	pkts[0] = Packet{TxFlags: TxChecksum}
	if w.rx.Poll(pkts[:]) != 1 {
		t.Fatal("nothing received")
	}
	p := pkts[0]
	if p.RSSHash != 0x01020304 || p.Checksum != 0xbeef || p.VLAN != 0x2abc || p.Timestamp != 0x1122334455667788 ||
		p.FlowTag != 0x123456 || p.TxFlags != 0 {
		t.Errorf("packet %+v", p)
	}
	if p.HashType.L3() != L3IPv6 || p.HashType.L4() != L4TCP {
		t.Errorf("hash over %v %v", p.HashType.L3(), p.HashType.L4())
	}
	if !p.Rx.ChecksumOK() || !p.Rx.VLANStripped() || p.Rx.L3() != L3IPv6 || p.Rx.L4() != L4TCPAckData || p.Rx.Fragment() {
		t.Errorf("flags %#x", p.Rx)
	}
	if s := w.rx.Stats(); s.VLANStripped != 1 {
		t.Errorf("stats %+v", s)
	}
	w.rx.Release(pkts[:])
}

// TestImpossibleReceiveCompletionsStopTheQueue feeds completions that no honest card writes.
func TestImpossibleReceiveCompletionsStopTheQueue(t *testing.T) {
	tests := []struct {
		name  string
		write func(w *writer)
	}{
		{"wrong WQE counter", func(w *writer) { w.rxCQ.own(w.rxCQ.pi, 5, prm.CQEResponderSend) }},
		{"longer than the buffer", func(w *writer) {
			w.rxCQ.entry(w.rxCQ.pi).SetByteCnt(2049)
			w.rxCQ.own(w.rxCQ.pi, 2, prm.CQEResponderSend)
		}},
		{"length of all ones", func(w *writer) {
			w.rxCQ.entry(w.rxCQ.pi).SetByteCnt(0xffffffff)
			w.rxCQ.own(w.rxCQ.pi, 2, prm.CQEResponderSend)
		}},
		{"send completion", func(w *writer) { w.rxCQ.own(w.rxCQ.pi, 2, prm.CQERequester) }},
		{"reserved opcode", func(w *writer) { w.rxCQ.own(w.rxCQ.pi, 2, 9) }},
		{"compressed", func(w *writer) {
			dma.StoreBE32(w.rxCQ.ring, int(w.rxCQ.pi)*prm.CQESize+prm.CQEOwnOff,
				prm.CQEOwnDword(2, 0, prm.CQEResponderSend, prm.CQEFormatCompressed, false, false))
		}},
		{"fatal error", func(w *writer) {
			(*prm.ErrorCQE)(w.rxCQ.entry(w.rxCQ.pi)).SetSyndrome(prm.CQESyndromeLocalProtection)
			w.rxCQ.own(w.rxCQ.pi, 2, prm.CQEResponderError)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWriter(t, small())
			w.receive(2, 60)
			tt.write(w)
			pkts := make([]Packet, 8)
			if n := w.rx.Poll(pkts); n != 2 {
				t.Fatalf("polled %d frames, want the 2 before", n)
			}
			var e *QueueError
			if !errors.As(w.rx.Err(), &e) || e.Transmit || e.Number != testRQ {
				t.Fatalf("error %v", w.rx.Err())
			}
			if n := w.rx.Poll(pkts[2:]); n != 0 {
				t.Errorf("polled %d frames from a stopped queue", n)
			}
			w.rx.Release(pkts[:2])
			w.census(t)
		})
	}
}

func TestCompletionWithoutAPostedWQEStopsTheQueue(t *testing.T) {
	c := small()
	c.Buffers, c.RxLayout = 8, RxStack // all posted: none to post again
	w := newWriter(t, c)
	w.receive(8, 60)
	pkts := make([]Packet, 16)
	n := w.rx.Poll(pkts)
	w.rxCQ.own(w.rxCQ.pi, 8, prm.CQEResponderSend)
	n += w.rx.Poll(pkts[n:])
	if n != 8 || w.rx.Err() == nil {
		t.Fatalf("polled %d frames of 8, error %v", n, w.rx.Err())
	}
	w.census(t)
}

func TestReceiveErrorIsCountedAndItsBufferComesBack(t *testing.T) {
	w := newWriter(t, small())
	pkts := make([]Packet, 8)
	for range 20 {
		if w.posted() == 0 {
			t.Fatal("no WQE posted")
		}
		(*prm.ErrorCQE)(w.rxCQ.entry(w.rxCQ.pi)).SetSyndrome(prm.CQESyndromeLocalLength)
		w.rxCQ.own(w.rxCQ.pi, uint16(w.rqPI), prm.CQEResponderError)
		w.rxCQ.pi++
		w.rqPI++
		w.receive(1, 64)
		if n := w.rx.Poll(pkts); n != 1 || len(pkts[0].Data) != 64 {
			t.Fatalf("polled %d frames behind an error, want 1", n)
		}
		w.rx.Release(pkts[:1])
	}
	if s := w.rx.Stats(); s.Errors != 20 || s.Packets != 20 || w.rx.Err() != nil {
		t.Errorf("stats %+v, error %v", s, w.rx.Err())
	}
	if b := w.census(t); b.Application != 0 {
		t.Errorf("books %+v", b)
	}
}

func TestPollIsBoundedWhenTheCardWritesErrorsWithoutEnd(t *testing.T) {
	w := newWriter(t, small())
	for i := range w.rxCQ.mask + 1 {
		(*prm.ErrorCQE)(w.rxCQ.entry(i)).SetSyndrome(prm.CQESyndromeLocalLength)
		w.rxCQ.own(i, uint16(i), prm.CQEResponderError)
	}
	pkts := make([]Packet, 4)
	if n := w.rx.Poll(pkts); n != 0 {
		t.Errorf("polled %d frames", n)
	}
	if s := w.rx.Stats(); s.Errors != 8 {
		t.Errorf("%d errors, want the ring's 8", s.Errors)
	}
	w.census(t)
}

// send puts frames of length bytes into the queue.
func (w *writer) send(t *testing.T, n, length int) {
	t.Helper()
	pkts := make([]Packet, n)
	if k := w.tx.Get(pkts); k != n {
		t.Fatalf("got %d buffers, want %d", k, n)
	}
	for i := range pkts {
		pkts[i].Data = pkts[i].Data[:length]
	}
	if k := w.tx.Send(pkts); k != n {
		t.Fatalf("sent %d frames, want %d", k, n)
	}
}

func TestImpossibleSendCompletionsStopTheQueue(t *testing.T) {
	tests := []struct {
		name  string
		write func(w *writer, e *prm.CQE)
	}{
		{"ahead of what was posted", func(w *writer, _ *prm.CQE) { w.txCQ.own(0, 4, prm.CQERequester) }},
		{"behind what was posted", func(w *writer, _ *prm.CQE) { w.txCQ.own(0, 0xffff, prm.CQERequester) }},
		{"WQE without a completion", func(w *writer, _ *prm.CQE) { w.txCQ.own(0, 1, prm.CQERequester) }},
		{"another queue", func(w *writer, e *prm.CQE) { e.SetQPN(testSQ + 1); w.txCQ.own(0, 3, prm.CQERequester) }},
		{"receive completion", func(w *writer, _ *prm.CQE) { w.txCQ.own(0, 3, prm.CQEResponderSend) }},
		{"reserved opcode", func(w *writer, _ *prm.CQE) { w.txCQ.own(0, 3, 7) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWriter(t, small())
			w.send(t, 4, 60)
			e := w.txCQ.entry(0)
			e.SetQPN(testSQ)
			tt.write(w, e)
			for range 3 {
				if n := w.tx.Reap(); n != 0 {
					t.Errorf("reaped %d frames", n)
				}
			}
			var err *QueueError
			if !errors.As(w.tx.Err(), &err) || !err.Transmit || err.Number != testSQ {
				t.Fatalf("error %v", w.tx.Err())
			}
			if s := w.tx.Stats(); s.Impossible != 1 {
				t.Errorf("stats %+v", s)
			}
			if b := w.census(t); b.Sending != 4 {
				t.Errorf("books %+v: the card may still read 4 buffers", b)
			}
			var pkts [1]Packet
			if n := w.tx.Get(pkts[:]); n != 0 {
				t.Error("a stopped queue gives out buffers")
			}
		})
	}
}

func TestSendErrorStopsTheQueueAndFlushedFramesComeBack(t *testing.T) {
	w := newWriter(t, small())
	w.send(t, 4, 60)
	for i := range uint32(4) {
		e := (*prm.ErrorCQE)(w.txCQ.entry(i))
		e.SetQPN(testSQ)
		e.SetSyndrome(prm.CQESyndromeFlushed)
		if i == 0 {
			e.SetSyndrome(prm.CQESyndromeLocalProtection)
		}
		w.txCQ.own(i, uint16(i), prm.CQERequesterError)
	}
	if n := w.tx.Reap(); n != 4 {
		t.Errorf("reaped %d frames, want 4", n)
	}
	var err *QueueError
	if !errors.As(w.tx.Err(), &err) || err.Syndrome != uint8(prm.CQESyndromeLocalProtection) {
		t.Fatalf("error %v, want the first one's", w.tx.Err())
	}
	if s := w.tx.Stats(); s.Errors != 4 || s.Dropped != 4 {
		t.Errorf("stats %+v", s)
	}
	if b := w.census(t); b.Sending != 0 {
		t.Errorf("books %+v", b)
	}
}

func TestSendStopsAtAFullRingAndGoesOnAfterCompletions(t *testing.T) {
	w := newWriter(t, small())
	pkts := make([]Packet, 12)
	if n := w.tx.Get(pkts); n != 12 {
		t.Fatalf("got %d buffers", n)
	}
	for i := range pkts {
		pkts[i].Data = append(pkts[i].Data, make([]byte, 60+i)...)
	}
	if n := w.tx.Send(pkts); n != 8 {
		t.Fatalf("sent %d frames into a ring of 8", n)
	}
	if n := w.tx.Send(pkts[8:]); n != 0 || len(pkts[8].Data) != 68 {
		t.Fatalf("sent %d frames into a full ring", n)
	}
	w.complete()
	if n := w.tx.Send(pkts[8:]); n != 4 {
		t.Fatalf("sent %d frames of 4", n)
	}
	w.complete()
	w.tx.Reap()
	if s := w.tx.Stats(); s.Packets != 12 || s.Full != 2 || s.Completions != 2 {
		t.Errorf("stats %+v", s)
	}
	if b := w.census(t); b.Sending+b.Application != 0 {
		t.Errorf("books %+v", b)
	}
}

func TestSendDropsFramesItCannotSend(t *testing.T) {
	foreign := newWriter(t, small())
	other := make([]Packet, 1)
	foreign.tx.Get(other)

	c := small()
	c.CheckBuffers = false
	w := newUncheckedWriter(t, c)
	pkts := make([]Packet, 7)
	w.tx.Get(pkts)
	for i := range pkts {
		pkts[i].Data = pkts[i].Data[:100]
	}
	pkts[0].Data = pkts[0].Data[:13]
	pkts[1].Data = pkts[1].Data[:1500+frameOverhead+1]
	pkts[2].Data = pkts[2].Data[:100:100] // says that the frame is at the buffer's end
	pkts[3].Data = make([]byte, 100)
	pkts[4].Data = other[0].Data[:100]
	pkts[5].Data = nil
	pkts[6].Data = pkts[6].Data[20:] // an outer header taken off: fine
	if n := w.tx.Send(pkts); n != 7 {
		t.Fatalf("took %d packets of 7", n)
	}
	if s := w.tx.Stats(); s.Dropped != 6 || s.Packets != 1 || s.Bytes != 80 {
		t.Errorf("stats %+v", s)
	}
	seg := (*prm.WQEDataSeg)(w.sq[0x20:])
	if want := w.pool.Bus + uint64(w.tx.sq.Buffers[0])*uint64(w.nic.pool.Unit) + 20; seg.Addr() != want || seg.ByteCount() != 80 {
		t.Errorf("segment %#x+%d, want %#x+80", seg.Addr(), seg.ByteCount(), want)
	}
	if b := w.census(t); b.Sending != 1 || b.Application != 0 {
		t.Errorf("books %+v", b)
	}
}

func TestBuffersUsedTwiceAreRefusedAndCounted(t *testing.T) {
	c := small()
	c.CheckBuffers = false
	w := newUncheckedWriter(t, c)
	var pkts [1]Packet
	w.tx.Get(pkts[:])
	pkts[0].Data = pkts[0].Data[:60]
	twice, thrice := pkts, pkts
	w.rx.Release(pkts[:])
	w.rx.Release(twice[:])
	w.tx.Send(thrice[:])
	if b := w.census(t); b.Violations != 2 || b.Application != 0 || b.Sending != 0 {
		t.Errorf("books %+v", b)
	}
	w.rx.Release(pkts[:]) // cleared: skipped
	if b := w.census(t); b.Violations != 2 {
		t.Errorf("releasing a cleared packet was counted: %+v", b)
	}
}

func TestCheckingPoolPanicsOnDoubleReleaseAndLateWrites(t *testing.T) {
	w := newWriter(t, small())
	panics := func(what string, f func()) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Errorf("no panic on %s", what)
			}
		}()
		f()
	}
	var pkts [1]Packet
	w.tx.Get(pkts[:])
	twice, data := pkts, pkts[0].Data[:1]
	w.tx.Release(pkts[:])
	panics("a double release", func() { w.tx.Release(twice[:]) })
	data[0] = 1
	panics("a write to a free buffer", func() { w.tx.Get(make([]Packet, 64)) })
}

func TestInlinedHeadersMakeTheSameFrame(t *testing.T) {
	for _, tag := range []bool{false, true} {
		c := small()
		w := newWriter(t, c)
		w.tx.sq.Inline = queue.InlineL2
		w.tx.sq.Named(testSQ)
		var pkts [1]Packet
		w.tx.Get(pkts[:])
		frame := []byte("\x00\x01\x02\x03\x04\x05\x10\x11\x12\x13\x14\x15\x08\x06payload")
		p := &pkts[0]
		p.Data = append(p.Data, frame...)
		want := append(bytes.Clone(frame), make([]byte, minFrame-len(frame))...)
		if tag {
			p.TxFlags, p.VLAN = TxInsertVLAN, 0x6123
			want = append(append(bytes.Clone(frame[:12]), 0x81, 0, 0x61, 0x23), want[12:]...)
		}
		w.tx.Send(pkts[:])
		eth := (*prm.WQEEthSeg)(w.sq[0x10:])
		seg := (*prm.WQEDataSeg)(w.sq[0x30:])
		if eth.InsertVLAN() || eth.InlineHdrSz() != 18 || (*prm.WQECtrlSeg)(w.sq).DS() != 4 {
			t.Fatalf("inline header of %d bytes, insertion %v", eth.InlineHdrSz(), eth.InsertVLAN())
		}
		off := seg.Addr() - w.pool.Bus
		got := append(bytes.Clone(w.sq[0x1e:0x30]), w.pool.Bytes[off:off+uint64(seg.ByteCount())]...)
		if !bytes.Equal(got, want) {
			t.Errorf("tag %v: got\n%x\nwant\n%x", tag, got, want)
		}
	}
}

func TestDataPathDoesNotAllocate(t *testing.T) {
	c := small()
	c.RxRing, c.TxRing, c.Buffers, c.CheckBuffers, c.LargeSend = 256, 256, 1024, false, true
	w := newUncheckedWriter(t, c)
	pkts := make([]Packet, 32)
	tcp := make([]byte, 54)
	tcp[12], tcp[14], tcp[23], tcp[46] = 8, 0x45, 6, 0x50
	for name, f := range map[string]func(){
		"receive": func() {
			w.receive(32, 64)
			w.rx.Release(pkts[:w.rx.Poll(pkts)])
		},
		"send": func() {
			n := w.tx.Get(pkts)
			for i := range pkts[:n] {
				pkts[i].Data = pkts[i].Data[:64]
			}
			w.tx.Send(pkts[:n])
			w.complete()
		},
		"forward": func() {
			w.receive(32, 64)
			w.tx.Send(pkts[:w.rx.Poll(pkts)])
			w.complete()
		},
		"large sends": func() {
			n := w.tx.Get(pkts[:8])
			for i := range pkts[:n] {
				pkts[i].Data = append(pkts[i].Data, tcp...)[:1200]
				pkts[i].Segment = 500
			}
			if k := w.tx.Send(pkts[:n]); k != n {
				t.Fatalf("sent %d of %d", k, n)
			}
			w.complete()
			w.tx.Reap()
		},
		"multi-packet": func() {
			w.tx.can.pack = true
			n := w.tx.Get(pkts)
			for i := range pkts[:n] {
				pkts[i].Data = pkts[i].Data[:64]
			}
			w.tx.Send(pkts[:n])
			w.tx.can.pack = false
			w.complete()
			w.tx.Reap()
		},
		"release anywhere": func() {
			w.receive(32, 64)
			w.nic.ReleaseAll(pkts[:w.rx.Poll(pkts)])
		},
	} {
		for range 100 { // the depot's slice has its final size
			f()
		}
		if n := testing.AllocsPerRun(200, f); n != 0 {
			t.Errorf("%s: %v allocations a burst", name, n)
		}
	}
	if s := w.tx.Stats(); s.Dropped != 0 || s.LargePackets == 0 || s.MultiPackets == 0 {
		t.Errorf("stats %+v", s)
	}
	w.census(t)
}

// TestStarvedQueueIsRefilledWhenBuffersComeBack: a ring without buffers starts again by itself.
func TestStarvedQueueIsRefilledWhenBuffersComeBack(t *testing.T) {
	c := small()
	c.Buffers, c.RxLayout = 8, RxStack
	w := newWriter(t, c)
	pkts := make([]Packet, 8)
	w.receive(8, 64)
	if n := w.rx.Poll(pkts); n != 8 {
		t.Fatalf("polled %d", n)
	}
	if w.posted() != 0 || w.rx.Stats().NoBuffer == 0 {
		t.Fatalf("%d WQEs posted without a free buffer, stats %+v", w.posted(), w.rx.Stats())
	}
	// Sent on the transmit queue, the buffers come back to its cache first.
	if n := w.tx.Send(pkts); n != 8 {
		t.Fatalf("sent %d", n)
	}
	w.complete()
	w.tx.Reap()
	select {
	case <-w.rx.nudged.C():
	default:
		t.Fatal("the receive queue was not told")
	}
	w.rx.Poll(pkts)
	if w.posted() != 8 {
		t.Errorf("%d WQEs posted, want 8", w.posted())
	}
}
