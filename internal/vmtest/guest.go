package vmtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Defaults of a Guest.
const (
	DefaultMem   = 1024 // MiB
	DefaultCPUs  = 1
	DefaultLimit = 5 * time.Minute
)

// Guest is a Linux guest to boot. QEMU, Kernel and Userland must be given, the rest may be zero.
type Guest struct {
	QEMU     QEMU
	Kernel   Kernel
	Userland Userland

	// Sockets are vfio-user sockets, one for each card. The guest finds them in this order.
	Sockets []string
	// Devices are further QEMU arguments.
	Devices []string
	// Mem is the guest's memory in MiB, CPUs its processors.
	Mem, CPUs int
	// Accel is AccelTCG or AccelKVM; "" is AccelTCG. Cache.Accel chooses.
	Accel Accel

	// Modules are kernel modules to have, Load those to load before the command, in this order. What they
	// depend on comes along; names the kernel has no module for are taken to be built in.
	Modules, Load []string
	// ModuleFiles are modules (NAME.ko) to have in place of the kernel's own.
	ModuleFiles []string
	// Tools are programs of the userland to have beside busybox.
	Tools []string
	// Files are further files, Trees folders of the host's.
	Files []File
	Trees []Tree
	// Append is added to the kernel's command line.
	Append string

	// Command is the shell text to run. With Shell there is none, but a shell on the console.
	Command string
	Shell   bool
	// Stdin is what is typed at the console; nil for nothing. With Shell it should be a terminal in raw mode.
	// The caller ends a reader that is no file after Run.
	Stdin io.Reader

	// Output gets what the command prints, Console what the kernel prints. nil throws it away; Result and
	// Failure keep the ends.
	Output, Console io.Writer
	// Limit is the hard limit of the whole run; 0 means DefaultLimit.
	Limit time.Duration
}

// Result is how a command in a guest ended.
type Result struct {
	// Status is the command's exit status.
	Status int
	// Output is the end of what it printed.
	Output string
	// Console is the end of what the kernel printed.
	Console string
	// KTAP are results it printed in the kernel's test anything protocol.
	KTAP KTAP
	// PoweredOff: the guest ended by itself in time after its report. A driver that hangs keeps it from that.
	PoweredOff bool
	// Boot is how long the kernel took to start init, Command how long modules and command took, in the
	// guest's time; Whole is the run's time.
	Boot, Command, Whole time.Duration
}

// Failure is a guest that never reported the end of its command: it hung, panicked, or did not start.
type Failure struct {
	// Why says what was seen.
	Why string
	// Console is the end of what kernel and QEMU printed, Output of what the command printed.
	Console, Output string
}

func (f *Failure) Error() string {
	text := "guest: " + f.Why
	if f.Output != "" {
		text += "\n--- end of the command's output ---\n" + f.Output
	}
	return text + "\n--- end of the console ---\n" + f.Console
}

// Run boots the guest, runs its command and waits for it to power off. An error is a *Failure if a guest
// was started; a command that exits with another status than 0 is none.
func (g Guest) Run(ctx context.Context) (*Result, error) {
	if g.Limit <= 0 {
		g.Limit = DefaultLimit
	}
	work, err := os.MkdirTemp("", "cxkit-guest-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	nonce := "cxkit-" + rand.Text()
	image := filepath.Join(work, "initramfs")
	if err := g.writeInitramfs(image, nonce); err != nil {
		return nil, err
	}
	running, cancel := context.WithTimeoutCause(ctx, g.Limit, fmt.Errorf("no report within %v", g.Limit))
	defer cancel()
	p := &process{guest: g, began: time.Now()}
	p.console = tail{next: orDiscard(g.Console)}
	p.output = tail{next: orDiscard(g.Output)}
	running, off := context.WithCancel(running)
	defer off()
	p.report = report{nonce: nonce, out: &p.output, done: func() { p.grace = time.AfterFunc(powerOffGrace, off) }}
	err = p.run(running, image)
	if p.grace != nil {
		p.grace.Stop()
	}
	return p.judge(running, err)
}

// powerOffGrace is how long a guest may take to power off once it has reported.
const powerOffGrace = 10 * time.Second

func orDiscard(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}

// writeInitramfs makes the guest's root file system.
func (g Guest) writeInitramfs(path, nonce string) error {
	r := &initramfs{
		busybox: g.Userland.Busybox, roots: g.Userland.roots(), tools: g.Tools,
		load: g.Load, files: g.Files, trees: g.Trees, nonce: nonce,
	}
	if !g.Shell {
		r.command = &g.Command
	}
	for _, f := range g.Files {
		if err := checkFile(f); err != nil {
			return err
		}
	}
	if names := append(append([]string(nil), g.Load...), g.Modules...); len(names) > 0 && g.Kernel.Modules != "" {
		tree, err := openModules(g.Kernel.Modules, g.Userland.Busybox)
		if err != nil {
			return err
		}
		for _, path := range g.ModuleFiles {
			name := moduleName(strings.TrimSuffix(filepath.Base(path), ".ko"))
			tree.files[name] = path
			names = append(names, name)
		}
		if r.modules, err = tree.closure(names); err != nil {
			return err
		}
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(r.write(f), f.Close()); err != nil {
		return fmt.Errorf("initramfs: %w", err)
	}
	return nil
}

// process is a guest that runs.
type process struct {
	guest   Guest
	began   time.Time
	console tail // what kernel and QEMU print
	output  tail
	report  report
	grace   *time.Timer // runs from the report on
}

// run starts QEMU and waits for its end. QEMU is ended by its process id when ctx ends.
func (p *process) run(ctx context.Context, image string) error {
	reports, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer reports.Close()
	cmd := p.guest.QEMU.command(ctx, p.guest.arguments(image)...)
	if err := p.keyboard(cmd); err != nil {
		return err
	}
	cmd.Stdout = &p.console
	cmd.Stderr = &p.console
	cmd.ExtraFiles = []*os.File{theirs} // reportFD
	// A child of QEMU's must not keep Wait from returning.
	cmd.WaitDelay = 2 * time.Second
	dieWithParent(cmd)
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return fmt.Errorf("start QEMU: %w", err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { io.Copy(&p.report, reports) })
	err = cmd.Wait()
	// A process that QEMU left behind may hold the pipe open.
	reports.SetReadDeadline(time.Now().Add(2 * time.Second))
	wg.Wait()
	p.report.flush()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	return err
}

// keyboard connects what is typed. Wait would wait for a reader, so one that is no file is copied by a
// goroutine that ends when the reader does, or with the next byte after QEMU's end.
func (p *process) keyboard(cmd *exec.Cmd) error {
	switch in := p.guest.Stdin.(type) {
	case nil:
	case *os.File:
		cmd.Stdin = in
	default:
		pipe, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		go func() {
			io.Copy(pipe, in)
			pipe.Close()
		}()
	}
	return nil
}

// judge says how the run ended.
func (p *process) judge(ctx context.Context, err error) (*Result, error) {
	r := &p.report
	if r.ended {
		return &Result{
			Status: r.status, Output: p.output.text(), Console: p.console.text(), KTAP: r.ktap.KTAP,
			PoweredOff: err == nil,
			Boot:       r.begin, Command: r.end - r.begin, Whole: time.Since(p.began),
		}, r.err
	}
	f := &Failure{Console: p.console.text(), Output: p.output.text()}
	switch {
	case p.console.contains("Kernel panic"):
		f.Why = "the kernel panicked"
	case ctx.Err() != nil:
		f.Why = context.Cause(ctx).Error()
	case err != nil && !r.began:
		f.Why = "it did not start: " + err.Error()
		if last := lastLine([]byte(f.Console)); last != "" {
			f.Why += ": " + last // QEMU's reason
		}
	case !r.began:
		f.Why = "it ended before its first process ran"
	default:
		f.Why = "it ended without a report of its command"
	}
	if ctx.Err() != nil && !r.began {
		f.Why += "; its first process never ran"
	}
	return nil, f
}

// reportFD is the report's file descriptor in QEMU.
const reportFD = 3

// arguments are QEMU's.
func (g Guest) arguments(image string) []string {
	mem := fmt.Sprintf("%dM", orDefault(g.Mem, DefaultMem))
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-machine", "q35,memory-backend=ram", "-m", mem,
		// Cards in other processes reach the guest's memory by this file.
		"-object", "memory-backend-memfd,id=ram,size=" + mem + ",share=on",
		"-smp", fmt.Sprint(orDefault(g.CPUs, DefaultCPUs)),
		"-kernel", g.Kernel.Image, "-initrd", image, "-append", g.commandLine(),
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
		"-chardev", fmt.Sprintf("file,id=report,path=/proc/self/fd/%d", reportFD), "-serial", "chardev:report",
	}
	args = append(args, g.Accel.arguments()...)
	for i, socket := range g.Sockets {
		args = append(args, CardArguments(i, socket)...)
	}
	return append(args, g.Devices...)
}

// commandLine is the kernel's.
func (g Guest) commandLine() string {
	line := "console=ttyS0 quiet panic=-1 oops=panic no_timer_check"
	return strings.TrimSpace(line + " " + g.Append)
}

func orDefault(v, d int) int {
	if v <= 0 {
		return d
	}
	return v
}

// CardArguments are QEMU's arguments for card i of a guest, which is served at a vfio-user socket. A
// path may hold any character: JSON quotes it.
func CardArguments(i int, socket string) []string {
	return []string{
		"-device", fmt.Sprintf("pcie-root-port,id=cxkit%d,chassis=%d,slot=%d", i, i+1, i+1),
		"-device", fmt.Sprintf(`{"driver":"vfio-user-pci","bus":"cxkit%d","socket":{"type":"unix","path":%s}}`, i, quoteJSON(socket)),
	}
}
