//go:build linux

package main

import (
	"errors"
	"fmt"
	"strings"

	"cxkit/device/wire"
	"cxkit/device/wire/capture"
)

// plugs are what the ports of several cards are plugged into.
type plugs struct {
	ports []*plug // in the cards' order
	names []string
	undo  []func() error
}

// newPlugs plugs n cards in as kinds say, one for each card, or one for all.
func newPlugs(kinds []string, n int) (*plugs, error) {
	if len(kinds) == 1 && n != 1 {
		one := kinds[0]
		kinds = nil
		for range n {
			kinds = append(kinds, one)
		}
	}
	if err := checkPorts(kinds, n); err != nil {
		return nil, err
	}
	p := &plugs{names: kinds}
	var (
		sw    *wire.Switch
		cable *wire.End // the free end
	)
	for _, kind := range kinds {
		var (
			port wire.Port
			err  error
		)
		switch name, argument, _ := strings.Cut(kind, ":"); name {
		case "switch":
			if sw == nil {
				sw = wire.NewSwitch(wire.SwitchOptions{})
				p.undo = append(p.undo, sw.Close)
			}
			port, err = sw.NewPort()
		case "cable":
			if port = cable; cable == nil {
				port, cable = newCable()
			} else {
				cable = nil
			}
		case "tap":
			port, err = wire.OpenTAP(argument, 0)
		case "pcap":
			port, err = capture.Open(argument, capture.Options{})
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("port %s: %w", kind, err), p.Close())
		}
		p.undo = append(p.undo, port.Close)
		plug := newPlug(port)
		if strings.HasPrefix(kind, "pcap:") {
			plug.hold()
		}
		p.ports = append(p.ports, plug)
	}
	return p, nil
}

func newCable() (wire.Port, *wire.End) {
	a, b := wire.NewCable(wire.CableOptions{})
	return a, b
}

// checkPorts finds mistakes in kinds of ports before anything is opened.
func checkPorts(kinds []string, n int) error {
	if len(kinds) != n {
		return usagef("%d ports for %d cards: give one --port for all, or one for each", len(kinds), n)
	}
	cables := 0
	used := make(map[string]bool)
	for _, kind := range kinds {
		name, argument, _ := strings.Cut(kind, ":")
		switch {
		case kind == "switch":
		case kind == "cable":
			cables++
		case name == "tap" && argument != "", name == "pcap" && argument != "":
			if used[kind] {
				return usagef("--port %s: two cards can't be plugged into it", kind)
			}
			used[kind] = true
		default:
			return usagef("--port %q: want switch, cable, tap:NAME or pcap:FILE", kind)
		}
	}
	if cables%2 != 0 {
		return usagef("--port cable: a cable has two ends, and %d cards are plugged into cables", cables)
	}
	return nil
}

// Wires are the ports for a card.
func (p *plugs) wires() []wire.Port {
	var all []wire.Port
	for _, g := range p.ports {
		all = append(all, g)
	}
	return all
}

// Close unplugs everything. The cards have ended.
func (p *plugs) Close() error {
	var errs []error
	for i := len(p.undo) - 1; i >= 0; i-- {
		errs = append(errs, p.undo[i]())
	}
	return errors.Join(errs...)
}
