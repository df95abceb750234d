package prm

import "testing"

func cqCommand() CreateCQIn {
	return CreateCQIn{
		Context: CQContext{LogCQSize: 10, UARPage: 8, EQN: 3, CQPeriod: 16, CQMaxCount: 64, DBRAddr: 0x1234567000},
		PAS:     []uint64{0x1000, 0x2000, 0x3000, 0x4000},
	}
}

func TestCodingAllocatesNothing(t *testing.T) {
	in := cqCommand()
	b := make([]byte, in.Len())
	out := CreateCQIn{PAS: make([]uint64, 0, 4)}
	var c CQE
	var sink uint32
	for name, f := range map[string]func(){
		"Put":       func() { in.Put(b) },
		"Get":       func() { out.Get(b) },
		"short Get": func() { out.Get(b[:20]) },
		"CQE":       func() { sink += c.ByteCnt() + c.QPN() + uint32(c.WQECounter()) },
		"patch":     func() { sink += uint32(patchPMTU(b)) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	_ = sink
}

func patchPMTU(b []byte) uint16 {
	var r RegPMTU
	r.Get(b)
	r.AdminMTU = 1522
	r.Patch(b)
	return r.MaxMTU
}

func BenchmarkPutCreateCQ(b *testing.B) {
	in := cqCommand()
	buf := make([]byte, in.Len())
	b.ReportAllocs()
	for b.Loop() {
		in.Put(buf)
	}
}

func BenchmarkGetCreateCQ(b *testing.B) {
	in := cqCommand()
	buf := make([]byte, in.Len())
	in.Put(buf)
	var out CreateCQIn
	b.ReportAllocs()
	for b.Loop() {
		out.Get(buf)
	}
}

func BenchmarkReservedInput(b *testing.B) {
	in := cqCommand()
	buf := make([]byte, in.Len())
	in.Put(buf)
	for b.Loop() {
		if _, found := ReservedInput(OpCreateCQ, buf); found {
			b.Fatal("reserved bit set")
		}
	}
}

func BenchmarkReadCQE(b *testing.B) {
	ring := make([]byte, 64*CQESize)
	var sum uint64
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		c := (*CQE)(ring[i%64*CQESize:])
		sum += uint64(c.ByteCnt()) + uint64(c.RSSHashResult()) + uint64(c.WQECounter()) + uint64(c.Opcode()) +
			uint64(c.FlowTag()) + uint64(c.VLANInfo()) + c.Timestamp()
		i++
	}
	_ = sum
}
