package main

import (
	"context"
	"errors"

	"cxkit/internal/control"
)

// errUnhealthy: the report has been printed.
var errUnhealthy = errors.New("the card is not healthy")

// healthCommand is `cxkit health`.
type healthCommand struct {
	Attach string `placeholder:"PATH" type:"path" help:"Socket of the card (default: the only one running)."`
	JSON   bool   `name:"json" help:"Print JSON."`
}

// Help is what cxkit health --help adds.
func (healthCommand) Help() string {
	return `Prints what devlink health show prints of an mlx5 function: the reporter "fw" for what the card survives,
"fw_fatal" for what it does not, each with the health buffer of its latest error; and what the card says of
its slot's power and its port's module. Of a card that serves a guest it is what the card shows: the driver's
view is in the guest.

Examples:
  cxkit health
  cxkit health --json | jq '.reporters[].state'

Exit codes: 0 healthy, 1 a reporter is in error, or the card can't be asked.`
}

// Run prints the report.
func (h *healthCommand) Run(w *world) error {
	return attached(w, h.Attach, func(ctx context.Context, c *control.Client) error {
		report, err := c.Health(ctx)
		if err != nil {
			return err
		}
		if h.JSON {
			err = writeJSON(w.out, report)
		} else {
			_, err = report.WriteTo(w.out)
		}
		if err == nil && !report.OK() {
			return errUnhealthy
		}
		return err
	})
}
