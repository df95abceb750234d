package vmtest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestSedScriptsNameTheirFiles(t *testing.T) {
	files, err := sedFiles([]byte("# edits cmd.c\n# edits lib/eq.h\n# why\n# edits no.c\ns/a/b/\n"))
	if err != nil || !slices.Equal(files, []string{"cmd.c", "lib/eq.h"}) {
		t.Errorf("got %v, %v", files, err)
	}
	for _, bad := range []string{"", "s/a/b/\n", "# edits ../main.c\n", "# edits /etc/passwd\n", "# edits a'b.c\n"} {
		if files, err := sedFiles([]byte(bad)); err == nil {
			t.Errorf("%q: no error, but %v", bad, files)
		}
	}
}

func TestSourcesAreOfTheKernelsVersion(t *testing.T) {
	names := []string{"linux-base_4.12_all", "linux-image-6.1.0-50-cloud-amd64_6.1.176-1_amd64"}
	if got := packageVersion(names, "6.1.0-50-cloud-amd64"); got != "6.1.176-1" {
		t.Errorf("got %q, want 6.1.176-1", got)
	}
	if got := packageVersion(names, "6.1.0-50-amd64"); got != "" {
		t.Errorf("got %q for a kernel that is not there", got)
	}
	if got := (KernelSource{Name: "6.12-full"}).sourcePackage(); got != "linux-source-6.12" {
		t.Errorf("got %q, want linux-source-6.12", got)
	}
}

func TestFoldersOutsideUsrAreMerged(t *testing.T) {
	tree := t.TempDir()
	for name, text := range map[string]string{"bin/sh": "a", "usr/bin/awk": "b", "lib/x86/libc": "c", "usr/lib/x86/libd": "d"} {
		path := filepath.Join(tree, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // a merged tree stays as it is
		if err := mergeUsr(tree); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{"bin/sh": "a", "usr/bin/sh": "a", "bin/awk": "b", "lib/x86/libc": "c", "usr/lib/x86/libc": "c", "lib/x86/libd": "d"} {
			if got, err := os.ReadFile(filepath.Join(tree, name)); string(got) != want {
				t.Errorf("%s holds %q, want %q (%v)", name, got, want, err)
			}
		}
	}
}

func TestChangedFilesAreFound(t *testing.T) {
	before := map[string][32]byte{"a": {1}, "b": {2}, "gone": {3}}
	after := map[string][32]byte{"a": {1}, "b": {9}, "new": {4}}
	if got := differing(before, after); !slices.Equal(got, []string{"b", "gone", "new"}) {
		t.Errorf("got %v", got)
	}
}

func TestBuildsWithoutSourcesSayWhatIsMissing(t *testing.T) {
	c := Cache{Dir: t.TempDir()}
	if _, err := c.BuildModule(t.Context(), "6.12", nil, nil); !errors.Is(err, ErrMissing) {
		t.Errorf("got %v, want %v", err, ErrMissing)
	}
	if _, err := c.BuildModule(t.Context(), "5.10", nil, nil); err == nil {
		t.Error("5.10: no error")
	}
}
