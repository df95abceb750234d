package vmtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// sourcesPart is the folder of what changes a kernel's mlx5_core: a root file system with the compiler that
// Debian built the kernel with, the kernel's headers, and the driver's source.
func (k KernelSource) sourcesPart() string { return "sources-" + k.Name }

// Folders in that root file system.
const (
	sourceFolder = "cxkit/source" // the source, as fetched
	buildFolder  = "cxkit/build"  // copies that are changed and compiled
	mellanox     = "drivers/net/ethernet/mellanox"
	coreFolder   = mellanox + "/mlx5/core"
)

// buildTools are what a build needs beside the compiler.
func buildTools() []string {
	return []string{"make", "bash", "coreutils", "dash", "sed", "grep", "mawk", "findutils", "patch", "xz-utils"}
}

// sources is the part for one kernel. What it fetches is of the very version that the cache's kernel has.
func (c Cache) sources(k KernelSource) part {
	return part{
		name: k.sourcesPart(), arch: "amd64", suites: []string{k.Suite},
		get:    func(ctx context.Context, a *aptWorld) error { return c.getSources(ctx, a, k) },
		finish: func(ctx context.Context, tree string) error { return finishSources(ctx, tree, k) },
	}
}

func (c Cache) getSources(ctx context.Context, a *aptWorld, k KernelSource) error {
	release, version, err := c.kernelVersion(k)
	if err != nil {
		return err
	}
	headers := "linux-headers-" + release
	names, err := a.depends(ctx, headers)
	if err != nil {
		return fmt.Errorf("%w: the mirror has no headers for kernel %s any more; remove %s and fetch again",
			err, release, filepath.Join(c.Dir, k.part()))
	}
	exact := []string{headers + "=" + version, k.sourcePackage() + "=" + version}
	tools := buildTools()
	for _, n := range names {
		switch {
		case strings.HasPrefix(n, "linux-headers-"):
			exact = append(exact, n+"="+version)
		case strings.HasPrefix(n, "linux-kbuild-"), strings.HasPrefix(n, "linux-compiler-"), strings.HasPrefix(n, "gcc-"):
			tools = append(tools, n)
		}
	}
	if err := a.closure(ctx, "", tools...); err != nil {
		return err
	}
	if err := a.download(ctx, exact...); err != nil {
		return fmt.Errorf("%w; if the mirror has a newer kernel than %s, remove %s and fetch again",
			err, version, filepath.Join(c.Dir, k.part()))
	}
	return nil
}

// sourcePackage is the package with the kernel's source.
func (k KernelSource) sourcePackage() string {
	name, _, _ := strings.Cut(k.Name, "-")
	return "linux-source-" + name
}

// kernelVersion is the release of a fetched kernel, which its modules name, and the version of its package.
func (c Cache) kernelVersion(k KernelSource) (release, version string, err error) {
	kernel, err := c.Kernel(k.Name)
	if err != nil {
		return "", "", err
	}
	release = filepath.Base(kernel.Modules)
	dir, _ := c.complete(k.part())
	b, err := os.ReadFile(filepath.Join(dir, stampName))
	if err != nil {
		return "", "", err
	}
	var s stamp
	if err := json.Unmarshal(b, &s); err != nil {
		return "", "", err
	}
	if version = packageVersion(s.Packages, release); version == "" {
		return "", "", fmt.Errorf("kernel %s: none of its packages %v is named after it", release, s.Packages)
	}
	return release, version, nil
}

// packageVersion finds the version in names of package files, NAME_VERSION_ARCHITECTURE, of which one ends in
// the kernel's release. apt writes colons of a version as %3a.
func packageVersion(names []string, release string) string {
	for _, n := range names {
		f := strings.Split(n, "_")
		if len(f) == 3 && strings.HasPrefix(f[0], "linux-") && strings.HasSuffix(f[0], "-"+release) {
			return strings.ReplaceAll(f[1], "%3a", ":")
		}
	}
	return ""
}

// finishSources makes a root file system of unpacked packages and takes the driver out of the kernel's source.
func finishSources(ctx context.Context, tree string, k KernelSource) error {
	if err := mergeUsr(tree); err != nil {
		return err
	}
	for _, d := range []string{"dev", "tmp", sourceFolder, buildFolder} {
		if err := os.MkdirAll(filepath.Join(tree, d), 0o755); err != nil {
			return err
		}
	}
	if err := os.Symlink("mawk", filepath.Join(tree, "usr/bin/awk")); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	archive := "/usr/src/" + k.sourcePackage() + ".tar.xz"
	xz := buildRoot{dir: tree}.command(ctx, "exec xz -dc "+archive)
	tar := exec.CommandContext(ctx, "tar", "-x", "--strip-components=1", "--no-same-owner", "-C", filepath.Join(tree, sourceFolder),
		k.sourcePackage()+"/"+mellanox+"/mlx5", k.sourcePackage()+"/"+mellanox+"/mlxfw")
	if err := pipe(xz, tar); err != nil {
		return fmt.Errorf("unpack %s: %w", archive, err)
	}
	return os.Remove(filepath.Join(tree, archive))
}

// pipe runs from with its output going to to.
func pipe(from, to *exec.Cmd) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	var complaint strings.Builder
	from.Stdout, to.Stdin = w, r
	to.Stderr = &complaint
	err = to.Start()
	r.Close()
	if err != nil {
		w.Close()
		return err
	}
	err = from.Run()
	w.Close()
	if err = errors.Join(err, to.Wait()); err != nil {
		return fmt.Errorf("%w %s", err, strings.TrimSpace(complaint.String()))
	}
	return nil
}

// mergeUsr makes bin, sbin, lib and lib64 links into usr, as Debian's installer does. Packages before trixie
// still hold files in both.
func mergeUsr(tree string) error {
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		from, to := filepath.Join(tree, d), filepath.Join(tree, "usr", d)
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		info, err := os.Lstat(from)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return err
		case info.Mode()&os.ModeSymlink != 0:
			continue
		default:
			if err := moveInto(from, to); err != nil {
				return err
			}
		}
		if err := os.Symlink("usr/"+d, from); err != nil {
			return err
		}
	}
	return nil
}

// moveInto moves what a folder holds into another one, and removes it.
func moveInto(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		old, place := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		if info, err := os.Lstat(place); err == nil && info.IsDir() && e.IsDir() {
			if err := moveInto(old, place); err != nil {
				return err
			}
			continue
		}
		if err := os.Rename(old, place); err != nil {
			return err
		}
	}
	return os.Remove(from)
}

// buildRoot is a root file system to build in.
type buildRoot struct {
	dir string
	log io.Writer // gets what programs print; may be nil
}

// command is a shell text that runs with the folder as its root. A user who isn't root, or may not make
// devices, gets a user namespace.
func (b buildRoot) command(ctx context.Context, script string) *exec.Cmd {
	args := []string{"chroot", b.dir, "/bin/sh", "-ec", script}
	if os.Geteuid() != 0 || !hasNull(ctx, b.dir) {
		args = []string{"unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-ec",
			`mount --rbind /dev "$0/dev"; exec chroot "$0" /bin/sh -ec "$1"`, b.dir, script}
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "HOME=/"}
	return cmd
}

// hasNull tells whether a root file system has a /dev/null, after trying to make one.
func hasNull(ctx context.Context, dir string) bool {
	null := filepath.Join(dir, "dev/null")
	if _, err := os.Lstat(null); err == nil {
		return true
	}
	return exec.CommandContext(ctx, "mknod", "-m", "666", null, "c", "1", "3").Run() == nil
}

// run runs a shell text; an error has the first complaint of what it printed.
func (b buildRoot) run(ctx context.Context, script string) error {
	cmd := b.command(ctx, script)
	var all strings.Builder
	out := io.Writer(&all)
	if b.log != nil {
		out = io.MultiWriter(&all, b.log)
	}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%w: %s", err, complaint(all.String()))
	}
	return nil
}

// complaint is the first error that a program printed, or the end of what it printed.
func complaint(text string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, "error: ") || strings.Contains(line, "FAILED at") {
			return strings.TrimSpace(line)
		}
	}
	return lastLine([]byte(text))
}
