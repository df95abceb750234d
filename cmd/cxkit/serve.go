//go:build linux

package main

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"cxkit/device"
	"cxkit/driver"
	"cxkit/internal/vmtest"
)

// serveCommand is `cxkit serve`.
type serveCommand struct {
	Socket []string `required:"" placeholder:"PATH" type:"path" help:"Serve a card at this socket (repeatable: a card each)."`
	Port   []string `default:"switch" placeholder:"PORT" help:"What cards are plugged into: switch, cable (two cards), tap:NAME, or pcap:FILE to receive a capture. Once for all cards, or once for each (default ${default})."`
	Device string   `default:"sim:cx5" placeholder:"DEVICE" help:"The cards' kind: sim:PROFILE, of profile cx4lx, cx5, cx6dx, cx7 or bf2 (default ${default})."`
	Seed   uint64   `default:"1" help:"Seed of every random choice of the model (default ${default})."`

	VFs     int    `name:"vfs" placeholder:"N" help:"Serve N virtual functions of one card, whose physical function this process drives, at PATH.1 to PATH.N. Of a card with a processor of its own (sim:bf2) PATH is the processor's function."`
	ESwitch string `name:"eswitch" default:"legacy" enum:"legacy,switchdev" help:"With --vfs: how the card's e-switch forwards. legacy: by address. switchdev: this process bridges representors, and hands what it has forwarded once to the card as a rule (default ${default})."`

	Doorbells string `default:"trapped" enum:"trapped,mapped" help:"trapped: a message for each; mapped: guests write to memory that the card looks at, at most every millisecond while they are idle (default ${default})."`

	faultFlags   `embed:""`
	metricsFlags `embed:""`
	Trace        string `placeholder:"FILE" type:"path" help:"Write commands, events and register writes of guests and cards to FILE; cxkit decode reads it."`
	Verbose      int    `short:"v" type:"counter" help:"Log guests that come and go and what cards would log; twice for more."`
}

// Help is what cxkit serve --help adds.
func (serveCommand) Help() string {
	return `Serves ConnectX cards to QEMU guests, and to other clients, over vfio-user. A guest may reboot or go, and the
next one come: each finds a card that was just switched on. Runs until Ctrl-C. While it runs, cxkit ctl and
cxkit stat attach to it.

Examples:
  cxkit serve --socket /tmp/a --socket /tmp/b        two cards on a switch, for two guests
  sudo cxkit serve --socket /tmp/a --port tap:cx0    a card on a TAP interface of this host
  cxkit serve --socket /tmp/a --port pcap:web.pcapng
  cxkit serve --vfs 2 --socket /tmp/vf               two virtual functions of one card, at /tmp/vf.1 and /tmp/vf.2
  cxkit serve --device sim:bf2 --vfs 8 --socket /tmp/bf     a guest at /tmp/bf manages the e-switch of a host with 8

Exit codes: 0 ended by Ctrl-C, 1 failed, 2 wrong usage.`
}

// mappedDoorbells is the value of --doorbells that is not the default.
const mappedDoorbells = "mapped"

// maxVFs is how many virtual functions a card has at most.
const maxVFs = 127

// maxSocketPath is the longest path of a Unix socket.
const maxSocketPath = 107

// check finds what the parser can't.
func (c *serveCommand) check() error {
	seen := make(map[string]bool)
	for _, path := range c.Socket {
		switch {
		case len(path) > maxSocketPath:
			return usagef("--socket %s: a socket's path has at most %d bytes", path, maxSocketPath)
		case seen[path]:
			return usagef("--socket %s is given twice", path)
		}
		seen[path] = true
	}
	return checkProfile(c.Device)
}

// checkProfile checks what names a kind of card of this process.
func checkProfile(name string) error {
	p, ok := strings.CutPrefix(name, "sim:")
	switch {
	case !ok || p == "":
		return usagef("--device %q: want sim:PROFILE, for example sim:cx5", name)
	case !slices.Contains(device.Profiles(), p):
		return noProfile(name)
	}
	return nil
}

// Run serves until the user ends it.
func (c *serveCommand) Run(w *world) error {
	if err := c.check(); err != nil {
		return err
	}
	if c.VFs != 0 {
		return c.serveVFs(w)
	}
	s, err := newServed(w, servedConfig{
		sockets: c.Socket, ports: c.Port, device: c.Device, seed: c.Seed, trace: c.Trace,
		mapDoorbells: c.Doorbells == mappedDoorbells, faults: c.faultFlags, metrics: c.metricsFlags, log: logger(w.err, c.Verbose),
	})
	if err != nil {
		return err
	}
	c.explain(w, s)
	<-w.ctx.Done()
	return s.Close()
}

// serveVFs serves virtual functions of one card until the user ends it.
func (c *serveCommand) serveVFs(w *world) error {
	switch {
	case c.VFs < 0 || c.VFs > maxVFs:
		return usagef("--vfs %d: a card has 1 to %d", c.VFs, maxVFs)
	case len(c.Socket) != 1 || len(c.Port) != 1:
		return usagef("--vfs: give one --socket and one --port, for the one card")
	case len(c.Socket[0])+len(".127") > maxSocketPath:
		return usagef("--socket %s: a socket's path has at most %d bytes", c.Socket[0], maxSocketPath)
	}
	config := servedConfig{
		sockets: c.Socket, ports: c.Port, device: c.Device, seed: c.Seed, trace: c.Trace, mapDoorbells: c.Doorbells == mappedDoorbells,
		faults: c.faultFlags, metrics: c.metricsFlags, log: logger(w.err, c.Verbose), vfs: c.VFs,
	}
	if c.ESwitch == driver.Switchdev.String() {
		config.mode = driver.Switchdev
	}
	for n := range c.VFs {
		config.virtual = append(config.virtual, fmt.Sprintf("%s.%d", c.Socket[0], n+1))
	}
	profile, _ := strings.CutPrefix(c.Device, "sim:")
	embedded := device.Embedded(profile)
	if !embedded {
		config.sockets = []string{""}
	} else if config.mode != driver.Legacy {
		return usagef("--eswitch %v: the guest at %s chooses the mode of %s", config.mode, c.Socket[0], c.Device)
	}
	s, err := newServed(w, config)
	if err != nil {
		return err
	}
	s.host.c.tree(w.out, s.plugs.names[0], c.Socket[0])
	if embedded {
		fmt.Fprintf(w.out, "  %s\n", shellWords(vmtest.CardArguments(0, c.Socket[0])))
	}
	for i, path := range config.virtual {
		fmt.Fprintf(w.out, "  %s\n", shellWords(vmtest.CardArguments(i, path)))
	}
	<-w.ctx.Done()
	return s.Close()
}

// explain prints what is served and how QEMU finds it.
func (c *serveCommand) explain(w *world, s *served) {
	for i, path := range c.Socket {
		state := s.cards.Card(i).State(0)
		fmt.Fprintf(w.out, "card %d: %s, MAC %s, port %s\n  %s\n", i, state.Model, net.HardwareAddr(state.MAC[:]),
			s.plugs.names[i], shellWords(vmtest.CardArguments(i, path)))
	}
	fmt.Fprintf(w.out, "A guest's memory must be shared (here 1 GiB):\n  %s\n", shellWords([]string{
		"-machine", "q35,memory-backend=ram", "-m", "1G", "-object", "memory-backend-memfd,id=ram,size=1G,share=on",
	}))
}

// shellWords quotes words for a shell where they need it.
func shellWords(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		if strings.ContainsAny(word, ` "'{}$\*?`) {
			word = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
		quoted[i] = word
	}
	return strings.Join(quoted, " ")
}
