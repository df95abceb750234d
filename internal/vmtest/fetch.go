package vmtest

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// FetchOptions say what to fetch.
type FetchOptions struct {
	// Kernels are names of KernelSources; none means the first of them.
	Kernels []string
	// Selftests adds the kernel's own tests and what they need.
	Selftests bool
	// Sources also fetches what BuildModule needs for these kernels.
	Sources bool
	// Mirror is a Debian mirror's URI; "" means the one that the system's apt uses.
	Mirror string
	// Log gets what apt prints; nil throws it away.
	Log io.Writer
}

// Suites that QEMU and the guest's programs come from. trixie's own QEMU lacks vfio-user-pci.
const (
	baseSuite = "trixie"
	qemuSuite = "trixie-backports"
)

// Fetch brings QEMU, a guest's programs and kernels into the cache. What is there already is not fetched
// again. Several processes may call it at once: one fetches, the others wait.
func (c Cache) Fetch(ctx context.Context, o FetchOptions) error {
	if o.Log == nil {
		o.Log = io.Discard
	}
	if len(o.Kernels) == 0 {
		o.Kernels = []string{KernelSources()[0].Name}
	}
	parts, err := c.missing(o)
	if err != nil || len(parts) == 0 {
		return err
	}
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if parts, err = c.missing(o); err != nil || len(parts) == 0 {
		return err // somebody else fetched them meanwhile
	}
	if o.Mirror == "" {
		if o.Mirror, err = systemMirror(ctx); err != nil {
			return err
		}
	}
	for _, p := range parts {
		if err := c.fetchPart(ctx, p, o); err != nil {
			return fmt.Errorf("fetch %s: %w", p.name, err)
		}
	}
	return nil
}

// part is something to fetch into one folder.
type part struct {
	name   string
	arch   string // "" is this machine's
	suites []string
	get    func(ctx context.Context, a *aptWorld) error
	// finish makes of the unpacked packages what is kept; nil keeps them as they are.
	finish func(ctx context.Context, tree string) error
}

// missing lists the parts that are not complete.
func (c Cache) missing(o FetchOptions) ([]part, error) {
	all := []part{
		{
			name: partQEMU, suites: []string{baseSuite, qemuSuite},
			get: func(ctx context.Context, a *aptWorld) error {
				return a.closure(ctx, qemuSuite, "qemu-system-x86")
			},
		},
		{
			name: partUserland, arch: "amd64", suites: []string{baseSuite},
			get: func(ctx context.Context, a *aptWorld) error {
				return a.closure(ctx, "", "busybox-static", "bash", "ethtool", "iproute2")
			},
		},
		{
			name: partRDMACore, arch: "amd64", suites: []string{baseSuite},
			get: func(ctx context.Context, a *aptWorld) error {
				return a.download(ctx, "libibverbs-dev", "libibverbs1", "ibverbs-providers", "libnl-3-200", "libnl-route-3-200")
			},
		},
		{
			name: partTraffic, arch: "amd64", suites: []string{baseSuite},
			get: func(ctx context.Context, a *aptWorld) error { return a.closure(ctx, "", "iperf3") },
		},
	}
	if o.Selftests {
		all = append(all, selftestParts()...)
	}
	for _, name := range o.Kernels {
		k, err := kernelSource(name)
		if err != nil {
			return nil, err
		}
		all = append(all, part{name: k.part(), arch: "amd64", suites: []string{k.Suite}, get: k.get})
		if o.Sources {
			all = append(all, c.sources(k))
		}
	}
	var missing []part
	for _, p := range all {
		if _, ok := c.complete(p.name); !ok {
			missing = append(missing, p)
		}
	}
	return missing, nil
}

// get downloads the package that the kernel's meta package stands for.
func (k KernelSource) get(ctx context.Context, a *aptWorld) error {
	names, err := a.depends(ctx, k.Package)
	if err != nil {
		return err
	}
	for _, image := range names {
		release, ok := strings.CutPrefix(image, "linux-image-")
		if !ok {
			continue
		}
		// Newer kernels are split in three.
		packages := []string{image}
		for _, p := range []string{"linux-binary-" + release, "linux-modules-" + release} {
			if a.has(ctx, p) {
				packages = append(packages, p)
			}
		}
		return a.download(ctx, packages...)
	}
	return fmt.Errorf("%s of %s names no kernel, but %v", k.Package, k.Suite, names)
}

// fetchPart fetches a part beside its place and moves it there when it is complete.
func (c Cache) fetchPart(ctx context.Context, p part, o FetchOptions) (err error) {
	if p.arch == "" {
		out, err := exec.CommandContext(ctx, "dpkg", "--print-architecture").Output()
		if err != nil {
			return fmt.Errorf("dpkg --print-architecture: %w", err)
		}
		p.arch = strings.TrimSpace(string(out))
	}
	work, err := os.MkdirTemp(c.Dir, p.name+".*.part")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	a := &aptWorld{dir: filepath.Join(work, "apt"), mirror: o.Mirror, arch: p.arch, suites: p.suites, log: o.Log}
	if err := a.open(ctx); err != nil {
		return err
	}
	if err := p.get(ctx, a); err != nil {
		return err
	}
	tree := filepath.Join(work, "tree")
	packages, err := a.unpack(ctx, tree)
	if err != nil {
		return err
	}
	if p.finish != nil {
		if err := p.finish(ctx, tree); err != nil {
			return err
		}
	}
	if err := writeStamp(tree, packages); err != nil {
		return err
	}
	place := filepath.Join(c.Dir, p.name)
	if err := os.RemoveAll(place); err != nil {
		return err
	}
	return os.Rename(tree, place)
}
