package vmtest

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestATreeComesWithItsLinksAndWithoutWhatIsLeft(t *testing.T) {
	root := t.TempDir()
	for name, mode := range map[string]os.FileMode{"bin/tool": 0o755, "etc/hosts": 0o644, "share/doc/tool/copyright": 0o644, "share/doc.txt": 0o644} {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(filepath.Base(name)), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("tool", filepath.Join(root, "bin/alias")); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	c := newCPIOWriter(&b)
	if err := (Tree{Root: root, Path: "/usr", Leave: []string{"share/doc", "etc/hosts"}}).write(c); err != nil {
		t.Fatal(err)
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	got := readCPIO(t, b.Bytes())
	want := map[string]cpioEntry{
		"usr": {mode: modeDir}, "usr/bin": {mode: modeDir}, "usr/etc": {mode: modeDir}, "usr/share": {mode: modeDir},
		"usr/bin/tool": {mode: modeProgram, data: "tool"}, "usr/bin/alias": {mode: modeLink, data: "tool"},
		"usr/share/doc.txt": {mode: modeFile, data: "doc.txt"},
	}
	for name, e := range want {
		if got[name] != e {
			t.Errorf("%s: %+v, want %+v", name, got[name], e)
		}
	}
	if len(got) != len(want) {
		t.Errorf("entries %v", got)
	}
}
