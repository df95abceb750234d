package vmtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// QEMU is a QEMU that has vfio-user-pci.
type QEMU struct {
	// Command starts it, with the arguments that every use needs.
	Command []string
	// Env is added to the environment.
	Env []string
}

// Kernel is what a guest boots.
type Kernel struct {
	// Image is the kernel, a bzImage.
	Image string
	// Modules is a folder with its modules: an installed /lib/modules/RELEASE or a build tree. "" if all
	// that is needed is built in.
	Modules string
}

// Userland is where a guest's programs come from.
type Userland struct {
	// Root is the root of unpacked packages.
	Root string
	// More are further roots. What Root lacks is looked for there.
	More []string
	// Busybox is a static busybox.
	Busybox string
}

// QEMU finds a QEMU: the one installed if it is new enough, else the cache's.
func (c Cache) QEMU(ctx context.Context) (QEMU, error) {
	if path, err := exec.LookPath("qemu-system-x86_64"); err == nil {
		if q, err := (QEMU{Command: []string{path}}).check(ctx); err == nil {
			return q, nil
		}
	}
	dir, ok := c.complete(partQEMU)
	if !ok {
		return QEMU{}, fmt.Errorf("QEMU 10.1 or later: %w", ErrMissing)
	}
	q, err := cachedQEMU(dir)
	if err != nil {
		return QEMU{}, err
	}
	return q.check(ctx)
}

// UseQEMU takes a QEMU by the path of its program.
func UseQEMU(ctx context.Context, path string) (QEMU, error) {
	return QEMU{Command: []string{path}}.check(ctx)
}

// cachedQEMU starts an unpacked QEMU through its own dynamic linker: the host's C library may be older.
func cachedQEMU(root string) (QEMU, error) {
	libs, err := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu"))
	if err != nil || len(libs) != 1 {
		return QEMU{}, fmt.Errorf("QEMU below %s: %d library folders: %w", root, len(libs), err)
	}
	loaders, err := filepath.Glob(filepath.Join(libs[0], "ld-linux-*.so.*"))
	if err != nil || len(loaders) != 1 {
		return QEMU{}, fmt.Errorf("QEMU below %s: %d dynamic linkers: %w", root, len(loaders), err)
	}
	return QEMU{
		Command: []string{
			loaders[0], "--library-path", libs[0], filepath.Join(root, "usr/bin/qemu-system-x86_64"),
			"-L", filepath.Join(root, "usr/share/qemu"), "-L", filepath.Join(root, "usr/share/seabios"),
		},
		// Another QEMU's modules would be loaded, and would abort.
		Env: []string{"QEMU_MODULE_DIR=" + filepath.Join(libs[0], "qemu")},
	}, nil
}

// errNoVFIOUser: QEMU before 10.1, or built without it.
var errNoVFIOUser = errors.New("this QEMU has no vfio-user-pci device; it needs version 10.1 or later")

func (q QEMU) check(ctx context.Context) (QEMU, error) {
	out, err := q.command(ctx, "-device", "vfio-user-pci,help").CombinedOutput()
	text := string(out)
	switch {
	case err != nil && (strings.Contains(text, "' not found") || strings.Contains(text, "not a valid device model name")):
		return QEMU{}, fmt.Errorf("%s: %w", q.Command[0], errNoVFIOUser)
	case err != nil:
		return QEMU{}, fmt.Errorf("%s: %w: %s", q.Command[0], err, lastLine(out))
	}
	return q, nil
}

func (q QEMU) command(ctx context.Context, args ...string) *exec.Cmd {
	all := append(append([]string(nil), q.Command[1:]...), args...)
	cmd := exec.CommandContext(ctx, q.Command[0], all...)
	cmd.Env = append(os.Environ(), q.Env...)
	return cmd
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

// Kernel finds a fetched kernel by its name in KernelSources; "" is the first.
func (c Cache) Kernel(name string) (Kernel, error) {
	if name == "" {
		name = KernelSources()[0].Name
	}
	source, err := kernelSource(name)
	if err != nil {
		return Kernel{}, err
	}
	dir, ok := c.complete(source.part())
	if !ok {
		return Kernel{}, fmt.Errorf("kernel %s: %w", name, ErrMissing)
	}
	images, err := filepath.Glob(filepath.Join(dir, "boot/vmlinuz-*"))
	if err == nil && len(images) == 0 {
		images, err = filepath.Glob(filepath.Join(dir, "usr/lib/modules/*/vmlinuz"))
	}
	if err != nil || len(images) != 1 {
		return Kernel{}, fmt.Errorf("kernel %s: %d images below %s: %w", name, len(images), dir, err)
	}
	for _, folder := range []string{"usr/lib/modules", "lib/modules"} {
		if trees, _ := filepath.Glob(filepath.Join(dir, folder, "*")); len(trees) == 1 {
			return Kernel{Image: images[0], Modules: trees[0]}, nil
		}
	}
	return Kernel{}, fmt.Errorf("kernel %s: no modules below %s", name, dir)
}

// Userland finds the guest's programs: the cache's, else a static busybox that is installed.
func (c Cache) Userland() (Userland, error) {
	if dir, ok := c.complete(partUserland); ok {
		busybox, ok := findProgram([]string{dir}, "busybox")
		if !ok {
			return Userland{}, fmt.Errorf("no busybox below %s", dir)
		}
		u := Userland{Root: dir, Busybox: busybox}
		if dir, ok := c.complete(partTraffic); ok {
			u.More = append(u.More, dir)
		}
		return u, nil
	}
	if path, err := exec.LookPath("busybox"); err == nil && static(path) {
		return Userland{Busybox: path}, nil
	}
	return Userland{}, fmt.Errorf("a static busybox for the guest: %w", ErrMissing)
}

// Has tells whether a program is below one of the roots.
func (u Userland) Has(program string) bool {
	_, ok := findProgram(u.roots(), program)
	return ok
}

// roots are all of them, in the order in which they are looked through.
func (u Userland) roots() []string {
	if u.Root == "" {
		return u.More
	}
	return append([]string{u.Root}, u.More...)
}

// RDMACore finds the root of Debian's rdma-core, which only tests use; ok is false if it has not been fetched.
func (c Cache) RDMACore() (root string, ok bool) { return c.complete(partRDMACore) }

// Ready reports whether a guest can be booted without fetching anything: nil, or an error that says what
// is missing. kernel is a name in KernelSources, "" the first.
func (c Cache) Ready(ctx context.Context, kernel string) error {
	if _, err := c.QEMU(ctx); err != nil {
		return err
	}
	if _, err := c.Kernel(kernel); err != nil {
		return err
	}
	_, err := c.Userland()
	return err
}
