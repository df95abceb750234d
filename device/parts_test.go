package device

import (
	"encoding/binary"
	"testing"

	"cxkit/prm"
)

// Page commands about many thousands of pages: other commands end between their parts, they themselves come
// one after the other, and a reset in the middle leaves nothing of them.
func TestPageCommandsAreDoneInParts(t *testing.T) {
	const pages = 4 * pagesPerPart
	l := newLender(t, Config{})
	before := l.books().Pages
	take := func(slot int) (in []byte, outLen int) {
		in, outLen = bytesOf(&prm.ManagePagesIn{OpMod: uint16(prm.PagesTake), InputNumEntries: pages}), 16+8*pages
		l.post(slot, in, outLen)
		return in, outLen
	}
	nop := bytesOf(&prm.NopIn{})
	steps := func(done func() bool) (n int) {
		for !done() {
			if n++; n > 1000 {
				t.Fatal("the engine does nothing")
			}
			l.card.Step(64)
		}
		return n
	}

	// Firmware asks for the pages; the give is in the card's hands while a NOP comes and goes.
	if err := l.card.HoardPages(0, PageFunction{}, pages); err != nil {
		t.Fatal(err)
	}
	in := prm.ManagePagesIn{OpMod: uint16(prm.PagesGive), InputNumEntries: pages}
	for range pages {
		in.PAS = append(in.PAS, l.nextPA)
		l.nextPA += 4096
	}
	l.post(0, bytesOf(&in), 16)
	l.card.Step(64)
	l.post(1, nop, 16)
	l.card.Step(64)
	if l.owned(1) || !l.owned(0) {
		t.Errorf("NOP under way: %v, the give under way: %v; want only the give", l.owned(1), l.owned(0))
	}
	if n := steps(func() bool { return !l.owned(0) }); n < 2 {
		t.Errorf("the give took %d steps more", n)
	}
	if got := l.books().Pages - before; got != pages {
		t.Fatalf("firmware got %d pages, want %d", got, pages)
	}

	// Two takes at once: the second begins when the first has ended.
	if err := l.card.ReturnPages(0, PageFunction{}, pages); err != nil {
		t.Fatal(err)
	}
	first, outLen := take(0)
	l.post(2, bytesOf(&prm.ManagePagesIn{OpMod: uint16(prm.PagesTake), InputNumEntries: 100}), 16+800)
	steps(func() bool { return !l.owned(0) || !l.owned(2) })
	if l.owned(0) {
		t.Error("the second take ended before the first")
	}
	steps(func() bool { return !l.owned(2) })
	_, out := l.answer(0, len(first), outLen)
	if n := binary.BigEndian.Uint32(out[8:]); n != pages {
		t.Errorf("the first take returned %d pages, want %d", n, pages)
	}
	for i := range pages {
		pa := binary.BigEndian.Uint64(out[16+8*i:])
		if pa == 0 || l.lent[pa] {
			t.Fatalf("entry %d of the answer is %#x", i, pa)
		}
		l.lent[pa] = true
	}

	// Firmware keeps the rest of what it gives back, in the middle of a take.
	if err := l.card.HoardPages(0, PageFunction{}, pages); err != nil {
		t.Fatal(err)
	}
	l.post(0, bytesOf(&in), 16)
	steps(func() bool { return !l.owned(0) })
	if err := l.card.ReturnPages(0, PageFunction{}, pages); err != nil {
		t.Fatal(err)
	}
	first, outLen = take(0)
	l.card.Step(64)
	if err := l.card.KeepPages(0, PageFunction{}); err != nil {
		t.Fatal(err)
	}
	steps(func() bool { return !l.owned(0) })
	_, out = l.answer(0, len(first), outLen)
	if n := int(binary.BigEndian.Uint32(out[8:])); n == 0 || n >= pages || l.books().Pages != before+pages-n {
		t.Errorf("%d of %d pages were taken, firmware has %d", n, pages, l.books().Pages-before)
	}
	if err := l.card.ReturnPages(0, PageFunction{}, l.books().Pages-before); err != nil {
		t.Fatal(err)
	}
	take(0)
	steps(func() bool { return !l.owned(0) })
	if l.books().Pages != before {
		t.Fatalf("firmware has %d pages too many", l.books().Pages-before)
	}

	// A reset in the middle of one.
	if err := l.card.HoardPages(0, PageFunction{}, pages); err != nil {
		t.Fatal(err)
	}
	l.post(0, bytesOf(&in), 16)
	l.card.Step(64)
	if !l.owned(0) {
		t.Fatal("the give is not done in parts")
	}
	if err := l.fn.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		l.card.Step(64)
	}
	if b := l.books(); b.Pages != 0 || b.Running != 0 || l.function().executor.partly != 0 || l.function().executor.current >= 0 {
		t.Errorf("after a reset: %+v, partly %#x", b, l.function().executor.partly)
	}
}
