package driver

import (
	"encoding/binary"
	"errors"
	"testing"

	"cxkit/dma"
	"cxkit/prm"
)

// FuzzCompletions lets a card write whatever it likes into both completion queues while the queues are in
// use: each 8 input bytes are one step, and a byte too many makes the receive queue a linked one. Nothing may panic, read outside the rings, hand out a buffer
// twice or lose one; a queue may stop, with a *QueueError.
func FuzzCompletions(f *testing.F) {
	step := func(op, slot byte, own uint32, arg uint16) []byte {
		return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint32([]byte{op, slot}, own), arg)
	}
	f.Add(append(step(0, 3, 0, 64), step(1, 8, 0, 0)...))
	f.Add(append(step(2, 0, 0x00000020, 64), step(1, 8, 0, 0)...))
	f.Add(append(step(2, 0, 0x00000020, 0xffff), step(1, 8, 0, 0)...))
	f.Add(append(step(2, 0, 0x000000e0, 4), step(1, 8, 0, 0)...))
	f.Add(append(append(step(4, 3, 0, 60), step(3, 0, 0x00020000, 0)...), step(5, 0, 0, 0)...))
	f.Add(append(append(step(4, 3, 0, 60), step(3, 0, 0x000000d0, 4)...), step(5, 0, 0, 0)...))
	f.Add(append(append(step(0, 3, 0, 64), step(1, 8, 0, 0)...), 0))
	f.Add(append(append(step(2, 0, 0x00090020, 64), step(1, 8, 0, 0)...), 0))
	f.Fuzz(func(t *testing.T, steps []byte) {
		c := Config{RxRing: 8, TxRing: 8, Buffers: 40, BufferSize: 1536, Arena: dma.Heap, CheckBuffers: true}
		c.LinkedReceive = len(steps)%8 == 1
		w := newWriter(t, c)
		var held []Packet
		for ; len(steps) >= 8; steps = steps[8:] {
			op, slot := steps[0]%7, uint32(steps[1])
			own, arg := binary.BigEndian.Uint32(steps[2:]), binary.BigEndian.Uint16(steps[6:])
			switch op {
			case 0: // honest frames
				w.receive(int(slot%8), int(arg)%1500)
			case 1:
				pkts := make([]Packet, slot%16)
				held = append(held, pkts[:w.rx.Poll(pkts)]...)
			case 2, 3: // anything into a completion queue
				v := &w.rxCQ
				if op == 3 {
					v = &w.txCQ
				}
				e := v.entry(slot)
				e.SetByteCnt(uint32(int16(arg)))
				e.SetQPN(testSQ)
				(*prm.ErrorCQE)(e).SetSyndrome(prm.CQESyndrome(arg & 7))
				dma.StoreBE32(v.ring, int(slot&v.mask)*prm.CQESize+prm.CQEOwnOff, own)
			case 4:
				pkts := make([]Packet, slot%12)
				n := w.tx.Get(pkts)
				for i := range pkts[:n] {
					pkts[i].Data = pkts[i].Data[:int(arg)%1500]
				}
				held = append(held, pkts[w.tx.Send(pkts[:n]):n]...)
			case 5: // honest completions
				w.complete()
				w.tx.Reap()
			case 6:
				n := min(len(held), int(slot))
				w.rx.Release(held[:n])
				held = held[n:]
			}
		}
		out := 0
		for _, p := range held {
			if p.buffer != 0 {
				out++
			}
		}
		b := w.nic.bufferBooks()
		if b.Application != out || b.Free < 0 || b.Violations != 0 || b.Free+b.Posted+b.Sending+out != c.Buffers {
			t.Fatalf("books %+v, the application has %d of %d", b, out, c.Buffers)
		}
		for _, err := range []error{w.rx.Err(), w.tx.Err()} {
			var q *QueueError
			if err != nil && !errors.As(err, &q) {
				t.Fatalf("queue stopped with %v", err)
			}
		}
	})
}

// FuzzStridedCompletions is FuzzCompletions for striding queues with large receives and compressed completions. A
// step is 16 bytes, and a byte too many makes the queue a linked one; what the card writes as frames is input, too.
func FuzzStridedCompletions(f *testing.F) {
	step := func(op, arg byte, length uint16, head ...byte) []byte {
		b := binary.BigEndian.AppendUint16([]byte{op, arg}, length)
		return append(b, append(head, make([]byte, 12-len(head))...)...)
	}
	f.Add(append(append(step(0, 1, 1500), step(1, 2, 3000)...), step(2, 9, 0)...))
	f.Add(append(step(1, 7, 60_000), step(2, 9, 0)...))
	f.Add(append(step(3, 0, 3000, 0x80, 1, 2, 3, 0, 1, 0, 0x10), step(2, 9, 0)...))
	f.Add(append(append(step(1, 200, 60_000), step(2, 9, 0)...), step(4, 9, 0)...))
	f.Add(append(append(step(1, 200, 60_000), step(2, 9, 0)...), 0))
	f.Add(append(append(append(step(0, 1, 600), step(3, 0, 1, 0, 0, 0, 3)...), step(2, 9, 0)...), 0))
	f.Fuzz(func(t *testing.T, steps []byte) {
		c := largeConfig()
		c.CompressCompletions, c.LinkedReceive = true, len(steps)%16 == 1
		w := newWriter(t, c)
		total := w.nic.config.Buffers
		var held []Packet
		for ; len(steps) >= 16; steps = steps[16:] {
			arg, length, rest := steps[1], binary.BigEndian.Uint16(steps[2:]), steps[4:16]
			switch steps[0] % 5 {
			case 0: // honest frames
				if w.posted() > 1 {
					w.receiveStrides(largeFrame(int(length)%1900), nil)
				}
			case 1: // large receives, with some bytes of their headers changed
				if w.posted() > 1 {
					frame := largeFrame(max(1, int(length)%65_000))
					tell := large(frame, arg)
					for i := 0; i < len(rest); i += 2 {
						frame[int(rest[i])%len(frame)] ^= rest[i+1]
					}
					w.receiveStrides(frame, tell)
				}
			case 2:
				pkts := make([]Packet, arg%16)
				held = append(held, pkts[:w.rx.Poll(pkts)]...)
			case 3: // anything
				e := w.rxCQ.entry(w.rxCQ.pi + uint32(arg%4))
				copy(e[:8], rest)
				e[0x20], e[0x1d] = rest[8], rest[9]
				e.SetByteCnt(uint32(rest[10])<<24 | uint32(rest[11])<<16 | uint32(length))
				dma.StoreBE32(e[:], prm.CQEOwnOff, binary.BigEndian.Uint32(rest[4:]))
			case 4:
				n := min(len(held), int(arg))
				w.rx.Release(held[:n])
				held = held[n:]
			}
		}
		out := 0
		for i := range held {
			for range held[i].Fragments() {
				out++
			}
		}
		b := w.nic.bufferBooks()
		if b.Application != out || b.Free < 0 || b.Violations != 0 || b.Free+out != total {
			t.Fatalf("books %+v, the application has %d of %d", b, out, total)
		}
		var q *QueueError
		if err := w.rx.Err(); err != nil && !errors.As(err, &q) {
			t.Fatalf("queue stopped with %v", err)
		}
	})
}
