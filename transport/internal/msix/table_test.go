package msix

import "testing"

func TestVectorsWithoutATakerStayPending(t *testing.T) {
	taken, ready := 0, false
	table := New(4, func(v int) bool {
		if ready {
			taken++
		}
		return ready
	})
	table.Raise(2)
	table.Raise(2)
	var pba [8]byte
	table.ReadPending(0, pba[:])
	if pba[0] != 1<<2 || taken != 0 {
		t.Errorf("pending %#x, taken %d", pba[0], taken)
	}
	ready = true
	table.Ready(2)
	table.Ready(2)
	if table.ReadPending(0, pba[:]); taken != 1 || pba[0] != 0 {
		t.Errorf("taken %d times, pending %#x, want once and none", taken, pba[0])
	}
}

func TestMaskHoldsBackWhateverSetIt(t *testing.T) {
	taken := 0
	table := New(3, func(int) bool { taken++; return true })
	table.Raise(1)
	if taken != 1 {
		t.Fatal("a table that nobody wrote holds a vector back")
	}
	table.Mask(1, true)
	table.Raise(1)
	if taken != 1 {
		t.Error("delivered while masked")
	}
	table.Write(16+12, []byte{0, 0, 0, 0}) // the driver unmasks it in the table
	if taken != 2 {
		t.Errorf("taken %d times, want 2", taken)
	}
	table.SetFunctionMask(true)
	for v := range 3 {
		table.Raise(v)
	}
	table.SetFunctionMask(false)
	if taken != 5 {
		t.Errorf("taken %d times, want 5", taken)
	}
	table.Mask(1, true)
	table.Raise(1)
	table.Reset()
	table.Ready(1)
	if taken != 5 {
		t.Error("a vector from before the reset was delivered")
	}
}

func TestAccessesOutsideTheTableAreHarmless(t *testing.T) {
	table := New(2, func(int) bool { return true })
	p := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	for _, off := range []uint64{31, 32, 1 << 40, 1<<64 - 4} {
		table.Write(off, p)
		got := []byte{9, 9, 9, 9, 9, 9, 9, 9}
		table.Read(off, got)
		if off >= 32 && got[0] != 0 {
			t.Errorf("%#x reads %#x", off, got[0])
		}
		table.ReadPending(off, got)
		if got[0] != 0 {
			t.Errorf("pending at %#x reads %#x", off, got[0])
		}
	}
	for _, v := range []int{-1, 2, 1 << 30} {
		table.Raise(v)
	}
}

func TestRaiseAllocatesNothing(t *testing.T) {
	table := New(2, func(int) bool { return true })
	if n := testing.AllocsPerRun(100, func() { table.Raise(1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
