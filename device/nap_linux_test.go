package device

import (
	"testing"
	"time"
)

func TestANapEndsOnTimeAndWhenItIsWoken(t *testing.T) {
	n, err := newNapper()
	if err != nil {
		t.Fatal(err)
	}
	defer n.file.Close()
	began := time.Now()
	n.arm(time.Millisecond)
	n.nap()
	if d := time.Since(began); d < time.Millisecond {
		t.Errorf("a nap of a millisecond took %v", d)
	}
	n.arm(time.Hour)
	n.wake() // before the nap, or in it
	n.nap()
	n.arm(time.Hour)
	go n.wake()
	n.nap()
}

func TestNappingDoesNotAllocate(t *testing.T) {
	n, err := newNapper()
	if err != nil {
		t.Fatal(err)
	}
	defer n.file.Close()
	if a := testing.AllocsPerRun(100, func() { n.arm(0); n.nap() }); a != 0 {
		t.Errorf("%v allocations a nap", a)
	}
}
