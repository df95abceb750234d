package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cxkit/prm/spec"
)

func TestCommittedFilesAreWhatTheTablesGive(t *testing.T) {
	want, err := Render(spec.Files())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range want {
		got, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, text) {
			t.Errorf("%s is out of date: run go generate ./prm/...", name)
		}
	}
	have, err := filepath.Glob("../zz_*.go")
	if err != nil {
		t.Fatal(err)
	}
	if len(have) != len(want) {
		t.Errorf("%d generated files, want %d", len(have), len(want))
	}
}

func TestOutputIsTheSameEachTime(t *testing.T) {
	a, err := renderRaw(spec.Files())
	if err != nil {
		t.Fatal(err)
	}
	b, err := renderRaw(spec.Files())
	if err != nil {
		t.Fatal(err)
	}
	for name := range a {
		if a[name] != b[name] {
			t.Errorf("%s differs", name)
		}
	}
}

func field(name string, off, hi, lo int) spec.Field {
	return spec.Field{Name: name, Off: off, Hi: hi, Lo: lo}
}

func layouts(l ...spec.Layout) []spec.File { return []spec.File{{Name: "x", Layouts: l}} }

func commands(c ...spec.Command) []spec.File { return []spec.File{{Name: "x", Commands: c}} }

func TestMistakesInTablesAreRefused(t *testing.T) {
	list := &spec.Tail{Name: "PAS", Off: 8, Size: 8}
	for _, c := range []struct {
		mistake string
		files   []spec.File
		says    string
	}{
		{"fields overlap", layouts(spec.Layout{Name: "T", Size: 8, Fields: []spec.Field{field("A", 0, 15, 8), field("B", 0, 10, 0)}}), "B overlaps A"},
		{"field and bytes overlap", layouts(spec.Layout{Name: "T", Size: 8, Fields: []spec.Field{field("A", 4, 31, 0), {Name: "B", Kind: spec.Blob, Off: 6, Size: 2}}}), "B overlaps A"},
		{"field outside the structure", layouts(spec.Layout{Name: "T", Size: 8, Fields: []spec.Field{field("A", 8, 31, 0)}}), "outside the structure"},
		{"quadword outside the structure", layouts(spec.Layout{Name: "T", Size: 12, Fields: []spec.Field{field("A", 8, 63, 0)}}), "outside the structure"},
		{"nested structure outside", layouts(spec.Layout{Name: "N", Size: 8}, spec.Layout{Name: "T", Size: 8, Fields: []spec.Field{{Name: "A", Kind: spec.Embed, Off: 4, Count: 1, Layout: "N"}}}), "outside the structure"},
		{"bits in the wrong order", layouts(spec.Layout{Name: "T", Size: 8, Fields: []spec.Field{field("A", 0, 3, 7)}}), "wrong order"},
		{"bit 64", layouts(spec.Layout{Name: "T", Size: 16, Fields: []spec.Field{field("A", 0, 64, 0)}}), "wrong order"},
		{"part of a quadword", layouts(spec.Layout{Name: "T", Size: 16, Fields: []spec.Field{field("A", 0, 40, 3)}}), "must be whole"},
		{"offset inside a dword", layouts(spec.Layout{Name: "T", Size: 8, Fields: []spec.Field{field("A", 2, 7, 0)}}), "not that of a dword"},
		{"negative offset", layouts(spec.Layout{Name: "T", Size: 8, Fields: []spec.Field{field("A", -4, 7, 0)}}), "offset"},
		{"field name twice", layouts(spec.Layout{Name: "T", Size: 8, Fields: []spec.Field{field("A", 0, 7, 0), field("A", 4, 7, 0)}}), "repeated name"},
		{"bad field name", layouts(spec.Layout{Name: "T", Size: 8, Fields: []spec.Field{field("a-b", 0, 7, 0)}}), "bad or repeated name"},
		{"structure name twice", layouts(spec.Layout{Name: "T", Size: 8}, spec.Layout{Name: "T", Size: 8}), "name used twice"},
		{"structure without size", layouts(spec.Layout{Name: "T"}), "size 0"},
		{"unknown nested structure", layouts(spec.Layout{Name: "T", Size: 8, Fields: []spec.Field{{Name: "A", Kind: spec.Embed, Count: 1, Layout: "U"}}}), `no structure "U"`},
		{"nested list", layouts(spec.Layout{Name: "N", Size: 8, Tail: list}, spec.Layout{Name: "T", Size: 8, Fields: []spec.Field{{Name: "A", Kind: spec.Embed, Count: 1, Layout: "N"}}}), "cannot be nested"},
		{"unknown enum", layouts(spec.Layout{Name: "T", Size: 8, Fields: []spec.Field{{Name: "A", Hi: 7, Enum: "E"}}}), `no enum "E"`},
		{"field wider than its enum", []spec.File{{Name: "x", Enums: []spec.Enum{{Name: "E", Size: 1}}, Layouts: []spec.Layout{{Name: "T", Size: 8, Fields: []spec.Field{{Name: "A", Hi: 8, Enum: "E"}}}}}}, "do not fit"},
		{"enum value twice", []spec.File{{Name: "x", Enums: []spec.Enum{{Name: "E", Size: 1, Values: []spec.Const{{Name: "A"}, {Name: "B"}}}}}}, "value 0x0 is A"},
		{"enum value too large", []spec.File{{Name: "x", Enums: []spec.Enum{{Name: "E", Size: 1, Values: []spec.Const{{Name: "A", Value: 256}}}}}}, "does not fit"},
		{"enum name twice", []spec.File{{Name: "x", Enums: []spec.Enum{{Name: "E", Size: 1}, {Name: "E", Size: 1}}}}, "name used twice"},
		{"alias of nothing", layouts(spec.Layout{Name: "T", Size: 8, Fields: []spec.Field{{Name: "A", Kind: spec.Alias, Hi: 7}}}), "no single field names"},
		{"list not at the end", layouts(spec.Layout{Name: "T", Size: 16, Tail: list}), "does not follow"},
		{"list counted by nothing", layouts(spec.Layout{Name: "T", Size: 8, Tail: &spec.Tail{Name: "PAS", Off: 8, Size: 8, Count: "N"}}), "no field N"},
		{"list of odd words", layouts(spec.Layout{Name: "T", Size: 8, Tail: &spec.Tail{Name: "PAS", Off: 8, Size: 3}}), "elements of 3 bytes"},
		{"dword outside", layouts(spec.Layout{Name: "T", Size: 8, Dwords: []spec.Dword{{Name: "D", Off: 8}}}), "dword D"},
		{"half a dword signed", layouts(spec.Layout{Name: "T", Size: 8, Fields: []spec.Field{{Name: "A", Hi: 15, Signed: true}}}), "signed"},
		{"opcode twice", commands(spec.Command{Name: "A", Op: 1}, spec.Command{Name: "B", Op: 1}), "opcode 0x1 is A"},
		{"command name twice", commands(spec.Command{Name: "A", Op: 1}, spec.Command{Name: "A", Op: 2}), "name used twice"},
		{"body over the header", commands(spec.Command{Name: "A", Op: 1, In: &spec.Layout{Name: "AIn", Size: 16, Fields: []spec.Field{field("X", 4, 3, 0)}}}), "overlaps OpMod"},
		{"body over the status", []spec.File{{Name: "x", Enums: []spec.Enum{{Name: "Status", Size: 1}}, Commands: []spec.Command{{Name: "A", Op: 1, Out: &spec.Layout{Name: "AOut", Size: 16, Fields: []spec.Field{field("X", 4, 3, 0)}}}}}}, "overlaps Syndrome"},
		{"register id twice", []spec.File{{Name: "x", Registers: []spec.Register{{Name: "A", ID: 1}, {Name: "B", ID: 1}}}}, "id 0x1 is A"},
	} {
		t.Run(c.mistake, func(t *testing.T) {
			_, err := renderRaw(c.files)
			if err == nil {
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %q, want it to say %q", err, c.says)
			}
		})
	}
}

func TestAnAliasMayShareItsBits(t *testing.T) {
	files := layouts(spec.Layout{Name: "T", Size: 8, Fields: []spec.Field{field("A", 0, 31, 0), {Name: "B", Kind: spec.Alias, Hi: 7}}})
	out, err := Render(files)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(out["zz_x.go"], []byte("func (s *T) SetB(v uint8)")) {
		t.Errorf("no setter for the alias:\n%s", out["zz_x.go"])
	}
}
