// Command cxkit brings up a ConnectX network adapter, moves packets through it and looks into it.
//
// main.go parses and chooses; each command has a file of its name. run's parts are session.go (what is
// brought up and taken down), plug.go (what the card's port is plugged into), worker.go (a queue's
// goroutine), report.go (what is printed) and live.go (what is printed meanwhile).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/alecthomas/kong"
)

// Exit codes.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
	exitUnread      = 141 // what a shell calls the end by SIGPIPE
)

// commands is the command line.
type commands struct {
	Run        runCommand        `cmd:"" help:"Bring a NIC up and move packets."`
	Info       infoCommand       `cmd:"" help:"Print what a card is and can do."`
	Serve      serveCommand      `cmd:"" help:"Serve cards to QEMU guests over vfio-user."`
	VM         vmCommand         `cmd:"" name:"vm" help:"Boot a Linux guest on cards of this process."`
	Ctl        ctlCommand        `cmd:"" help:"Look at a running card, and change it."`
	Stat       statCommand       `cmd:"" help:"Print the counters of a running card under ethtool's names."`
	Top        topCommand        `cmd:"" help:"Watch a running card: queues, drops, commands, pages, health."`
	Health     healthCommand     `cmd:"" help:"Print a running card's health reporters, as devlink does."`
	Capture    captureCommand    `cmd:"" help:"Write or print what a card receives, as tcpdump does."`
	Caps       capsCommand       `cmd:"" help:"Print a card's capabilities, save them, or compare them with another card's."`
	Devices    devicesCommand    `cmd:"" help:"List the ConnectX cards of this machine."`
	Bind       bindCommand       `cmd:"" help:"Take a card from the kernel's driver, to drive it with cxkit."`
	Unbind     unbindCommand     `cmd:"" help:"Give a card back to the kernel's driver."`
	Lab        labCommand        `cmd:"" help:"Run experiments that reproduce what kernel threads measured."`
	Decode     decodeCommand     `cmd:"" help:"Print a hexdump or a trace field by field."`
	Completion completionCommand `cmd:"" help:"Print the shell's completion script."`

	Version kong.VersionFlag `help:"Print the version and exit."`
}

// Help is what cxkit --help adds.
func (commands) Help() string {
	return `cxkit is a ConnectX (mlx5) network adapter in software and the driver that runs it.

Examples:
  cxkit run --play capture.pcapng                  play a capture into the card, see what the driver receives
  cxkit run --play in.pcapng --record out.pcapng   and keep the received frames
  cxkit stat                                       counters of the card that runs in another window
  dmesg | cxkit decode                             mlx5_core's command dumps, field by field

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted before the end,
141 nobody reads standard output any more.`
}

// world is what a command may touch.
type world struct {
	ctx            context.Context
	in             io.Reader
	out, err       io.Writer
	args           []string
	errIsATerminal bool
	errWidth       func() int
	tty            *terminal // standard output, if that is a terminal
	model          *kong.Application
}

// usageError is a mistake on the command line that the parser can't see.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errInterrupted: the user ended a run that would have come to an end by itself.
var errInterrupted = errors.New("interrupted")

func main() { os.Exit(start()) }

// start runs the command line of the process.
func start() int {
	survivePipes()
	ctx, stop := signal.NotifyContext(context.Background(), endings()...)
	defer stop()
	// A further signal ends the process at once, but not in the first second: timeout, sudo and terminals
	// that signal a whole group send the first one twice.
	context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, stop) })
	return execute(&world{
		ctx: ctx, in: os.Stdin, out: os.Stdout, err: os.Stderr, args: os.Args[1:],
		errIsATerminal: isTerminal(os.Stderr), errWidth: func() int { return width(os.Stderr) }, tty: terminalOf(os.Stdin, os.Stdout),
	})
}

// leave ends a parse after --help or --version.
type leave struct{ code int }

// execute runs one command line and returns the exit code.
func execute(w *world) (code int) {
	var cancel context.CancelCauseFunc
	w.ctx, cancel = context.WithCancelCause(w.ctx)
	defer cancel(nil)
	w.ctx = withRecall(w.ctx, func() { cancel(errRecalled) })
	out := &output{to: w.out, nobody: func() { cancel(nil) }}
	w.out = out
	defer func() {
		switch v := recover().(type) {
		case nil:
		case leave:
			code = v.code
		default:
			panic(v)
		}
	}()
	var cmds commands
	parser, err := kong.New(&cmds,
		kong.Name("cxkit"),
		kong.Description("A ConnectX network adapter in software, and the driver that runs it."),
		kong.UsageOnError(), kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Writers(w.out, w.err), kong.Exit(func(code int) { panic(leave{code}) }),
		kong.Vars{"version": version(), "targets": targetHelp},
	)
	if err != nil {
		fmt.Fprintf(w.err, "cxkit: %v\n", err)
		return exitFailed
	}
	w.model = parser.Model
	kctx, err := parser.Parse(w.args)
	if err != nil {
		if out.failed() == nil {
			err = usageError{err}
		}
	} else {
		err = kctx.Run(w)
	}
	if out.unread() {
		return exitUnread // a shell's pipeline says nothing either
	}
	if errors.Is(context.Cause(w.ctx), errRecalled) {
		err = errors.Join(errRecalled, err)
	}
	return fail(w, err)
}

// fail prints an error and chooses the exit code.
func fail(w *world, err error) int {
	if err == nil {
		return exitDone
	}
	fmt.Fprintf(w.err, "cxkit: %v\n", err)
	var usage usageError
	var status exitStatus
	switch {
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, &usage):
		fmt.Fprintln(w.err, "Try cxkit --help.")
		return exitUsage
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	}
	return exitFailed
}
