package vmtest

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// cpioEntry is what a reader of the archive sees.
type cpioEntry struct {
	mode, major, minor uint64
	data               string
}

// readCPIO reads an archive as the kernel does (init/initramfs.c).
func readCPIO(t *testing.T, b []byte) map[string]cpioEntry {
	t.Helper()
	entries := make(map[string]cpioEntry)
	at := 0
	for {
		if len(b) < at+110 || string(b[at:at+6]) != "070701" {
			t.Fatalf("no header at %d", at)
		}
		field := func(i int) uint64 {
			v, err := strconv.ParseUint(string(b[at+6+8*i:at+14+8*i]), 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		size, nameLen := int(field(6)), int(field(11))
		name := string(b[at+110 : at+110+nameLen-1])
		if b[at+110+nameLen-1] != 0 {
			t.Fatalf("name %q does not end", name)
		}
		start := (at + 110 + nameLen + 3) &^ 3
		e := cpioEntry{mode: field(1), major: field(9), minor: field(10), data: string(b[start : start+size])}
		at = (start + size + 3) &^ 3
		if name == "TRAILER!!!" {
			if at != len(b) {
				t.Errorf("%d bytes behind the trailer", len(b)-at)
			}
			return entries
		}
		if _, twice := entries[name]; twice {
			t.Errorf("%s is there twice", name)
		}
		if dir := filepath.Dir(name); dir != "." {
			if entries[dir].mode != modeDir {
				t.Errorf("%s comes before its folder", name)
			}
		}
		entries[name] = e
	}
}

func TestCPIO(t *testing.T) {
	var b bytes.Buffer
	c := newCPIOWriter(&b)
	c.file("/a/b/c", modeProgram, []byte("hello"))
	c.file("a/d", modeFile, nil)
	c.char("dev/console", 5, 1)
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	got := readCPIO(t, b.Bytes())
	for name, want := range map[string]cpioEntry{
		"a": {mode: modeDir}, "a/b": {mode: modeDir}, "dev": {mode: modeDir},
		"a/b/c": {mode: modeProgram, data: "hello"}, "a/d": {mode: modeFile},
		"dev/console": {mode: modeChar, major: 5, minor: 1},
	} {
		if got[name] != want {
			t.Errorf("%s: %+v, want %+v", name, got[name], want)
		}
	}
	if len(got) != 6 {
		t.Errorf("entries %v", got)
	}
}

// fakeModule is an ELF file with a .modinfo section and nothing else.
func fakeModule(release string, depends ...string) []byte {
	info := []byte("license=GPL\x00alias=net-pf-99\x00depends=" + strings.Join(depends, ",") + "\x00vermagic=" + release + " SMP mod_unload \x00")
	names := []byte("\x00.modinfo\x00.shstrtab\x00")
	le := binary.LittleEndian
	b := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 9)...)
	b = le.AppendUint16(b, 1)  // relocatable
	b = le.AppendUint16(b, 62) // x86-64
	b = le.AppendUint32(b, 1)  // version
	b = append(b, make([]byte, 16)...)
	at := 64 + len(info) + len(names)
	b = le.AppendUint64(b, uint64(at))
	b = append(b, 0, 0, 0, 0)
	for _, v := range []uint16{64, 0, 0, 64, 3, 2} {
		b = le.AppendUint16(b, v)
	}
	b = append(append(b, info...), names...)
	section := func(name, kind uint32, off, size int) {
		b = le.AppendUint32(le.AppendUint32(b, name), kind)
		for _, v := range []int{0, 0, off, size, 0, 1, 0} {
			b = le.AppendUint64(b, uint64(v))
		}
	}
	section(0, 0, 0, 0)
	section(1, 1, 64, len(info))
	section(10, 3, 64+len(info), len(names))
	return b
}

// writeTree writes files below a folder.
func writeTree(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func gzipped(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	z.Write(b)
	z.Close()
	return out.Bytes()
}

func TestModulesComeWithWhatTheyDependOn(t *testing.T) {
	dir := writeTree(t, map[string][]byte{
		"kernel/net/top-level.ko": fakeModule("6.99", "mid_a", "mid_b"),
		"kernel/net/mid-a.ko.gz":  gzipped(fakeModule("6.99", "bottom")),
		"kernel/lib/mid_b.ko":     fakeModule("6.99", "bottom", "built_in"),
		"kernel/lib/bottom.ko":    fakeModule("6.99"),
		"kernel/lib/unrelated.ko": fakeModule("6.99"),
		"kernel/lib/notes.ko.txt": []byte("no module"),
		"modules.dep":             []byte("wrong: on purpose\n"),
	})
	tree, err := openModules(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	modules, err := tree.closure([]string{"top_level", "virtio_pci"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range modules {
		names = append(names, m.name)
	}
	if got, want := fmt.Sprint(names), "[bottom mid_a mid_b top_level]"; got != want {
		t.Fatalf("modules %s, want %s", got, want)
	}

	var b bytes.Buffer
	c := newCPIOWriter(&b)
	if err := (&initramfs{modules: modules}).writeModules(c); err != nil {
		t.Fatal(err)
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	files := readCPIO(t, b.Bytes())
	want := "bottom.ko:\nmid_a.ko: bottom.ko\nmid_b.ko: bottom.ko\ntop_level.ko: mid_a.ko mid_b.ko bottom.ko\n"
	if got := files["lib/modules/6.99/modules.dep"].data; got != want {
		t.Errorf("modules.dep:\n%s\nwant\n%s", got, want)
	}
	if got, want := files["lib/modules/6.99/modules.alias"].data, "alias net-pf-99 "; strings.Count(got, want) != 4 {
		t.Errorf("modules.alias:\n%s", got)
	}
	if files["lib/modules/6.99/top_level.ko"].data != string(fakeModule("6.99", "mid_a", "mid_b")) {
		t.Error("the module is not what it was")
	}
}

func TestModulesThatAreNoneAreRefused(t *testing.T) {
	for name, files := range map[string]map[string][]byte{
		"no kernel modules": {"readme": nil},
		"bad magic number":  {"a.ko": []byte("not an ELF file at all")},
		"two kernels":       {"a.ko": fakeModule("6.1", "b"), "b.ko": fakeModule("6.2")},
		"names no kernel":   {"a.ko": fakeModule("../../etc")},
		"unexpected EOF":    {"a.ko.gz": []byte("plain")},
	} {
		tree, err := openModules(writeTree(t, files), "")
		if err == nil {
			var modules []module
			if modules, err = tree.closure([]string{"a"}); err == nil {
				err = (&initramfs{modules: modules}).writeModules(newCPIOWriter(&bytes.Buffer{}))
			}
		}
		if err == nil {
			t.Errorf("%s: no error", name)
		} else if !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFilesStayBelowTheGuestsRoot(t *testing.T) {
	for _, path := range []string{"relative", "/../up", "/a/../../b"} {
		if checkFile(File{Path: path}) == nil {
			t.Errorf("%s is accepted", path)
		}
	}
	if err := checkFile(File{Path: "/root/a..b"}); err != nil {
		t.Error(err)
	}
}
