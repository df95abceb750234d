package vmtest

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMirrorIsTheSystemsOwn(t *testing.T) {
	for targets, want := range map[string]string{
		"": "",
		"http://example.org/tools nodistro main\nhttp://mirror.example/debian/ bookworm main\n":     "http://mirror.example/debian/",
		"http://s.example/debian-security/ bookworm-security main\n":                                "",
		"https://m.example/debian/ trixie contrib\nhttps://m.example/debian/ stable-backports main": "https://m.example/debian/",
		"http://u.example/ubuntu/ noble main\n":                                                     "",
	} {
		if got := pickMirror(targets); got != want {
			t.Errorf("%q: %q, want %q", targets, got, want)
		}
	}
}

func TestAPartIsThereOnceItIsComplete(t *testing.T) {
	c := Cache{Dir: t.TempDir()}
	if _, ok := c.complete("qemu"); ok {
		t.Error("a folder that is not there is complete")
	}
	dir := filepath.Join(c.Dir, "qemu")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.complete("qemu"); ok {
		t.Error("a folder without a stamp is complete")
	}
	if err := writeStamp(dir, []string{"qemu_1"}); err != nil {
		t.Fatal(err)
	}
	if got, ok := c.complete("qemu"); !ok || got != dir {
		t.Errorf("%q %v", got, ok)
	}
	if err := os.WriteFile(filepath.Join(dir, stampName), []byte(`{"layout": 0}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.complete("qemu"); ok {
		t.Error("a folder of another layout is complete")
	}
}

func TestMissingPartsSayHowToFetchThem(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	c := Cache{Dir: t.TempDir()}
	_, err := c.QEMU(t.Context())
	if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), FetchCommand) {
		t.Errorf("QEMU: %v", err)
	}
	if _, err := c.Kernel("6.1"); !errors.Is(err, ErrMissing) {
		t.Errorf("kernel: %v", err)
	}
	if _, err := c.Kernel("2.4"); err == nil || !strings.Contains(err.Error(), "6.12") {
		t.Errorf("unknown kernel: %v", err)
	}
	if _, err := c.Userland(); !errors.Is(err, ErrMissing) {
		t.Errorf("userland: %v", err)
	}
}

func TestFetchElsewhereSaysWhatToDo(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := Cache{Dir: t.TempDir()}.Fetch(t.Context(), FetchOptions{})
	if err == nil || !strings.Contains(err.Error(), "--qemu, --kernel and --modules") {
		t.Errorf("fetch without apt: %v", err)
	}
}

// TestFetchOfflineSaysSo has an apt-get that fails as apt does when the mirror can't be reached.
func TestFetchOfflineSaysSo(t *testing.T) {
	if _, err := os.Stat(keyring); err != nil {
		t.Skip("no Debian: fetch ends before it asks a mirror")
	}
	bin := t.TempDir()
	script := "#!/bin/sh\necho 'E: Failed to fetch http://mirror.example/x  Temporary failure resolving mirror.example'\nexit 100\n"
	for _, name := range []string{"apt-get", "apt-cache", "dpkg-deb"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(bin, "dpkg"), []byte("#!/bin/sh\necho amd64\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":/bin:/usr/bin")
	c := Cache{Dir: t.TempDir()}
	err := c.Fetch(t.Context(), FetchOptions{Mirror: "http://mirror.example/debian"})
	if err == nil || !strings.Contains(err.Error(), "is this machine online?") {
		t.Errorf("fetch offline: %v", err)
	}
	left, _ := filepath.Glob(filepath.Join(c.Dir, "*.part"))
	if len(left) != 0 {
		t.Errorf("%v are left", left)
	}
}

func TestFetchOfWhatIsThereNeedsNobody(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	c := Cache{Dir: t.TempDir()}
	for _, part := range []string{partQEMU, partUserland, partRDMACore, partTraffic, "kernel-6.12"} {
		dir := filepath.Join(c.Dir, part)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := writeStamp(dir, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Fetch(t.Context(), FetchOptions{Kernels: []string{"6.12"}, Log: io.Discard}); err != nil {
		t.Error(err)
	}
}

func TestQEMUWithoutTheDeviceIsRefused(t *testing.T) {
	for _, message := range []string{"Device 'vfio-user-pci' not found", "'vfio-user-pci' is not a valid device model name"} {
		path := filepath.Join(t.TempDir(), "qemu")
		script := "#!/bin/sh\necho \"qemu: -device vfio-user-pci,help: " + message + "\"\nexit 1\n"
		if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := UseQEMU(context.Background(), path); !errors.Is(err, errNoVFIOUser) {
			t.Errorf("%s: %v", message, err)
		}
	}
}
