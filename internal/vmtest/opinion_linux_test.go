//go:build linux

package vmtest

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"cxkit/device/wire"
)

// A second opinion on the card: rdma-core's driver for mlx5 over VFIO brings it up, not ours.

// opinionFrames is how many frames it sends: more than its ring has.
const opinionFrames = 40

// findOpinion builds testdata/secondopinion.c against Debian's rdma-core and returns it and the libraries that it
// needs, or says what is missing.
func findOpinion(t testing.TB) ([]File, error) {
	t.Helper()
	cache, err := DefaultCache()
	if err != nil {
		return nil, err
	}
	root, ok := cache.RDMACore()
	if !ok && os.Getenv("CXKIT_VM") == requireGuests { // caches of before have none
		if err := cache.Fetch(t.Context(), FetchOptions{}); err != nil {
			return nil, err
		}
		root, ok = cache.RDMACore()
	}
	if !ok {
		return nil, fmt.Errorf("rdma-core: %w", ErrMissing)
	}
	if runtime.GOARCH != "amd64" {
		return nil, errors.New("the guest's second driver is built on amd64 only")
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		return nil, fmt.Errorf("the guest's second driver needs a C compiler: %w", err)
	}
	libs := filepath.Join(root, guestLibraries)
	program := filepath.Join(t.TempDir(), "secondopinion")
	out, err := exec.CommandContext(t.Context(), gcc, "-O2", "-Wall", "-Wextra", "-Werror", "-std=gnu11", "-I", filepath.Join(root, "usr/include"),
		"-o", program, "testdata/secondopinion.c", filepath.Join(libs, "libmlx5.so.1"), filepath.Join(libs, "libibverbs.so.1"),
		"-Wl,--allow-shlib-undefined").CombinedOutput()
	if err != nil {
		t.Fatalf("build the guest's second driver: %v\n%s", err, out)
	}
	files := []File{{Path: "/usr/bin/secondopinion", Program: true}}
	if files[0].Data, err = os.ReadFile(program); err != nil {
		return nil, err
	}
	// What rdma-core does not have, the C library, the guest has.
	for queue, seen := []string{program}, map[string]bool{}; len(queue) > 0; queue = queue[1:] {
		f, err := elf.Open(queue[0])
		if err != nil {
			return nil, err
		}
		needed, err := f.ImportedLibraries()
		f.Close()
		if err != nil {
			return nil, err
		}
		for _, lib := range needed {
			at := filepath.Join(libs, lib)
			data, err := os.ReadFile(at)
			if seen[lib] || errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			seen[lib] = true
			queue = append(queue, at)
			files = append(files, File{Path: "/" + guestLibraries + "/" + lib, Data: data, Program: true})
		}
	}
	return files, nil
}

// listens takes the frames that the other driver has sent and compares them.
func (h *vfioHost) listens() error {
	h.mu.Lock()
	far := h.far
	h.mu.Unlock()
	if far == nil {
		return errors.New("nothing is plugged in")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for i := range opinionFrames {
		got, err := far.Recv(ctx)
		if err != nil {
			return fmt.Errorf("frame %d: %w", i, err)
		}
		want := make([]byte, 60)
		copy(want, "\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x02\x88\xb6second opinion")
		want[59] = byte(i)
		if !bytes.Equal(got, want) {
			return fmt.Errorf("frame %d: %x, want %x", i, got, want)
		}
	}
	return nil
}

// plug plugs a new cable into the ConnectX.
func (h *vfioHost) plug(lossy bool) error {
	h.unplug()
	near, far := wire.NewCable(wire.CableOptions{Lossy: lossy})
	if _, err := h.card.Plug(0, near); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.near, h.far = near, far
	return nil
}

// judgeOpinion is the test of what the guest's script printed of it.
func judgeOpinion(t *testing.T, missing error, output string) {
	switch {
	case missing != nil && os.Getenv("CXKIT_VM") == requireGuests:
		t.Fatal(missing)
	case missing != nil:
		t.Skip(missing)
	}
	for _, want := range []string{"second opinion: ok QP\n", "second opinion: agrees\n"} {
		if !strings.Contains(output, want) {
			t.Errorf("no %q", want)
		}
	}
}
