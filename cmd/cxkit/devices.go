package main

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"cxkit/driver"
	"cxkit/transport/vfio"
)

// rootFlag is where /sys and /proc start: tests play a machine.
type rootFlag struct {
	Root string `hidden:"" default:"" help:"Where /sys and /proc start."`
}

// devicesCommand is `cxkit devices`.
type devicesCommand struct {
	rootFlag `embed:""`
	JSON     bool `name:"json" help:"Print JSON."`
}

// Help is what cxkit devices --help adds.
func (devicesCommand) Help() string {
	return `Lists every ConnectX that the kernel sees: its PCI address, the driver that has it, its IOMMU group
(- is none), the NUMA node it is on, its network interfaces, and its virtual functions (VFs): how many
there are, of how many.

Examples:
  cxkit devices
  cxkit devices --json | jq -r '.[] | select(.driver == "vfio-pci") | .address'`
}

// deviceRow is a card's function for --json. Fields are added, never changed.
type deviceRow struct {
	Address    string   `json:"address"`
	ID         string   `json:"id"` // vendor:device, hexadecimal
	Model      string   `json:"model"`
	Driver     string   `json:"driver"`      // "" for none
	IOMMUGroup *int     `json:"iommu_group"` // null for none
	NUMANode   *int     `json:"numa_node"`   // null where it does not matter
	Interfaces []string `json:"interfaces"`
	VirtualOf  string   `json:"virtual_function_of,omitempty"`
	VFs        []string `json:"vfs"`
	MaxVFs     int      `json:"max_vfs"`
}

// Run lists.
func (c *devicesCommand) Run(w *world) error {
	list, err := vfio.Devices(c.Root, isConnectX)
	if err != nil {
		return err
	}
	rows := make([]deviceRow, 0, len(list))
	for _, d := range list {
		rows = append(rows, newDeviceRow(d))
	}
	if c.JSON {
		return writeJSON(w.out, rows)
	}
	if len(rows) == 0 {
		fmt.Fprintln(w.out, "no ConnectX in this machine")
		return nil
	}
	t := tabwriter.NewWriter(w.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "ADDRESS\tMODEL\tDRIVER\tGROUP\tNODE\tINTERFACES\tVFS")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Address, r.Model, orDash(r.Driver), numberOrDash(r.IOMMUGroup),
			numberOrDash(r.NUMANode), orDash(strings.Join(r.Interfaces, ",")), r.vfs())
	}
	return t.Flush()
}

// classNetwork is the base class of network controllers (PCI code and ID assignment).
const classNetwork = 0x02

func newDeviceRow(d vfio.Device) deviceRow {
	r := deviceRow{
		Address: d.Address, ID: fmt.Sprintf("%04x:%04x", d.Vendor, d.Device), Model: driver.ModelName(d.Device), Driver: d.Driver,
		Interfaces: append([]string{}, d.Interfaces...), VirtualOf: d.PhysFn, VFs: append([]string{}, d.VFs...), MaxVFs: d.MaxVFs,
	}
	if d.Group >= 0 && !d.NoIOMMU {
		r.IOMMUGroup = &d.Group
	}
	if d.NUMANode >= 0 {
		r.NUMANode = &d.NUMANode
	}
	return r
}

// vfs says how many virtual functions there are, or whose this one is.
func (r deviceRow) vfs() string {
	switch {
	case r.VirtualOf != "":
		return "of " + r.VirtualOf
	case r.MaxVFs == 0:
		return "-"
	}
	return fmt.Sprintf("%d of %d", len(r.VFs), r.MaxVFs)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func numberOrDash(n *int) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

// bindCommand is `cxkit bind`.
type bindCommand struct {
	Address  string `arg:"" help:"PCI address of the card's function, as cxkit devices prints it."`
	Force    bool   `help:"Even if this machine's network, or your own connection, runs over it."`
	rootFlag `embed:""`
}

// Help is what cxkit bind --help adds.
func (bindCommand) Help() string {
	return `Takes a function from the kernel's driver and gives it to vfio-pci, so that cxkit can have it. Its network
interfaces are gone until cxkit unbind, and so are its virtual functions. A function that carries this machine's
default route or your SSH connection, one with a virtual function that somebody drives, and what is no ConnectX
are left alone without --force.

Examples:
  sudo modprobe vfio-pci && sudo cxkit bind 0000:08:00.0
  cxkit run --device vfio:0000:08:00.0 --duration 10s
  sudo cxkit unbind 0000:08:00.0`
}

// Run binds.
func (c *bindCommand) Run(w *world) error {
	address, err := vfio.ParseAddress(c.Address)
	if err != nil {
		return usageError{err}
	}
	if !c.Force {
		why, err := c.needsForce(address)
		if err != nil {
			return err
		}
		if why != "" {
			return fmt.Errorf("%s: --force takes it all the same", why)
		}
	}
	if err := vfio.Bind(c.Root, address); err != nil {
		return err
	}
	d, err := vfio.ReadDevice(c.Root, address)
	if err != nil {
		return err
	}
	kind := kindVFIO
	if d.NoIOMMU {
		kind = kindUnsafe
	}
	fmt.Fprintf(w.out, "%s: vfio-pci has it; cxkit run --device %s:%s drives it, cxkit unbind %s gives it back\n", address, kind, address, address)
	switch {
	case d.NoIOMMU:
		fmt.Fprintln(w.out, "no IOMMU keeps it from this machine's memory: only root may use it")
	case d.Group >= 0:
		fmt.Fprintf(w.out, "for use without root: sudo chown $USER %s\n", strings.Join(vfio.DeviceFiles(c.Root, d), " "))
	}
	return nil
}

// needsForce says what binding a function would break; "" is nothing.
func (c *bindCommand) needsForce(address string) (why string, err error) {
	d, err := vfio.ReadDevice(c.Root, address)
	if err != nil {
		return "", err
	}
	if !isConnectX(d) {
		return fmt.Sprintf("%s is no ConnectX but %04x:%04x, of driver %s: cxkit devices lists those that are",
			address, d.Vendor, d.Device, orDash(d.Driver)), nil
	}
	if why, err = vfio.NetworkInUse(c.Root, address, vfio.SessionPeer(c.Root, os.Getenv)); err != nil || why != "" {
		return why, err
	}
	vf, err := vfio.TakenVF(c.Root, address)
	if err == nil && vf != "" {
		why = fmt.Sprintf("its virtual functions go with it, and %s is taken by a virtual machine or a program", vf)
	}
	return why, err
}

// isConnectX tells cards from what else Mellanox makes, and others do.
func isConnectX(d vfio.Device) bool { return d.Vendor == vfio.Mellanox && d.Class>>16 == classNetwork }

// unbindCommand is `cxkit unbind`.
type unbindCommand struct {
	Address  string `arg:"" help:"PCI address of the card's function."`
	rootFlag `embed:""`
}

// Run gives the function back.
func (c *unbindCommand) Run(w *world) error {
	address, err := vfio.ParseAddress(c.Address)
	if err != nil {
		return usageError{err}
	}
	name, err := vfio.Unbind(c.Root, address)
	if err != nil {
		return err
	}
	fmt.Fprintf(w.out, "%s: %s has it\n", address, name)
	return nil
}
