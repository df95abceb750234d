package device

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"cxkit/dma"
	"cxkit/prm"
)

func compressed(format uint8) func(*prm.CreateCQIn) {
	return func(in *prm.CreateCQIn) { in.Context.CQECompEn, in.Context.MiniCQEResFormat = true, format }
}

// expand takes completions as Linux does: it expands sessions, and writes the owner bits of all entries that
// a session took (en_rx.c, mlx5e_decompress_cqes_start).
func (q *testCQ) expand(t testing.TB, format uint8) (cqes []prm.CQE, sessions int) {
	t.Helper()
	slot := func(ci uint32) *prm.CQE { return (*prm.CQE)(q.ring.Bytes[int(ci&(1<<q.log-1))<<6:]) }
	for c := q.next(); c != nil; c = q.next() {
		if c.Format() != prm.CQEFormatCompressed {
			cqes = append(cqes, *c)
			continue
		}
		sessions++
		start, n := q.ci-1, c.ByteCnt()
		if n < 2 || n > 64 {
			t.Fatalf("a session of %d", n)
		}
		title, counter := *c, c.WQECounter()
		for i := range n {
			array := slot(start + max(i&^7, 1))
			mini := array[8*(i&7):][:8]
			one := title
			copy(one[0x2c:0x30], mini[4:])
			if format == 0 {
				copy(one[0x0c:0x10], mini)
			} else {
				copy(one[0x14:0x16], mini)
			}
			if format == 3 {
				copy(one[0x3c:0x3e], mini[2:])
			} else {
				one[0x3c], one[0x3d] = byte(counter>>8), byte(counter)
				counter += max(1, uint16(one.ByteCnt()>>16&0x7fff))
			}
			cqes = append(cqes, one)
		}
		for i := range n {
			slot(start + i)[63] = byte((start + i) >> q.log & 1)
		}
		q.ci = start + n
	}
	q.release()
	return cqes, sessions
}

// TestCompressedCompletionsExpand compares what frames leave in a compressed CQ with what they are.
func TestCompressedCompletionsExpand(t *testing.T) {
	for _, format := range []uint8{0, 1, 3} {
		b := newDataBench(t)
		cq := b.newCQ(7, compressed(format))
		q := b.newRQ(cq, 6, 2048)
		q.state(prm.QueueStateRST, prm.QueueStateRDY)
		b.all(b.newTIR(q))
		rnd := rand.New(rand.NewPCG(1, uint64(format)))
		total := 0
		for round := range 200 {
			q.post(int(q.cq.ci - uint32(q.posted) + 64&0xffff))
			var want [][]byte
			for range 1 + rnd.IntN(64) {
				f := udpFrame(20+rnd.IntN(1000), rnd.Uint32(), 2, 3, 4)
				if rnd.IntN(10) == 0 {
					f = testFrame(60+rnd.IntN(100), byte(round))
				}
				want = append(want, f)
			}
			b.receive(want...)
			got, sessions := cq.expand(t, format)
			if len(got) != len(want) {
				t.Fatalf("format %d round %d: %d completions, want %d", format, round, len(got), len(want))
			}
			for i := range got {
				c := &got[i]
				if c.Opcode() != prm.CQEResponderSend || !bytes.Equal(q.data(c), want[i]) {
					t.Fatalf("format %d round %d: frame %d is not what completion %x says", format, round, i, c[:])
				}
				if sum := refSum(want[i][14:], 0); format != 0 && c.Checksum() != sum {
					t.Fatalf("format %d round %d: frame %d: checksum %#x, want %#x", format, round, i, c.Checksum(), sum)
				}
			}
			total += sessions
		}
		if total < 100 {
			t.Errorf("format %d: %d sessions", format, total)
		}
	}
}

// TestCompressedStrides: completions of a striding queue expand, fillers and all.
func TestCompressedStrides(t *testing.T) {
	for _, format := range []uint8{1, 3} {
		q := newStriderOn(t, 11, []func(*prm.CreateCQIn){compressed(format)})
		rnd := rand.New(rand.NewPCG(1, 2))
		sessions := 0
		for i := range 200 {
			var want [][]byte
			for range 1 + rnd.IntN(6) {
				want = append(want, udpFrame(20+rnd.IntN(1400), rnd.Uint32(), 2, 3, 4))
			}
			q.b.receive(want...)
			cqes, n := q.cq.expand(t, format)
			sessions += n
			got := q.takeAll(t, cqes)
			if len(got) != len(want) {
				t.Fatalf("round %d: %d frames, want %d", i, len(got), len(want))
			}
			for k := range got {
				if !bytes.Equal(got[k], want[k]) {
					t.Fatalf("round %d: frame %d differs", i, k)
				}
			}
		}
		if sessions < 50 {
			t.Errorf("%d sessions", sessions)
		}
	}
}

// TestCompressionStopsAtOverrun: a session that finds no more room ends, and the CQ with it.
func TestCompressionStopsAtOverrun(t *testing.T) {
	b := newDataBench(t)
	cq := b.newCQ(4, compressed(1))
	q := b.newRQ(cq, 6, 256)
	q.state(prm.QueueStateRST, prm.QueueStateRDY)
	b.all(b.newTIR(q))
	q.post(40)
	var frames [][]byte
	for range 20 {
		frames = append(frames, udpFrame(20, 1, 2, 3, 4))
	}
	b.receive(frames...)
	got, _ := cq.expand(t, 1)
	if len(got) != 16 {
		t.Errorf("%d completions in a CQ of 16", len(got))
	}
	if n := b.errors(prm.EventCQError); n != 1 {
		t.Errorf("%d CQ errors", n)
	}
}

// TestCQResize moves a CQ to a larger ring and to a smaller one, as mlx5_ib does, with completions in it.
func TestCQResize(t *testing.T) {
	b := newDataBench(t)
	cq := b.newCQ(3)
	q := b.newRQ(cq, 5, 256)
	q.state(prm.QueueStateRST, prm.QueueStateRDY)
	b.all(b.newTIR(q))
	resize := func(log uint8) (prm.ModifyCQIn, dma.Region) {
		ring := b.carve(max(64<<log, 4096), 4096)
		for at := 0; at < len(ring.Bytes); at += 64 {
			ring.Bytes[at+63] = prm.CQEOwnInit
		}
		in := prm.ModifyCQIn{OpMod: cqResize, CQN: cq.n, ModifyFieldSelect: resizeLogSize | resizePageOffset | resizePageSize, PAS: pages(ring)}
		in.Context.LogCQSize = log
		return in, ring
	}
	sent := byte(0)
	frames := func(n int) {
		for range n {
			q.post(1)
			b.receive(testFrame(60, sent))
			sent++
		}
	}
	seen := byte(0)
	take := func() {
		t.Helper()
		for c := cq.next(); c != nil; c = cq.next() {
			if c.Opcode() == prm.CQEResize {
				t.Fatal("an end of the ring where there is none")
			}
			if q.data(c)[11] != seen {
				t.Fatalf("frame %d, want %d", q.data(c)[11], seen)
			}
			seen++
		}
		cq.release()
	}
	for _, log := range []uint8{6, 2, 4} {
		frames(2)
		take()
		frames(3)
		in, ring := resize(log)
		b.must(&in, &prm.ModifyCQOut{})
		frames(0)
		// The driver reads the old ring to its end, then goes on in the new one.
		for c := cq.next(); c.Opcode() != prm.CQEResize; c = cq.next() {
			if q.data(c)[11] != seen {
				t.Fatalf("frame %d, want %d", q.data(c)[11], seen)
			}
			seen++
		}
		cq.ring, cq.log = ring, log
		cq.release()
		take()
		for range 3 << log {
			frames(1)
			take()
		}
	}
	if sent != seen {
		t.Errorf("%d frames of %d", seen, sent)
	}
	frames(3)
	in, _ := resize(1)
	b.refused(&in, &prm.ModifyCQOut{}, prm.StatusBadResourceState, synCQResize)
	in.Context.LogCQSize = 23
	b.refused(&in, &prm.ModifyCQOut{}, prm.StatusBadParameter, synLogSize)
	in.Context.LogCQSize, in.PAS = 10, in.PAS[:1]
	b.refused(&in, &prm.ModifyCQOut{}, prm.StatusBadInputLength, synPageListShort)
	take()
}
