package object

import (
	"testing"

	"pgregory.net/rapid"
)

func TestTableFindsStaleNumbers(t *testing.T) {
	table := New[*int](8, 1000)
	first, _ := table.Add(new(int))
	table.Remove(first)
	for range quarantine {
		n, ok := table.Add(new(int))
		if !ok {
			t.Fatal("table is full")
		}
		if n == first {
			t.Fatal("a number came back at once")
		}
		table.Remove(n)
	}
	if _, ok := table.Get(first); ok {
		t.Error("a removed object is still found")
	}
	if len(table.slots) > quarantine+2 {
		t.Errorf("%d slots for one object at a time", len(table.slots))
	}
}

func TestTableUsesAllNumbersAndNoOthers(t *testing.T) {
	table := New[int](5, 3)
	seen := map[uint32]bool{}
	for i := range 3 {
		n, ok := table.Add(i)
		if !ok || n < 5 || n > 7 || seen[n] {
			t.Fatalf("Add %d: number %d, %v", i, n, ok)
		}
		seen[n] = true
	}
	if _, ok := table.Add(3); ok || !table.Full() {
		t.Error("a fourth object fits into a table of three")
	}
	for _, n := range []uint32{0, 4, 8, 1<<32 - 1} {
		if _, ok := table.Get(n); ok {
			t.Errorf("number %d is found", n)
		}
		if table.Remove(n) {
			t.Errorf("number %d is removed", n)
		}
	}
	table.Remove(6)
	if n, ok := table.Add(9); !ok || n != 6 {
		t.Errorf("the freed number is not used when there is no other: %d, %v", n, ok)
	}
}

func TestTableAgreesWithMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, model := New[int](1, 200), map[uint32]int{}
		for i := range rapid.IntRange(1, 500).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "add") {
				n, ok := table.Add(i)
				if _, used := model[n]; ok == (len(model) == 200) || ok && used {
					t.Fatalf("Add: %d, %v with %d objects", n, ok, len(model))
				}
				if ok {
					model[n] = i
				}
				continue
			}
			n := rapid.Uint32Range(0, 201).Draw(t, "number")
			_, had := model[n]
			if table.Remove(n) != had {
				t.Fatalf("Remove(%d): model says %v", n, had)
			}
			delete(model, n)
		}
		if table.Len() != len(model) {
			t.Fatalf("Len %d, want %d", table.Len(), len(model))
		}
		table.Each(func(n uint32, v int) bool {
			if model[n] != v {
				t.Fatalf("object %d is %d, want %d", n, v, model[n])
			}
			delete(model, n)
			return true
		})
		if len(model) != 0 {
			t.Fatalf("Each left out %v", model)
		}
	})
}

func TestRefsRefuseADropTooMany(t *testing.T) {
	var r Refs
	r.Hold()
	r.Drop()
	if r.Held() {
		t.Error("held after the last drop")
	}
	defer func() {
		if recover() == nil {
			t.Error("a drop without a hold went unnoticed")
		}
	}()
	r.Drop()
}
