package vmtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Parts of the cache that only the kernel's own tests need.
const (
	partSelftests = "selftests"   // programs that they run
	partSource    = "source-6.12" // the tests
)

// sourcePackage is where Debian has them.
const sourcePackage = "linux-source-6.12"

// sourceFolders are what is kept of a kernel's source: the tests, and how they speak netlink.
func sourceFolders() []string {
	return []string{"tools/testing/selftests", "tools/net/ynl", "Documentation/netlink"}
}

func selftestParts() []part {
	return []part{
		{
			name: partSelftests, arch: "amd64", suites: []string{baseSuite},
			get: func(ctx context.Context, a *aptWorld) error {
				return a.closure(ctx, "", "bash", "coreutils", "grep", "sed", "gawk", "procps", "util-linux", "iproute2", "ethtool",
					"iputils-ping", "iputils-arping", "socat", "iperf3", "tcpdump", "jq", "netsniff-ng", "python3-yaml", "xdp-tools", "linux-libc-dev")
			},
		},
		{
			name: partSource, arch: "amd64", suites: []string{baseSuite},
			get:    func(ctx context.Context, a *aptWorld) error { return a.download(ctx, sourcePackage) },
			finish: unpackSource,
		},
	}
}

// unpackSource replaces the archive of a kernel's source by the folders that are wanted.
func unpackSource(ctx context.Context, tree string) error {
	archive := filepath.Join(tree, "usr", "src", sourcePackage+".tar.xz")
	args := []string{"-C", tree, "--strip-components=1", "-xJf", archive}
	for _, f := range sourceFolders() {
		args = append(args, sourcePackage+"/"+f)
	}
	if out, err := exec.CommandContext(ctx, "tar", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("tar %s: %w: %s", archive, err, lastLine(out))
	}
	return os.RemoveAll(filepath.Join(tree, "usr"))
}

// Selftests finds the root of what the kernel's tests run in, and their source.
func (c Cache) Selftests() (root, source string, err error) {
	root, ok := c.complete(partSelftests)
	if source, ok2 := c.complete(partSource); ok && ok2 {
		return root, source, nil
	}
	return "", "", fmt.Errorf("the kernel's own tests: %w", ErrMissing)
}

// SelftestTrees are the folders that a guest needs to run the kernel's tests, which it finds at /src.
func (c Cache) SelftestTrees() ([]Tree, error) {
	root, source, err := c.Selftests()
	if err != nil {
		return nil, err
	}
	return []Tree{
		{Root: root, Path: "/", Leave: []string{
			// What the guest makes itself.
			"bin", "sbin", "lib", "boot", "dev", "proc", "sys", "run", "tmp", "var", "root", "home", stampName,
			// What no program looks for.
			"usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/perl", "usr/share/zoneinfo",
			"usr/lib/x86_64-linux-gnu/gconv", "usr/lib/x86_64-linux-gnu/perl-base",
		}},
		{Root: filepath.Join(source, "tools/net"), Path: "/src/tools/net"},
		{Root: filepath.Join(source, "Documentation"), Path: "/src/Documentation"},
		{Root: filepath.Join(source, "tools/testing/selftests/kselftest"), Path: "/src/tools/testing/selftests/kselftest"},
		{Root: filepath.Join(source, "tools/testing/selftests/net"), Path: "/src/tools/testing/selftests/net"},
		{Root: filepath.Join(source, "tools/testing/selftests/drivers/net"), Path: "/src/tools/testing/selftests/drivers/net", Leave: []string{"mlxsw", "netdevsim"}},
	}, nil
}

// BuildChecksumTest compiles net/lib/csum.c, the one program of the card's tests that is not a script.
func (c Cache) BuildChecksumTest(ctx context.Context, to string) error {
	_, source, err := c.Selftests()
	if err != nil {
		return err
	}
	tests := filepath.Join(source, "tools/testing/selftests")
	cmd := exec.CommandContext(ctx, "cc", "-static", "-O2", "-I", tests, "-o", to, filepath.Join(tests, "net/lib/csum.c"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("compile net/lib/csum.c (it takes a C compiler and a static C library): %w", err), errors.New(lastLine(out)))
	}
	return nil
}
