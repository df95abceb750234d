package main

import (
	"slices"
	"strings"

	"cxkit/driver"
)

// offloadFlags choose what the card does to frames, and where they go.
type offloadFlags struct {
	Offload []string `placeholder:"LIST" help:"What the card is to do: lso, mpwqe, tunnels, real-time, striding, linked, lro, fcs, compress, vlan-strip."`
	Rule    []string `sep:"none" placeholder:"RULE" help:"Where frames go, for example 'tcp4 dst-port 80 queue 2'; may be given more than once. cxkit info --rules explains."`
}

// offloadNames are the words of --offload, in the order of the help.
func offloadNames() []string {
	return []string{"lso", "mpwqe", "tunnels", "real-time", "striding", "linked", "lro", "fcs", "compress", "vlan-strip"}
}

// apply writes the offloads into a configuration.
func (o *offloadFlags) apply(c *driver.Config) error {
	for _, name := range o.Offload {
		switch name {
		case "lso":
			c.LargeSend = true
		case "mpwqe":
			c.MultiPacket = true
		case "tunnels":
			c.Tunnels = true
		case "real-time":
			c.RealTime = true
		case "striding":
			c.Striding = true
		case "linked":
			c.LinkedReceive = true
		case "lro":
			c.Striding, c.LargeReceive = true, true
		case "fcs":
			c.ReceiveFCS = true
		case "compress":
			c.CompressCompletions = true
		case "vlan-strip":
			c.VLANStrip = true
		default:
			return usagef("--offload %q: want some of %s", name, strings.Join(offloadNames(), ", "))
		}
	}
	return nil
}

// checkOffloads finds what large receives and check sequences do not go with.
func (c *runCommand) checkOffloads() error {
	has := func(name string) bool { return slices.Contains(c.Offload, name) }
	switch {
	case has("fcs") && (c.Mode == "forward" || c.Mode == "reflect" || c.Record != ""):
		return usagef("--offload fcs with --mode %s and --record %q: frames are sent and recorded without check sequences", c.Mode, c.Record)
	case has("fcs") && has("lro"):
		return usagef("--offload fcs with lro: large receives have no check sequence")
	case !has("lro"):
		return nil
	case c.Mode == "forward":
		return usagef("--offload lro with --mode forward: packets are copied there frame by frame")
	case c.Mode == "reflect" && !has("lso"):
		return usagef("--offload lro with --mode reflect: want lso, too, which cuts large receives again")
	case c.Count > 0:
		return usagef("--offload lro with --count: the card decides how many frames come at once")
	case has("tunnels"):
		return usagef("--offload lro with tunnels: what is in a tunnel must not be merged")
	}
	return nil
}

// rules reads the rules.
func (o *offloadFlags) rules(queues int) ([]userRule, error) {
	var list []userRule
	for _, text := range o.Rule {
		r, err := parseRule(text)
		if err != nil {
			return nil, usagef("--%w", err)
		}
		for _, q := range append(r.group, r.rule.Queue) {
			if q >= queues {
				return nil, usagef("--rule %q: queue %d of %d: give --queues %d or more", text, q, queues, q+1)
			}
		}
		list = append(list, r)
	}
	return list, nil
}

// check finds what the parser can't.
func (o *offloadFlags) check(queues int) error {
	var c driver.Config
	if err := o.apply(&c); err != nil {
		return err
	}
	_, err := o.rules(queues)
	return err
}

// ruleResult is a rule in a run's result.
type ruleResult struct {
	Rule   string `json:"rule"`
	Frames uint64 `json:"frames"`
	Bytes  uint64 `json:"bytes"`
}
