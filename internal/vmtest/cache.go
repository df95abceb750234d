package vmtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Cache is the folder of what was fetched.
type Cache struct {
	// Dir is the folder; it need not exist.
	Dir string
}

// FetchCommand is what a user types to fill the cache.
const FetchCommand = "cxkit vm --fetch"

// ErrMissing: something is not in the cache and was not given.
var ErrMissing = errors.New("not fetched yet: " + FetchCommand + " fetches QEMU and Debian kernels into your cache folder")

// DefaultCache is cxkit/vm in the user's cache folder.
func DefaultCache() (Cache, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return Cache{}, fmt.Errorf("cache folder: %w; set XDG_CACHE_HOME", err)
	}
	return Cache{Dir: filepath.Join(dir, "cxkit", "vm")}, nil
}

// Names of the cache's parts, which are folders.
const (
	partQEMU     = "qemu"
	partUserland = "userland"
	partRDMACore = "rdma-core"
	partTraffic  = "iperf3"
)

// KernelSource is a kernel that Fetch can get.
type KernelSource struct {
	// Name is what users call it: its version.
	Name string
	// Suite and Package say where Debian has it.
	Suite, Package string
}

// KernelSources are the kernels that Fetch can get; the first one is the default.
func KernelSources() []KernelSource {
	return []KernelSource{
		{Name: "6.12", Suite: "trixie", Package: "linux-image-cloud-amd64"},
		{Name: "6.1", Suite: "bookworm", Package: "linux-image-cloud-amd64"},
		// The cloud flavour has no driver for most of the network cards that QEMU has.
		{Name: "6.12-full", Suite: "trixie", Package: "linux-image-amd64"},
	}
}

// kernelSource finds a source by name.
func kernelSource(name string) (KernelSource, error) {
	names := make([]string, 0, 3)
	for _, k := range KernelSources() {
		if k.Name == name {
			return k, nil
		}
		names = append(names, k.Name)
	}
	return KernelSource{}, fmt.Errorf("kernel %q: cxkit can fetch %v", name, names)
}

// part is the folder of a kernel in the cache.
func (k KernelSource) part() string { return "kernel-" + k.Name }

// stamp says what a part holds. It is written when the part is complete.
type stamp struct {
	Layout   int      `json:"layout"`
	Packages []string `json:"packages"`
}

// layout changes when a part fetched by an older version can't be used any more.
const layout = 1

const stampName = ".complete.json"

// complete returns a part's folder if it was fetched completely.
func (c Cache) complete(part string) (dir string, ok bool) {
	dir = filepath.Join(c.Dir, part)
	b, err := os.ReadFile(filepath.Join(dir, stampName))
	if err != nil {
		return "", false
	}
	var s stamp
	return dir, json.Unmarshal(b, &s) == nil && s.Layout == layout
}

func writeStamp(dir string, packages []string) error {
	b, err := json.MarshalIndent(stamp{Layout: layout, Packages: packages}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, stampName), append(b, '\n'), 0o644)
}
