package device

import (
	"encoding/binary"
	"testing"

	"cxkit/dma"
	"cxkit/prm"
)

// FuzzStriding plays a hostile driver of a striding queue: it writes over its ring, its record and its key by
// UMR, while frames come, some of which merge. The card must not panic and must come to rest.
func FuzzStriding(f *testing.F) {
	f.Add([]byte{0, 10, 20, 1, 5, 6, 7, 2, 200, 3, 0, 0})
	f.Add([]byte{2, 100, 2, 100, 3, 9, 9, 9, 9, 9, 9, 2, 100, 4, 2, 2})
	f.Fuzz(func(t *testing.T, in []byte) {
		q := newMerger(t)
		q.b.TB = t
		next := func() (v byte) {
			if len(in) > 0 {
				v, in = in[0], in[1:]
			}
			return v
		}
		for len(in) > 0 {
			switch next() % 6 {
			case 0: // the ring
				q.ring.Bytes[int(next())%128] = next()
			case 1: // the record
				q.posted += uint16(next())
				q.ring0()
			case 2: // frames
				n := 60 + int(next())*6
				q.b.receive(testFrame(n, next()), segmentOf(100, 0x10, part(n, 1)), segmentOf(100+uint32(n), 0x10+next()&8, part(n, 2)))
			case 3: // a UMR of rubbish
				body := umrWQE(int(next())<<3, []uint64{uint64(next()) << 12, uint64(next())<<12 | 3})
				for range next() % 8 {
					body[int(next())%len(body)] = next()
				}
				at := q.icosq.pi
				q.icosq.put(prm.WQEUMR, prm.CompletionAlways, body)
				binary.BigEndian.PutUint32(q.icosq.ring.Bytes[int(at&63)*64+12:], q.key)
				q.icosq.ring0()
				q.icosq.cq.take()
			case 4: // recovery
				for _, s := range []prm.QueueState{prm.QueueStateERR, prm.QueueStateRST, prm.QueueStateRDY} {
					rq, _ := q.b.function().rqs.Get(q.n)
					m := prm.ModifyRQIn{RQState: rq.State(), RQN: q.n}
					m.Context.State = s
					q.b.exec(&m, &prm.ModifyRQOut{})
				}
				q.posted = 0
			case 5: // the CQ's consumer
				dma.StoreBE32(q.cq.record.Bytes, 0, uint32(next())<<16|uint32(next()))
			}
		}
		q.b.settle()
	})
}
