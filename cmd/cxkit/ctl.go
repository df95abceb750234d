package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"cxkit/internal/control"
)

// ctlCommand is `cxkit ctl`.
type ctlCommand struct {
	Attach string `placeholder:"PATH" type:"path" help:"Socket of the card (default: the only one running)."`
	JSON   bool   `name:"json" help:"Print JSON."`

	List   ctlList   `cmd:"" help:"List the running cards."`
	Info   ctlInfo   `cmd:"" help:"Print what runs and how it is set up."`
	Link   ctlLink   `cmd:"" help:"Pull the plug out of the card's port, or put it in."`
	Books  ctlBooks  `cmd:"" help:"Compare what driver and card have lent each other."`
	Inject ctlInject `cmd:"" help:"Break the card: lose, delay and damage what it says to its driver."`
	Faults ctlFaults `cmd:"" help:"Say what became of the faults that the card was given."`
	Trace  ctlTrace  `cmd:"" help:"Print the flight recorder: commands, events and register writes."`

	Reclaim ctlReclaim `cmd:"" help:"Make firmware ask for pages and give all of them back."`
}

// Help is what cxkit ctl --help adds.
func (ctlCommand) Help() string {
	return `Every cxkit run opens a socket that this user's other processes can reach. With one card running
nothing needs to be named.

Examples:
  cxkit ctl info
  cxkit ctl link down
  cxkit ctl books
  cxkit ctl trace --last 50 | cxkit decode
  cxkit ctl reclaim 100000
  cxkit ctl inject late opcode=QUERY_VPORT_COUNTER delay=2s times=1`
}

// attached calls f with a connection to the card.
func attached(w *world, path string, f func(ctx context.Context, c *control.Client) error) error {
	c, err := control.Attach(w.ctx, path)
	if err != nil {
		return err
	}
	defer c.Close()
	return f(w.ctx, c)
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

type ctlList struct{}

func (ctlList) Run(w *world, ctl *ctlCommand) error {
	paths, err := control.Running()
	if err != nil {
		return err
	}
	infos := make(map[string]control.Info, len(paths))
	for _, path := range paths {
		err := attached(w, path, func(ctx context.Context, c *control.Client) error {
			info, err := c.Info(ctx)
			infos[path] = info
			return err
		})
		if err != nil {
			delete(infos, path) // it ended meanwhile, or is not one of ours
		}
	}
	if ctl.JSON {
		return writeJSON(w.out, infos)
	}
	for _, path := range paths {
		if info, ok := infos[path]; ok {
			fmt.Fprintf(w.out, "%s  %s at %s  %s\n", path, info.Model, info.Address, info.Command)
		}
	}
	return nil
}

type ctlInfo struct{}

func (ctlInfo) Run(w *world, ctl *ctlCommand) error {
	return attached(w, ctl.Attach, func(ctx context.Context, c *control.Client) error {
		info, err := c.Info(ctx)
		if err != nil {
			return err
		}
		if ctl.JSON {
			return writeJSON(w.out, info)
		}
		link := "down"
		if info.LinkUp {
			link = fmt.Sprintf("up, %d Mbit/s", info.SpeedMbps)
		}
		t := tabwriter.NewWriter(w.out, 0, 0, 2, ' ', 0)
		for _, row := range [][2]any{
			{"command", info.Command}, {"process", info.PID},
			{"started", info.Started.Format(time.RFC3339)},
			{"device", info.Device}, {"seed", info.Seed}, {"card", info.Model}, {"firmware", info.Firmware},
			{"address", info.Address}, {"port", info.Port}, {"link", link}, {"MAC", info.MAC}, {"MTU", info.MTU},
			{"queues", info.Queues},
		} {
			fmt.Fprintf(t, "%v\t%v\n", row[0], row[1])
		}
		return t.Flush()
	})
}

type ctlLink struct {
	State string `arg:"" enum:"up,down" help:"up or down."`
}

func (l ctlLink) Run(w *world, ctl *ctlCommand) error {
	return attached(w, ctl.Attach, func(ctx context.Context, c *control.Client) error {
		return c.SetLink(ctx, l.State == "up")
	})
}

type ctlBooks struct{}

func (ctlBooks) Run(w *world, ctl *ctlCommand) error {
	return attached(w, ctl.Attach, func(ctx context.Context, c *control.Client) error {
		books, err := c.Books(ctx)
		if err != nil {
			return err
		}
		if ctl.JSON {
			return writeJSON(w.out, books)
		}
		t := tabwriter.NewWriter(w.out, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprint(t, "\tdriver\tcard\t\n")
		for _, b := range books {
			card := ""
			if b.Card != nil {
				card = fmt.Sprint(*b.Card)
			}
			fmt.Fprintf(t, "%s\t%d\t%s\t\n", b.Name, b.Driver, card)
		}
		return t.Flush()
	})
}

type ctlTrace struct {
	Last int `default:"100" help:"How many records, the latest ones, at most 10000 (default ${default})."`
}

func (l ctlTrace) Run(w *world, ctl *ctlCommand) error {
	if l.Last < 1 || l.Last > control.MaxTrace {
		return usagef("trace: --last %d: want 1 to %d", l.Last, control.MaxTrace)
	}
	return attached(w, ctl.Attach, func(ctx context.Context, c *control.Client) error {
		text, err := c.Trace(ctx, l.Last)
		if err != nil {
			return err
		}
		if ctl.JSON {
			return writeJSON(w.out, text)
		}
		_, err = io.WriteString(w.out, text.Text)
		return err
	})
}
