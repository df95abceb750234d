package vfio

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Device is a PCI function as sysfs shows it.
type Device struct {
	// Address has the domain: "0000:08:00.0".
	Address        string
	Vendor, Device uint16
	Class          uint32
	// Driver is the kernel's that has it, "" for none.
	Driver string
	// Group is its IOMMU group, -1 for none; NoIOMMU says that the group stands for none.
	Group   int
	NoIOMMU bool
	// NUMANode is -1 where the machine has one node or does not say.
	NUMANode int
	// Interfaces are network interfaces that its driver made.
	Interfaces []string
	// PhysFn is the physical function of a virtual one, "" otherwise; VFs are the virtual functions of a
	// physical one, and MaxVFs how many it can have.
	PhysFn string
	VFs    []string
	MaxVFs int

	dir string
}

const pciDevices = "/sys/bus/pci/devices"

// addresses with and without domain.
const addressForm = `^([0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[01][0-9a-fA-F]\.[0-7]$`

// ParseAddress checks a PCI address and adds the domain 0000 if it has none.
func ParseAddress(s string) (string, error) {
	if !regexp.MustCompile(addressForm).MatchString(s) {
		return "", fmt.Errorf("PCI address %q: want the form 0000:08:00.0 (cxkit devices lists what is there)", s)
	}
	if strings.Count(s, ":") == 1 {
		s = "0000:" + s
	}
	return strings.ToLower(s), nil
}

// ReadDevice reads one function. root is where /sys starts, "" for "/".
func ReadDevice(root, address string) (Device, error) {
	d := Device{Address: address, dir: filepath.Join(root+pciDevices, address)}
	if _, err := os.Stat(d.dir); err != nil {
		return d, fmt.Errorf("there is no PCI device %s: type cxkit devices (%w)", address, err)
	}
	d.Vendor, d.Device = uint16(d.number("vendor", 0)), uint16(d.number("device", 0))
	d.Class = uint32(d.number("class", 0))
	d.NUMANode = int(int32(d.number("numa_node", -1)))
	d.Driver = d.link("driver")
	d.Group = -1
	if n, err := strconv.Atoi(d.link("iommu_group")); err == nil {
		d.Group = n
		name, _ := os.ReadFile(filepath.Join(d.dir, "iommu_group", "name"))
		d.NoIOMMU = strings.TrimSpace(string(name)) == "vfio-noiommu"
	}
	d.PhysFn = d.link("physfn")
	d.MaxVFs = int(d.number("sriov_totalvfs", 0))
	for i := range min(d.MaxVFs, 1<<16) {
		vf := d.link(fmt.Sprintf("virtfn%d", i))
		if vf == "" {
			break
		}
		d.VFs = append(d.VFs, vf)
	}
	if entries, err := os.ReadDir(filepath.Join(d.dir, "net")); err == nil {
		for _, e := range entries {
			d.Interfaces = append(d.Interfaces, e.Name())
		}
	}
	return d, nil
}

// number reads a file with a number, or returns def.
func (d Device) number(name string, def int64) int64 {
	b, err := os.ReadFile(filepath.Join(d.dir, name))
	if err != nil {
		return def
	}
	v, err := strconv.ParseInt(strings.TrimSpace(string(b)), 0, 64)
	if err != nil {
		return def
	}
	return v
}

// link is the last part of what a link names, "" if there is none.
func (d Device) link(name string) string {
	to, err := os.Readlink(filepath.Join(d.dir, name))
	if err != nil {
		return ""
	}
	return filepath.Base(to)
}

// Mellanox is the vendor of ConnectX cards.
const Mellanox = 0x15b3

// Devices lists the functions for which keep is true, in the order of their addresses.
func Devices(root string, keep func(Device) bool) ([]Device, error) {
	entries, err := os.ReadDir(root + pciDevices)
	if err != nil {
		return nil, fmt.Errorf("list PCI devices: %w", err)
	}
	var all []Device
	for _, e := range entries {
		d, err := ReadDevice(root, e.Name())
		if err != nil {
			continue // unplugged meanwhile
		}
		if keep(d) {
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b Device) int { return strings.Compare(a.Address, b.Address) })
	return all, nil
}

// groupMembers lists the functions of an IOMMU group.
func groupMembers(root string, group int) ([]Device, error) {
	return Devices(root, func(d Device) bool { return d.Group == group })
}

// DeviceFiles are what a user of the function must be allowed to open, with no right but that: its group, and its own
// file and /dev/iommu where the kernel has them. root is where /dev starts.
func DeviceFiles(root string, d Device) []string {
	var names []string
	if d.Group >= 0 {
		names = append(names, fmt.Sprintf("/dev/vfio/%d", d.Group))
	}
	if name, err := deviceFile(root, d); err == nil {
		names = append(names, name, "/dev/iommu")
	}
	return names
}

// deviceFile is the function's own device file, if kernel and machine have iommufd.
func deviceFile(root string, d Device) (string, error) {
	if _, err := os.Stat(root + "/dev/iommu"); err != nil {
		return "", fmt.Errorf("this kernel has no iommufd: %w", err)
	}
	names, err := filepath.Glob(filepath.Join(d.dir, "vfio-dev", "vfio*"))
	if err != nil || len(names) == 0 {
		return "", errors.New("this kernel gives the card no device file of its own (CONFIG_VFIO_DEVICE_CDEV)")
	}
	return "/dev/vfio/devices/" + filepath.Base(names[0]), nil
}
