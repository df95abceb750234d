package main

import (
	"bufio"
	"errors"
	"fmt"
	"strings"

	"cxkit/driver"
	"cxkit/pci"
)

// infoCommand is `cxkit info`.
type infoCommand struct {
	Device string `default:"sim:cx5" placeholder:"DEVICE" help:"Card to look at: ${targets} (default ${default})."`
	Rules  bool   `help:"Print the grammar of --rule instead."`
	JSON   bool   `name:"json" help:"Print JSON."`
}

// Help is what cxkit info --help adds.
func (infoCommand) Help() string {
	return `Brings the card up, prints what ethtool -i, -k, -g, -l, -a and --show-fec say of an mlx5 port, and takes it down again.
cxkit ctl info looks at a card that runs.

Examples:
  cxkit info
  cxkit info --device sim:cx6dx --json | jq '.features[] | select(.supported) | .name'
  cxkit info --rules`
}

// cardInfo is what cxkit info prints.
type cardInfo struct {
	Driver   string        `json:"driver"`
	Model    string        `json:"model"`
	Firmware string        `json:"firmware_version"`
	PSID     string        `json:"psid"`
	Address  string        `json:"bus_info"`
	MAC      string        `json:"address"`
	MTU      int           `json:"mtu"`
	MaxMTU   int           `json:"max_mtu"`
	Link     string        `json:"link"`
	FEC      *fecInfo      `json:"fec,omitempty"`
	Pauses   pauseInfo     `json:"pauses"`
	Features []featureInfo `json:"features"`
	Rings    ringInfo      `json:"rings"`
	Channels channelInfo   `json:"channels"`
	// RulePriorities and RSSEntries bound rules and indirection tables, LargeSend the payload of a large
	// send, in bytes.
	RulePriorities int `json:"rule_priorities"`
	RSSEntries     int `json:"rss_entries"`
	LargeSend      int `json:"large_send_bytes"`
}

// fecInfo is what ethtool --show-fec says; not there if FEC can't be set.
type fecInfo struct {
	Supported  []string `json:"supported"`
	Configured string   `json:"configured"`
	Active     string   `json:"active"`
}

// pauseInfo is what ethtool -a says, and which priorities pause by themselves, one bit each.
type pauseInfo struct {
	Rx           bool  `json:"rx"`
	Tx           bool  `json:"tx"`
	PrioritiesRx uint8 `json:"priorities_rx"`
	PrioritiesTx uint8 `json:"priorities_tx"`
}

type featureInfo struct {
	Name      string `json:"name"`
	On        bool   `json:"on"`
	Supported bool   `json:"supported"`
}

type ringInfo struct {
	Rx    int `json:"rx"`
	RxMax int `json:"rx_max"`
	Tx    int `json:"tx"`
	TxMax int `json:"tx_max"`
}

type channelInfo struct {
	Combined int `json:"combined"`
	Max      int `json:"combined_max"`
}

// Run prints it.
func (c *infoCommand) Run(w *world) error {
	if c.Rules {
		_, err := fmt.Fprintln(w.out, ruleHelp)
		return err
	}
	return withNIC(w, c.Device, 0, func(_ pci.Function, nic *driver.NIC) error {
		info := infoOf(nic)
		fec, err := nic.FEC(w.ctx)
		switch {
		case err == nil:
			info.FEC = &fecInfo{Configured: fec.Configured.String(), Active: fec.Active.String()}
			for _, f := range fec.Supported {
				info.FEC.Supported = append(info.FEC.Supported, f.String())
			}
		case !errors.Is(err, driver.ErrNoFEC):
			return err
		}
		pauses, err := nic.Pauses(w.ctx)
		if err != nil {
			return err
		}
		info.Pauses = pauseInfo(pauses)
		if c.JSON {
			return writeJSON(w.out, info)
		}
		out := bufio.NewWriter(w.out)
		info.write(out)
		return out.Flush()
	})
}

// infoOf collects what a NIC says of itself.
func infoOf(nic *driver.NIC) *cardInfo {
	i, c, l := nic.Info(), nic.Config(), nic.Limits()
	info := &cardInfo{
		Driver: "cxkit", Model: i.Model, Firmware: i.Firmware.String(), PSID: i.PSID, Address: i.Address,
		MAC: nic.MAC().String(), MTU: nic.MTU(), MaxMTU: l.MTU, Link: fmt.Sprint(nic.Link()),
		Rings:    ringInfo{c.RxRing, l.RxRing, c.TxRing, l.TxRing},
		Channels: channelInfo{nic.Queues(), l.Queues}, RulePriorities: l.RulePriorities, RSSEntries: l.RSSEntries,
		LargeSend: l.LargeSend,
	}
	for _, f := range nic.Features() {
		info.Features = append(info.Features, featureInfo(f))
	}
	return info
}

// write prints it as ethtool does.
func (i *cardInfo) write(w *bufio.Writer) {
	fmt.Fprintf(w, "driver: %s\nmodel: %s\nfirmware-version: %s (%s)\nbus-info: %s\naddress: %s\nlink: %s\nmtu: %d (at most %d)\n",
		i.Driver, i.Model, i.Firmware, i.PSID, i.Address, i.MAC, i.Link, i.MTU, i.MaxMTU)
	if f := i.FEC; f != nil {
		fmt.Fprintf(w, "fec: %s (set: %s; has: %s)\n", f.Active, f.Configured, strings.Join(f.Supported, " "))
	}
	fmt.Fprintf(w, "pauses: %v\n", driver.Pauses(i.Pauses))
	fmt.Fprint(w, "\nFeatures:\n")
	for _, f := range i.Features {
		state := "off"
		if f.On {
			state = "on"
		}
		if !f.Supported {
			state += " [not supported]"
		}
		fmt.Fprintf(w, "%s: %s\n", f.Name, state)
	}
	fmt.Fprintf(w, "\nRing parameters, with the largest:\nRX: %d of %d\nTX: %d of %d\n", i.Rings.Rx, i.Rings.RxMax, i.Rings.Tx, i.Rings.TxMax)
	fmt.Fprintf(w, "\nChannels, with the most:\nCombined: %d of %d\n", i.Channels.Combined, i.Channels.Max)
	fmt.Fprintf(w, "\nRule priorities: %d\nRSS table entries: %d\nLargest send: %d bytes\n", i.RulePriorities, i.RSSEntries, i.LargeSend)
}
