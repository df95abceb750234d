package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"cxkit/device"
	"cxkit/device/wire"
	"cxkit/device/wire/capture"
	"cxkit/driver"
	"cxkit/internal/rig"
)

// captureCommand is `cxkit capture`.
type captureCommand struct {
	Device string `short:"i" required:"" placeholder:"DEVICE" help:"Card to capture from: ${targets}."`
	Play   string `placeholder:"FILE" type:"path" help:"With sim:, the capture that comes into the model's port."`

	Write     string        `short:"w" placeholder:"FILE" help:"Write frames to a pcapng file instead of printing them; - is standard output."`
	Count     int           `short:"c" placeholder:"N" help:"End after N frames that the filter lets through."`
	Duration  time.Duration `placeholder:"TIME" help:"End after this time."`
	NoPromisc bool          `short:"p" help:"Receive only frames to the card's address, broadcasts and groups it listens to."`
	Numeric   bool          `short:"n" help:"Ignored: addresses are never turned into names."`
	Snap      int           `short:"s" name:"snapshot-length" placeholder:"N" help:"Write no more than N bytes of a frame; 0 is all (default ${default})." default:"0"`
	Buffered  bool          `short:"U" name:"packet-buffered" help:"Write frames to the file when they come, as is always done with -w -."`
	MTU       int           `name:"mtu" default:"9978" help:"Longest frames to take, without their header (default ${default})."`
	Verbose   int           `short:"v" type:"counter" help:"Log what the driver would log; twice for more."`

	Filter []string `arg:"" optional:"" help:"Frames to take, as tcpdump has it: 'tcp port 80 and host 10.0.0.1'."`
}

// Help is what cxkit capture --help adds.
func (captureCommand) Help() string {
	return `Receives frames and prints a line each, or writes them to a file, until -c, --duration or Ctrl-C. At the end
it says on standard error how many there were, as tcpdump does.

The filter knows ip, ip6, arp, vlan [N], tcp, udp, icmp, icmp6, host A, net A/N, port N, portrange N-M, each with
src or dst in front, ether host MAC, ether proto N, broadcast, multicast, less N, greater N, and, or, not and ().

Examples:
  cxkit capture -i vfio:0000:08:00.0 -c 10
  cxkit capture -i vfio:0000:08:00.0 -w web.pcapng -c 1000 tcp port 443
  cxkit capture -i vfio-user:/tmp/a -w - | wireshark -k -i -
  cxkit capture -i sim:cx5 --play trunk.pcapng not '(arp or ip6)'

Exit codes: 0 done (Ctrl-C is how a capture ends), 1 failed, 2 wrong usage.`
}

// captured is what a capture came to.
type captured struct {
	began                    bool // the card came up
	received, taken, dropped uint64
}

// Run captures.
func (c *captureCommand) Run(w *world) error {
	filter, err := parseFilter(strings.Join(c.Filter, " "))
	if err != nil {
		return usageError{err}
	}
	t, err := parseTarget(c.Device)
	switch {
	case err != nil:
		return err
	case t.simulated() != (c.Play != ""):
		return usagef("--play is what comes into the model's port: give it with sim:, and only there")
	case c.Count < 0 || c.Duration < 0:
		return usagef("-c %d, --duration %v: want no negative number", c.Count, c.Duration)
	case c.Snap < 0:
		return usagef("-s %d: want no negative number", c.Snap)
	case c.MTU < driver.MinMTU || c.MTU > driver.MaxMTU:
		return usagef("--mtu %d: want %d to %d", c.MTU, driver.MinMTU, driver.MaxMTU)
	}
	got, err := c.capture(w, t, filter)
	if !got.began {
		return err
	}
	fmt.Fprintf(w.err, "%d packets captured\n%d packets received by filter\n%d packets dropped by the card\n", got.taken, got.received, got.dropped)
	return err
}

// recorder is the file to write, nil for none.
func (c *captureCommand) recorder(w *world) (*capture.Recorder, error) {
	switch c.Write {
	case "":
		return nil, nil
	case "-":
		return capture.NewRecorder("standard output", nopCloser{w.out}, c.Device)
	}
	return capture.Create(c.Write, c.Device)
}

// nopCloser is standard output, which others close.
type nopCloser struct{ io.Writer }

// capture brings the card up and takes frames until the end.
func (c *captureCommand) capture(w *world, t target, filter filter) (got captured, err error) {
	ctx := w.ctx
	log := logger(w.err, c.Verbose)
	f, r, err := t.openAny(ctx, rig.Config{Device: device.Config{Logger: log}, Plug: wire.NewDiscard()}, log)
	if err != nil {
		return got, err
	}
	defer func() {
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
		if r != nil {
			r.Close()
		}
	}()
	nic, err := driver.Open(ctx, f, driver.Config{
		Promiscuous: !c.NoPromisc, MTU: c.MTU, RxRing: 4096, Logger: log,
	})
	if err != nil {
		return got, err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		if s, statErr := nic.Stats(closing); statErr == nil {
			got.dropped = s.Get("rx_out_of_buffer")
		}
		if closeErr := nic.Close(closing); err == nil {
			err = closeErr
		}
	}()
	// The file comes last: a card that does not come up leaves an old one alone.
	recorder, err := await(ctx, func() (*capture.Recorder, error) { return c.recorder(w) })
	if err != nil {
		return got, err
	}
	if recorder != nil {
		defer func() {
			if closeErr := recorder.Close(); err == nil {
				err = closeErr
			}
		}()
	}
	ctx, over := context.WithCancel(ctx)
	defer over()
	if c.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Duration)
		defer cancel()
	}
	if r != nil {
		player, err := capture.Open(c.Play, capture.Options{})
		if err != nil {
			return got, err
		}
		defer player.Close()
		plug := newPlug(player)
		if _, err := r.Card.Plug(0, plug); err != nil {
			return got, err
		}
		go func() { // ends with the capture, or with this call
			select {
			case <-plug.Drained():
				// What the card has taken is delivered when a command that follows has ended.
				_, _ = nic.Stats(ctx)
				over()
			case <-ctx.Done():
			}
		}()
	}
	got.began = true
	err = c.take(ctx, w, nic, filter, recorder, &got)
	return got, err
}

// snap is how much of a frame is written.
func (c *captureCommand) snap(frame []byte) int {
	if c.Snap == 0 {
		return len(frame)
	}
	return min(c.Snap, len(frame))
}

// take takes frames until ctx ends and none are left, or -c is reached.
func (c *captureCommand) take(ctx context.Context, w *world, nic *driver.NIC, filter filter, recorder *capture.Recorder, got *captured) error {
	rx := nic.RxQueue(0)
	var pkts [burst]driver.Packet
	for {
		n := rx.Poll(pkts[:])
		if n == 0 {
			if ctx.Err() != nil {
				return nil
			}
			if recorder != nil && (c.Buffered || c.Write == "-") { // who reads a pipe wants frames when they come
				if err := recorder.Flush(); err != nil {
					return err
				}
			}
			if err := rx.Wait(ctx); err != nil && ctx.Err() == nil {
				return err
			}
			continue
		}
		now := time.Now()
		done := false
		var err error
		for i := range pkts[:n] {
			frame := pkts[i].Data
			got.received++
			if done || err != nil || !filter.match(frame) {
				continue
			}
			got.taken++
			if recorder != nil {
				err = recorder.WriteFirst(0, frame, c.snap(frame), now)
			} else {
				_, err = fmt.Fprintf(w.out, "%s %s, length %d\n", now.Format("15:04:05.000000"), describe(frame), len(frame))
			}
			done = c.Count > 0 && got.taken >= uint64(c.Count)
		}
		rx.Release(pkts[:n])
		if done || err != nil {
			return err
		}
	}
}
