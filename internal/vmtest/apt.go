package vmtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// aptWorld is an apt that knows some suites of Debian and no installed package. All it reads and writes
// is in its folder; mirror, proxies and keys are the system's. apt verifies what it downloads by the
// suites' signatures.
type aptWorld struct {
	dir    string
	mirror string
	arch   string
	suites []string
	log    io.Writer
}

// keyring holds the keys of Debian's archive; package debian-archive-keyring.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// errNoApt says what to do on systems that are no Debian.
var errNoApt = errors.New("only hosts with apt, dpkg-deb and Debian's archive key can fetch; " +
	"elsewhere install QEMU 10.1 or later and give --qemu, --kernel and --modules")

// systemMirror is the Debian mirror that the system's apt uses.
func systemMirror(ctx context.Context) (string, error) {
	for _, program := range []string{"apt-get", "apt-cache", "dpkg-deb"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", fmt.Errorf("%w (%w)", errNoApt, err)
		}
	}
	if _, err := os.Stat(keyring); err != nil {
		return "", fmt.Errorf("%w (%w)", errNoApt, err)
	}
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets",
		"--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages").Output()
	if err != nil {
		return "", fmt.Errorf("apt-get indextargets: %w", err)
	}
	mirror := pickMirror(string(out))
	if mirror == "" {
		return "", fmt.Errorf("apt's sources on this system name no mirror of Debian: %w", errNoApt)
	}
	return mirror, nil
}

// releases are the names under which a source is Debian's main archive.
var releases = regexp.MustCompile(`^(bullseye|bookworm|trixie|forky|duke|sid|oldoldstable|oldstable|stable|testing|unstable)(-updates|-backports)?$`)

// pickMirror finds the first mirror of Debian in lines of "URI release component".
func pickMirror(targets string) string {
	for line := range strings.Lines(targets) {
		f := strings.Fields(line)
		if len(f) == 3 && f[2] == "main" && releases.MatchString(f[1]) {
			return f[0]
		}
	}
	return ""
}

// options are apt's, as arguments.
func (a *aptWorld) options() []string {
	set := []string{
		"Dir::Etc::sourcelist=" + filepath.Join(a.dir, "sources.list"),
		"Dir::Etc::sourceparts=/dev/null",
		"Dir::Etc::preferences=/dev/null",
		"Dir::Etc::preferencesparts=/dev/null",
		"Dir::State=" + a.dir,
		"Dir::State::lists=" + filepath.Join(a.dir, "lists"),
		"Dir::State::status=" + filepath.Join(a.dir, "status"),
		"Dir::State::extended_states=" + filepath.Join(a.dir, "extended"),
		"Dir::Cache=" + filepath.Join(a.dir, "cache"),
		"Dir::Log=" + a.dir,
		"APT::Architecture=" + a.arch,
		"APT::Architectures=" + a.arch,
		"APT::Install-Recommends=false",
		"APT::Sandbox::User=root",
		"APT::Get::List-Cleanup=false",
		"Acquire::Languages=none",
		"Acquire::Retries=3",
		"Acquire::PDiffs=false",
		"Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
		"Acquire::http::Timeout=30",
		"Acquire::https::Timeout=30",
	}
	args := []string{"-q"}
	for _, s := range set {
		args = append(args, "-o", s)
	}
	return args
}

// archives is where apt puts what it downloads.
func (a *aptWorld) archives() string { return filepath.Join(a.dir, "cache", "archives") }

// open makes the folder and learns what the suites hold.
func (a *aptWorld) open(ctx context.Context) error {
	for _, d := range []string{filepath.Join(a.dir, "lists", "partial"), filepath.Join(a.archives(), "partial")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	var list strings.Builder
	for _, s := range a.suites {
		fmt.Fprintf(&list, "deb [arch=%s signed-by=%s] %s %s main\n", a.arch, keyring, a.mirror, s)
	}
	if err := os.WriteFile(filepath.Join(a.dir, "sources.list"), []byte(list.String()), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(a.dir, "status"), nil, 0o644); err != nil {
		return err
	}
	// A list that can't be had is an error, not a warning: an older one would be used.
	return a.run(ctx, "apt-get", "-o", "APT::Update::Error-Mode=any", "update")
}

// closure downloads packages with all they depend on. suite is preferred if it is not "".
func (a *aptWorld) closure(ctx context.Context, suite string, packages ...string) error {
	args := []string{"-y", "-d"}
	if suite != "" {
		args = append(args, "-t", suite)
	}
	return a.run(ctx, "apt-get", append(append(args, "install"), packages...)...)
}

// download downloads packages alone.
func (a *aptWorld) download(ctx context.Context, packages ...string) error {
	return a.run(ctx, "apt-get", append([]string{"download"}, packages...)...)
}

// depends lists what a package depends on directly.
func (a *aptWorld) depends(ctx context.Context, pkg string) ([]string, error) {
	out, err := a.output(ctx, "apt-cache", "depends", pkg)
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(out) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: "); ok {
			names = append(names, name)
		}
	}
	return names, nil
}

// has tells whether a package exists.
func (a *aptWorld) has(ctx context.Context, pkg string) bool {
	out, err := a.output(ctx, "apt-cache", "pkgnames", pkg)
	return err == nil && slices.Contains(strings.Fields(out), pkg)
}

// unpack unpacks everything that was downloaded into dir and returns the packages' file names.
func (a *aptWorld) unpack(ctx context.Context, dir string) ([]string, error) {
	debs, err := filepath.Glob(filepath.Join(a.archives(), "*.deb"))
	if err != nil {
		return nil, err
	}
	if len(debs) == 0 {
		return nil, fmt.Errorf("apt downloaded nothing into %s", a.archives())
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var names []string
	for _, deb := range debs {
		if err := a.run(ctx, "dpkg-deb", "-x", deb, dir); err != nil {
			return nil, err
		}
		names = append(names, strings.TrimSuffix(filepath.Base(deb), ".deb"))
	}
	return names, nil
}

func (a *aptWorld) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	if program != "dpkg-deb" {
		args = append(a.options(), args...)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = a.archives()
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	return cmd
}

// run runs a program of apt's; its output goes to the log, and its end into the error.
func (a *aptWorld) run(ctx context.Context, program string, args ...string) error {
	cmd := a.command(ctx, program, args...)
	var all bytes.Buffer
	cmd.Stdout = io.MultiWriter(&all, a.log)
	cmd.Stderr = cmd.Stdout
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		what := program + " " + args[0]
		return fmt.Errorf("%s: %w%s", what, err, aptAdvice(all.String()))
	}
	return nil
}

func (a *aptWorld) output(ctx context.Context, program string, args ...string) (string, error) {
	out, err := a.command(ctx, program, args...).Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", program, args[0], err)
	}
	return string(out), nil
}

// aptAdvice is apt's first complaint, and what it usually means.
func aptAdvice(output string) string {
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		complaint, ok := strings.CutPrefix(line, "E: ")
		if !ok {
			complaint, ok = strings.CutPrefix(line, "Err:")
		}
		if !ok {
			continue
		}
		for _, sign := range []string{"resolve", "resolving", "connect", "unreachable", "Timeout", "timed out"} {
			if strings.Contains(output, sign) {
				return ": " + complaint + " (the mirror can't be reached: is this machine online?)"
			}
		}
		return ": " + complaint
	}
	return ""
}
