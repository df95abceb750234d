package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"cxkit/device/wire"
	"cxkit/driver"
)

// runCommand is `cxkit run`.
type runCommand struct {
	Device string `default:"sim:cx5" placeholder:"DEVICE" help:"Card to bring up: ${targets} (default ${default})."`

	Play   string `placeholder:"FILE" type:"path" help:"Play a pcap or pcapng capture into the card's port; - reads standard input."`
	Port   string `placeholder:"PORT" help:"Plug the card's port into tap:NAME, a TAP interface of this host, or discard, where nothing comes from."`
	Record string `placeholder:"FILE" type:"path" help:"Write the frames that the driver received, unmodified, to a pcapng file."`
	Mode   string `default:"receive" enum:"receive,reflect,forward" help:"receive: count and release. reflect: send every frame back, MAC addresses exchanged. forward: send every frame out of another port, see --to (default ${default})."`

	Queues   int           `default:"1" help:"Receive and transmit queues; RSS spreads flows over them (default ${default})."`
	MTU      int           `name:"mtu" default:"1500" help:"MTU in bytes (default ${default})."`
	Promisc  bool          `default:"true" negatable:"" help:"Receive all frames, whatever their address (default)."`
	Rate     string        `placeholder:"RATE" help:"Frames that come: max, recorded (a capture's own gaps), or a rate such as 250kpps or 10Gbps (default max)."`
	Duration time.Duration `placeholder:"TIME" help:"Stop after this time, for example 10s."`
	Count    int64         `placeholder:"N" help:"Stop after N received frames."`
	Seed     uint64        `default:"1" help:"Seed of every random choice of the model (default ${default})."`

	To string `placeholder:"PORT" help:"With --mode forward: plug the card's second port into tap:NAME or discard; or the card to send to, as --device names it."`

	offloadFlags   `embed:""`
	faultFlags     `embed:""`
	metricsFlags   `embed:""`
	CommandTimeout time.Duration `placeholder:"TIME" help:"Give firmware this long for a command (default: what the card says, 60s)."`
	BootTimeout    time.Duration `placeholder:"TIME" help:"Give firmware this long to boot (default 120s)."`
	Signatures     bool          `help:"Sign commands, and check the signatures of answers."`

	Show        int           `default:"10" help:"Print the first N received frames, a line each (default ${default})."`
	StatsPeriod time.Duration `placeholder:"TIME" help:"Print what moved every TIME."`
	Trace       string        `placeholder:"FILE" type:"path" help:"Write commands, events and register writes of driver and card to FILE; cxkit decode reads it."`
	Verbose     int           `short:"v" type:"counter" help:"Log what driver and card would log; twice for more."`
	JSON        bool          `name:"json" help:"Print one JSON document on standard output and nothing else there."`
}

// Help is what cxkit run --help adds.
func (runCommand) Help() string {
	return `Give --play or --port; a real card, or one of another process, has its own port. The run ends when the capture is received, or with --duration, --count or Ctrl-C,
and prints a table: frames and bytes by protocol and queue, and every counter that is not zero.
While it runs, cxkit ctl and cxkit stat attach to it.

Examples:
  cxkit run --play web.pcapng
  cxkit run --play web.pcapng --record received.pcapng --queues 4 --json
  cxkit run --play web.pcapng --mode reflect --rate 10kpps
  sudo cxkit run --port tap:cx0 --mode reflect --stats-period 1s
  sudo cxkit run --port tap:cx0 --to tap:cx1 --mode forward --queues 2
  cxkit run --play web.pcapng --queues 2 --rule 'tcp4 dst-port 80 queue 1 count' --rule 'prio 1 ip6 drop count'
  cxkit run --port discard --metrics 127.0.0.1:9101
  cxkit run --device vfio:0000:08:00.0 --mode reflect --duration 10s
  tcpdump -w - | cxkit run --play - --trace boot.trace

Exit codes: 0 done, 1 failed (what was received is still printed and recorded), 2 wrong usage,
130 interrupted before the capture's end, 141 nobody reads
standard output any more.`
}

// check finds what the parser can't.
func (c *runCommand) check() error {
	t, err := parseTarget(c.Device)
	if err != nil {
		return err
	}
	switch {
	case !t.simulated() && (c.Play != "" || c.Port != "" || c.Rate != "" || c.Fault != ""):
		return usagef("--play, --port, --rate and --fault are for the model: %s has its own port", c.Device)
	case t.simulated() && c.Play == "" && c.Port == "":
		return usagef("nothing is plugged in: give --play FILE or --port tap:NAME")
	case c.Play != "" && c.Port != "":
		return usagef("--play and --port both plug in the card's one port: give one of them")
	case c.Port != "" && c.Port != "discard" && c.tapName() == "":
		return usagef("--port %q: want tap:NAME or discard", c.Port)
	case c.Queues < 1 || c.Queues > driver.MaxQueues:
		return usagef("--queues %d: want 1 to %d", c.Queues, driver.MaxQueues)
	case c.MTU < driver.MinMTU || c.MTU > driver.MaxMTU:
		return usagef("--mtu %d: want %d to %d", c.MTU, driver.MinMTU, driver.MaxMTU)
	case c.Duration < 0:
		return usagef("--duration %v is negative", c.Duration)
	case c.Count < 0:
		return usagef("--count %d is negative", c.Count)
	case c.Show < 0:
		return usagef("--show %d is negative", c.Show)
	case c.CommandTimeout < 0 || c.BootTimeout < 0:
		return usagef("--command-timeout %v, --boot-timeout %v: want no negative time", c.CommandTimeout, c.BootTimeout)
	case c.StatsPeriod < 0:
		return usagef("--stats-period %v is negative", c.StatsPeriod)
	case c.Rate == "recorded" && c.Play == "":
		return usagef("--rate recorded needs --play")
	}
	if err := c.checkForward(t); err != nil {
		return err
	}
	if err := c.checkOffloads(); err != nil {
		return err
	}
	if err := c.offloadFlags.check(c.Queues); err != nil {
		return err
	}
	if _, err := c.rate(); err != nil {
		return usagef("--%w", err)
	}
	if c.Record == "-" || c.Trace == "-" {
		return usagef("--record and --trace want a file: standard output is for the table; /dev/stdout writes there all the same")
	}
	return c.checkFiles()
}

// checkFiles refuses to write a file over another one of the same run.
func (c *runCommand) checkFiles() error {
	files := []struct{ flag, path string }{{"--play", c.Play}, {"--record", c.Record}, {"--trace", c.Trace}}
	for i, a := range files {
		for _, b := range files[:i] {
			if a.path != "" && b.path != "" && sameFile(a.path, b.path) {
				return usagef("%s and %s are both %s", b.flag, a.flag, a.path)
			}
		}
	}
	return nil
}

// sameFile tells whether two paths are one file, which need not exist yet.
func sameFile(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && x.Mode().IsRegular() && os.SameFile(x, y)
}

// target is the card to bring up; check has read it.
func (c *runCommand) target() target {
	t, _ := parseTarget(c.Device)
	return t
}

// ports is how many the card has.
func (c *runCommand) ports() int {
	if _, err := parseTarget(c.To); c.Mode == "forward" && err != nil {
		return 2
	}
	return 1
}

// tapName is the TAP interface's, or "".
func (c *runCommand) tapName() string { return tapNamed(c.Port) }

// tapNamed is the interface that a port names, or "".
func tapNamed(port string) string {
	name, ok := strings.CutPrefix(port, "tap:")
	if !ok {
		return ""
	}
	return name
}

// rate is zero for no limit, and for recorded gaps.
func (c *runCommand) rate() (wire.Rate, error) {
	if c.Rate == "" || c.Rate == "max" || c.Rate == "recorded" {
		return wire.Rate{}, nil
	}
	return wire.ParseRate(c.Rate)
}

// Run brings the NIC up, moves packets, and prints what came of it. What was received is reported even
// when the run fails.
func (c *runCommand) Run(w *world) error {
	if err := c.check(); err != nil {
		return err
	}
	s := newSession(c, w)
	defer context.AfterFunc(w.ctx, s.hurry)()
	err := s.start(w.ctx)
	if err == nil {
		err = s.move(w.ctx)
	}
	r := s.finish()
	err = errors.Join(err, s.closeErr)
	if s.broken() {
		r.Faults, r.Diagnosis = s.faults, s.diagnosis(err)
	}
	if c.JSON {
		if err != nil {
			r.Error = err.Error()
		}
		err = errors.Join(err, writeJSON(w.out, r))
	} else if s.opened {
		err = errors.Join(err, r.writeTable(w.out))
	}
	return s.conclude(err, r.Diagnosis)
}
