//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/term"

	"cxkit/device"
	"cxkit/internal/vmtest"
)

// vmCommand is `cxkit vm`.
type vmCommand struct {
	Cmd   string `placeholder:"TEXT" help:"Shell text to run in the guest; without it the console is a shell."`
	Fetch bool   `help:"Fetch QEMU, a guest's programs and the kernel into the cache folder, and exit."`
	Build bool   `help:"Make the module of --patch, print where it is, and exit."`

	Kernel  string   `default:"6.12" placeholder:"KERNEL" help:"Kernel to boot: a bzImage, or one that is fetched: 6.12, 6.1, 6.12-full (default ${default})."`
	Modules string   `placeholder:"DIR" type:"path" help:"Folder with the modules of a kernel given by path: /lib/modules/RELEASE or a build tree."`
	Append  string   `placeholder:"TEXT" help:"Add to the kernel's command line."`
	Module  []string `placeholder:"NAME|FILE" help:"Have a further module in the guest, with what it depends on; a file NAME.ko takes the place of the kernel's own (repeatable)."`
	Patch   []string `placeholder:"FILE" type:"path" help:"Boot with an mlx5_core whose source this unified diff or sed script changed; for a fetched kernel (repeatable)."`
	Load    []string `default:"mlx5_core" placeholder:"NAME" help:"Load these modules before the command (default ${default}); none for none."`
	File    []string `placeholder:"FILE[:PATH]" help:"Put a file of the host into the guest's root file system (repeatable)."`

	Device string        `default:"sim:cx5" placeholder:"DEVICE" help:"The guest's own cards' kind: sim:PROFILE, of profile cx4lx, cx5, cx6dx, cx7 or bf2 (default ${default})."`
	VFs    int           `name:"vfs" placeholder:"N" help:"With --device sim:bf2: the guest is the card's own processor, and this process its host, which enables N virtual functions once the guest lets it."`
	Card   int           `default:"1" help:"Cards the guest has, all on one switch (default ${default})."`
	Socket []string      `placeholder:"PATH" type:"path" help:"Give the guest the card that cxkit serve serves at this socket, instead of cards of its own (repeatable)."`
	Mem    int           `default:"1024" help:"Memory of the guest in MiB (default ${default})."`
	CPUs   int           `name:"cpus" default:"1" help:"Processors of the guest (default ${default})."`
	Limit  time.Duration `default:"5m" help:"Hard limit of the whole run with --cmd (default ${default})."`
	Seed   uint64        `default:"1" help:"Seed of every random choice of the model (default ${default})."`

	QEMU    string   `name:"qemu" placeholder:"PATH" type:"path" help:"QEMU 10.1 or later to use (default: the one installed if it is new enough, else the cache's)."`
	QEMUArg []string `name:"qemu-arg" placeholder:"ARG" sep:"none" help:"Give QEMU a further argument (repeatable)."`
	Accel   string   `default:"auto" enum:"auto,kvm,tcg" help:"auto takes kvm where it works, else tcg, which emulates (default ${default})."`

	Doorbells string `default:"trapped" enum:"trapped,mapped" help:"How the guest rings its own cards: cxkit serve --help (default ${default})."`

	faultFlags `embed:""`
	Trace      string `placeholder:"FILE" type:"path" help:"Write commands, events and register writes of guest and card to FILE; cxkit decode reads it."`
	Verbose    int    `short:"v" type:"counter" help:"Log what the card would log; twice for more, and apt's output."`
}

// Help is what cxkit vm --help adds.
func (vmCommand) Help() string {
	return `Boots Linux in QEMU with ConnectX cards of this process, which the kernel's own mlx5 driver finds.
The first run fetches QEMU and a Debian kernel into your cache folder through apt; nothing is installed
and nobody needs to be root. The guest is busybox with ethtool, ip and the mlx5 driver, in memory only.

What the command prints is printed, what the kernel prints goes to standard error, and the command's exit
status is the exit code. Failed tests in KTAP output are a failure too. A guest that panics, hangs or never
reports is a failure: the end of its console and of the trace are printed.

Examples:
  cxkit vm --cmd 'ip link set eth0 up; ethtool -i eth0; ethtool -S eth0'
  cxkit vm --kernel 6.1 --cmd 'dmesg | grep mlx5'
  cxkit vm                                          a shell; poweroff -f ends it
  cxkit vm --kernel arch/x86/boot/bzImage --modules . --cmd 'ip link'
  cxkit vm --card 2 --cmd 'ip netns add b; ip link set eth1 netns b; ...'    two cards on a switch
  cxkit vm --kernel 6.12-full --device sim:bf2 --vfs 8 --cmd '
	devlink dev eswitch set pci/0000:01:00.0 mode switchdev; sleep 2; devlink port show'
  cxkit vm --socket /tmp/a                          a card of cxkit serve, on a switch with other guests

Exit codes: the command's; 1 failed, 2 wrong usage, 130 interrupted.`
}

// check finds what the parser can't.
func (c *vmCommand) check() error {
	switch {
	case c.Card < 0 || c.Card > maxCards:
		return usagef("--card %d: want 0 to %d", c.Card, maxCards)
	case c.Mem < 128:
		return usagef("--mem %d: want 128 or more", c.Mem)
	case c.CPUs < 1 || c.CPUs > 64:
		return usagef("--cpus %d: want 1 to 64", c.CPUs)
	case c.Limit <= 0:
		return usagef("--limit %v: want more than nothing", c.Limit)
	case len(c.Socket) > maxCards:
		return usagef("--socket: at most %d", maxCards)
	case !device.Embedded(strings.TrimPrefix(c.Device, "sim:")) && c.VFs != 0:
		return usagef("--vfs: QEMU hides SR-IOV from guests; give --device sim:bf2, or a guest a virtual function of cxkit serve --vfs")
	case c.VFs < 0 || c.VFs > maxVFs:
		return usagef("--vfs %d: a card has 1 to %d", c.VFs, maxVFs)
	case c.VFs > 0 && (c.Card != 1 || len(c.Socket) > 0):
		return usagef("--vfs is for one card of this process")
	case len(c.Socket) > 0 && c.Doorbells == mappedDoorbells:
		return usagef("--doorbells is for cards of this process: give it to cxkit serve")
	case len(c.Socket) > 0 && c.Trace != "":
		return usagef("--trace is for cards of this process: give it to cxkit serve")
	case c.Modules != "" && c.fetchedKernel():
		return usagef("--modules is for a kernel given by path; %s has its own", c.Kernel)
	case len(c.Patch) > 0 && !c.fetchedKernel():
		return usagef("--patch is for kernels that are fetched; build %s yourself, and give --modules", c.Kernel)
	case c.Build && len(c.Patch) == 0:
		return usagef("--build needs --patch")
	}
	if err := checkProfile(c.Device); err != nil {
		return err
	}
	if c.fetchedKernel() || c.Fetch {
		return nil
	}
	err := checkKernel(c.Kernel)
	switch {
	case errors.Is(err, os.ErrNotExist):
		var names []string
		for _, k := range vmtest.KernelSources() {
			names = append(names, k.Name)
		}
		return usagef("--kernel: %w; by name there are %s", err, strings.Join(names, ", "))
	case err != nil:
		return usagef("--kernel: %w", err)
	}
	return nil
}

// maxCards is how many cards a guest can have: root ports of q35 that need no further bridge.
const maxCards = 16

// fetchedKernel tells whether the kernel is one by name.
func (c *vmCommand) fetchedKernel() bool {
	for _, k := range vmtest.KernelSources() {
		if k.Name == c.Kernel {
			return true
		}
	}
	return false
}

// Run boots a guest.
func (c *vmCommand) Run(w *world) error {
	if err := c.check(); err != nil {
		return err
	}
	cache, err := vmtest.DefaultCache()
	if err != nil {
		return err
	}
	if c.Fetch {
		return c.fetch(w, cache)
	}
	if c.Build {
		ko, err := c.patched(w, cache)
		if err != nil {
			return interruptedOr(w, err)
		}
		fmt.Fprintln(w.out, ko)
		return nil
	}
	g, err := c.guest(w, cache)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "cxkit-vm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	return c.run(w, g, work)
}

// fetch fills the cache.
func (c *vmCommand) fetch(w *world, cache vmtest.Cache) error {
	o := vmtest.FetchOptions{Log: io.Discard, Sources: len(c.Patch) > 0}
	if c.fetchedKernel() {
		o.Kernels = []string{c.Kernel}
	}
	if c.Fetch || c.Verbose > 1 {
		o.Log = w.err
	}
	if err := cache.Fetch(w.ctx, o); err != nil {
		return interruptedOr(w, err)
	}
	if c.Fetch {
		fmt.Fprintf(w.out, "QEMU, kernel %s and a guest's programs are in %s\n", c.Kernel, cache.Dir)
	}
	return nil
}

// interruptedOr is errInterrupted if that is why something failed.
func interruptedOr(w *world, err error) error {
	if w.ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

// guest is the guest without cards; what is missing for it is fetched.
func (c *vmCommand) guest(w *world, cache vmtest.Cache) (*vmtest.Guest, error) {
	g := &vmtest.Guest{
		Mem: c.Mem, CPUs: c.CPUs, Append: c.Append, Command: c.Cmd, Shell: c.Cmd == "",
		Modules: []string{"8021q"}, Limit: c.Limit, Devices: c.QEMUArg,
	}
	for _, m := range c.Module {
		if filepath.Ext(m) == ".ko" {
			g.ModuleFiles = append(g.ModuleFiles, m)
		} else {
			g.Modules = append(g.Modules, m)
		}
	}
	if len(c.Patch) > 0 {
		ko, err := c.patched(w, cache)
		if err != nil {
			return nil, interruptedOr(w, err)
		}
		g.ModuleFiles = append(g.ModuleFiles, ko)
	}
	for _, m := range c.Load {
		if m != "none" {
			g.Load = append(g.Load, m)
		}
	}
	if err := c.files(g); err != nil {
		return nil, err
	}
	err := c.tools(w.ctx, cache, g)
	if errors.Is(err, vmtest.ErrMissing) {
		fmt.Fprintf(w.err, "cxkit: fetching QEMU and a kernel into %s, once\n", cache.Dir)
		if err = c.fetch(w, cache); err == nil {
			err = c.tools(w.ctx, cache, g)
		}
	}
	if err != nil {
		return nil, err
	}
	if g.Userland.Root != "" {
		g.Tools = []string{"bash", "ethtool", "ip", "tc", "bridge", "devlink", "ss"}
	}
	switch c.Accel {
	case "auto":
		g.Accel, err = cache.Accel(w.ctx, g.QEMU, g.Kernel, g.Userland)
	default:
		g.Accel = vmtest.Accel(c.Accel)
	}
	return g, err
}

// patched is the module of --patch, which is built if it was not yet.
func (c *vmCommand) patched(w *world, cache vmtest.Cache) (string, error) {
	var edits []vmtest.Edit
	for _, path := range c.Patch {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", usagef("--patch: %w", err)
		}
		edits = append(edits, vmtest.Edit{Name: path, Text: text})
	}
	log := io.Discard
	if c.Verbose > 1 {
		log = w.err
	}
	ko, err := cache.BuildModule(w.ctx, c.Kernel, edits, log)
	if errors.Is(err, vmtest.ErrMissing) {
		fmt.Fprintf(w.err, "cxkit: fetching kernel %s, its source and its compiler into %s, once\n", c.Kernel, cache.Dir)
		if err = c.fetch(w, cache); err == nil {
			ko, err = cache.BuildModule(w.ctx, c.Kernel, edits, log)
		}
	}
	if err != nil {
		return "", fmt.Errorf("mlx5_core of kernel %s, changed: %w", c.Kernel, err)
	}
	return ko, nil
}

// tools finds QEMU, kernel and the guest's programs.
func (c *vmCommand) tools(ctx context.Context, cache vmtest.Cache, g *vmtest.Guest) (err error) {
	if c.QEMU != "" {
		g.QEMU, err = vmtest.UseQEMU(ctx, c.QEMU)
	} else {
		g.QEMU, err = cache.QEMU(ctx)
	}
	if err != nil {
		return err
	}
	if c.fetchedKernel() {
		g.Kernel, err = cache.Kernel(c.Kernel)
	} else {
		g.Kernel = vmtest.Kernel{Image: c.Kernel, Modules: c.Modules}
	}
	if err != nil {
		return err
	}
	g.Userland, err = cache.Userland()
	return err
}

// checkKernel looks whether QEMU can boot a file: it has the header of Linux's x86 boot protocol
// (Documentation/arch/x86/boot.rst), or is an ELF file, as vmlinux.
func checkKernel(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	const header = 0x202
	b := make([]byte, header+4)
	n, err := io.ReadFull(f, b)
	switch {
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF):
		return err
	case n == len(b) && string(b[header:]) == "HdrS", n >= 4 && string(b[:4]) == "\x7fELF":
		return nil
	}
	return fmt.Errorf("%s is no x86 Linux kernel: want a bzImage, as arch/x86/boot/bzImage or /boot/vmlinuz-VERSION", path)
}

// files reads the files to put into the guest.
func (c *vmCommand) files(g *vmtest.Guest) error {
	for _, spec := range c.File {
		from, to, ok := strings.Cut(spec, ":")
		if !ok {
			to = "/root/" + filepath.Base(from)
		}
		if !strings.HasPrefix(to, "/") {
			return usagef("--file %s: the path in the guest must be absolute", spec)
		}
		data, err := os.ReadFile(from)
		if err != nil {
			return usagef("--file: %w", err)
		}
		info, err := os.Stat(from)
		if err != nil {
			return usagef("--file: %w", err)
		}
		g.Files = append(g.Files, vmtest.File{Path: to, Data: data, Program: info.Mode()&0o111 != 0})
	}
	return nil
}

// run makes the cards and boots the guest.
func (c *vmCommand) run(w *world, g *vmtest.Guest, work string) (err error) {
	records, struck := func() string { return "" }, func() string { return "" }
	if g.Sockets = c.Socket; len(c.Socket) == 0 {
		for i := range c.Card {
			g.Sockets = append(g.Sockets, filepath.Join(work, fmt.Sprintf("card%d", i)))
		}
		s, err := newServed(w, servedConfig{
			sockets: g.Sockets, ports: []string{"switch"}, device: c.Device, vfs: c.VFs, seed: c.Seed, trace: c.Trace,
			mapDoorbells: c.Doorbells == mappedDoorbells, faults: c.faultFlags, log: logger(w.err, c.Verbose),
		})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		records = func() string {
			return fmt.Sprintf("--- the last %d trace records ---\n%s", vmtest.TraceRecords, s.cards.LastRecords())
		}
		struck = func() string { return s.struck(len(g.Sockets)) }
	}
	if g.Shell {
		restore := rawTerminal(os.Stdin)
		defer restore()
		g.Stdin, g.Console = os.Stdin, w.out
		g.Limit = interactiveLimit
	} else {
		g.Output, g.Console = w.out, w.err
		defer progress(w.err, struck)()
	}
	result, err := g.Run(w.ctx)
	var failure *vmtest.Failure
	switch {
	case errors.As(err, &failure):
		if w.ctx.Err() != nil {
			return errInterrupted
		}
		// The cause comes last: what the guest printed has been printed, and records are many.
		fmt.Fprint(w.err, records())
		return fmt.Errorf("guest: %s", failure.Why)
	case err != nil:
		return err
	case result.Status != 0:
		return exitStatus(result.Status)
	}
	return result.KTAP.Err()
}

// progressPeriod is how often a user who waits for a guest is told that it goes on.
const progressPeriod = 20 * time.Second

// progress says now and then how long the guest has run, and what struck its cards, until stop is called: while
// Linux waits for a command it prints nothing, for a minute each time.
func progress(w io.Writer, struck func() string) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	began := time.Now()
	go func() {
		defer close(ended)
		tick := time.NewTicker(progressPeriod)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				fmt.Fprintf(w, "cxkit: the guest has run for %v%s\n", time.Since(began).Round(time.Second), struck())
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// interactiveLimit bounds a guest with a shell.
const interactiveLimit = 7 * 24 * time.Hour

// rawTerminal lets the guest's terminal do what this one does: keys go through as they are.
func rawTerminal(f *os.File) (restore func()) {
	fd := int(f.Fd())
	old, err := term.MakeRaw(fd)
	if err != nil {
		return func() {} // not a terminal
	}
	return func() { _ = term.Restore(fd, old) }
}
