//go:build linux

package vfio

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Open takes the function at a PCI address ("0000:08:00.0"; without a domain 0000 is meant), which is bound
// to vfio-pci: Bind does that. The function is its caller's until Close. ctx bounds the start.
//
// Errors say what to type.
func Open(ctx context.Context, address string, config Config) (*Function, error) {
	config = config.withDefaults()
	address, err := ParseAddress(address)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f := newFunction(address, config)
	if err := f.open(); err != nil {
		return nil, fmt.Errorf("vfio %s: %w", address, errors.Join(err, f.release()))
	}
	f.startWatch()
	return f, nil
}

// open acquires everything, in order; release undoes what was done.
func (f *Function) open() error {
	d, err := ReadDevice(f.config.Root, f.info.Address)
	if err != nil {
		return err
	}
	if err := checkDriver(d); err != nil {
		return err
	}
	f.node = d.NUMANode
	if err := f.openDevice(d); err != nil {
		return err
	}
	f.config.Log.Info("opened", "device", f.info.Address, "interface", f.space.mode(), "numa_node", d.NUMANode)
	if err := f.readInfo(); err != nil {
		return err
	}
	if err := f.openConfig(); err != nil {
		return err
	}
	if err := f.openBARs(); err != nil {
		return err
	}
	if err := f.openVectors(); err != nil {
		return err
	}
	return f.conf.startBusMaster(f.config.kernel)
}

// checkDriver says what to do about a function that vfio-pci does not have.
func checkDriver(d Device) error {
	switch {
	case strings.Contains(d.Driver, "vfio"):
		return nil
	case d.Driver == "":
		return fmt.Errorf("no driver has it: type cxkit bind %s", d.Address)
	}
	return fmt.Errorf("driver %s has it: type cxkit bind %s (and cxkit unbind %s afterwards, to give it back)", d.Driver, d.Address, d.Address)
}

// openDevice opens the function by one of the kernel's interfaces.
func (f *Function) openDevice(d Device) error {
	c := f.config
	if !c.NoIOMMU && !d.NoIOMMU && c.Interface != Group {
		name, err := deviceFile(c.Root, d)
		if err == nil {
			return f.openByIOMMUFD(name)
		}
		if c.Interface == IOMMUFD {
			return err
		}
	}
	if d.Group < 0 {
		return errNoGroup
	}
	return f.openByGroup(d)
}

var errNoGroup = errors.New("it is in no IOMMU group: there is no IOMMU, or it is off. Enable VT-d, AMD-Vi or SMMU in the firmware's setup, " +
	"and on Intel add intel_iommu=on iommu=pt to the kernel's command line. A card that may overwrite any memory can " +
	"be driven without one: ask for no-IOMMU by name")

func (f *Function) openByIOMMUFD(name string) error {
	k := f.config.kernel
	device, err := k.open(f.config.path(name))
	if err != nil {
		return explainOpen(err, name)
	}
	f.device = device
	iommu, err := k.open(f.config.path("/dev/iommu"))
	if err != nil {
		return explainOpen(err, "/dev/iommu")
	}
	s, err := newIOAS(k, iommu, device)
	if err != nil {
		k.close(iommu)
		return err
	}
	f.space = s
	return nil
}

func (f *Function) openByGroup(d Device) error {
	k, c := f.config.kernel, f.config
	name := fmt.Sprintf("/dev/vfio/%d", d.Group)
	if d.NoIOMMU {
		if !c.NoIOMMU {
			return fmt.Errorf("no IOMMU keeps it from this machine's memory: ask for no-IOMMU by name, or enable the IOMMU " +
				"(VT-d, AMD-Vi) in the firmware's setup")
		}
		name = fmt.Sprintf("/dev/vfio/noiommu-%d", d.Group)
		c.Log.Warn("no IOMMU: this card, and who drives it, can overwrite all memory of this machine", "device", f.info.Address)
	} else if c.NoIOMMU {
		return fmt.Errorf("there is an IOMMU (group %d): open it without asking for no-IOMMU", d.Group)
	}
	container, err := k.open(c.path("/dev/vfio/vfio"))
	if err != nil {
		return explainOpen(err, "/dev/vfio/vfio")
	}
	made := false
	defer func() {
		if !made {
			k.close(container)
		}
	}()
	v, err := k.ioctlValue(container, getAPIVersion, 0)
	if err != nil {
		return fmt.Errorf("VFIO interface version: %w", err)
	}
	if v != apiVersion {
		return fmt.Errorf("VFIO interface version %d: this driver knows %d", v, apiVersion)
	}
	group, err := k.open(c.path(name))
	if err != nil {
		return explainOpen(err, name)
	}
	f.group = group
	status, err := ask(k, group, groupGetStatus, make([]byte, 8))
	if err != nil {
		return fmt.Errorf("group %d: %w", d.Group, err)
	}
	if le32(status, 4)&groupViable == 0 {
		return sharedGroup(f.config.Root, d)
	}
	if _, err := k.ioctl(group, groupSetContainer, words(uint32(container))); err != nil {
		return fmt.Errorf("put group %d into a container: %w", d.Group, err)
	}
	if d.NoIOMMU {
		f.space, err = asSpace(newUntranslated(k, container, f.node))
	} else {
		f.space, err = asSpace(newType1(k, container))
	}
	if err != nil {
		return err
	}
	made = true
	f.device, err = k.ioctl(group, groupGetDeviceFD, append([]byte(f.info.Address), 0))
	if err != nil {
		f.device = -1
		return fmt.Errorf("get the device of group %d: %w", d.Group, err)
	}
	return nil
}

// asSpace keeps a nil pointer from becoming a space.
func asSpace[S space](s S, err error) (space, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// sharedGroup names who else is in a group that is not viable. Bridges do not matter to VFIO.
func sharedGroup(root string, d Device) error {
	others, err := groupMembers(root, d.Group)
	if err != nil {
		return err
	}
	var bound, commands []string
	for _, o := range others {
		if o.Address == d.Address || o.Driver == "" || strings.Contains(o.Driver, "vfio") || o.Driver == "pcieport" {
			continue
		}
		bound = append(bound, fmt.Sprintf("%s (%s)", o.Address, o.Driver))
		commands = append(commands, "cxkit bind "+o.Address)
	}
	return fmt.Errorf("IOMMU group %d is shared with %s: the IOMMU can't tell them apart, so all must leave their drivers: "+
		"type %s; or put the card into another slot", d.Group, strings.Join(bound, ", "), strings.Join(commands, "; "))
}

// explainOpen says what to do about a device file that can't be opened.
func explainOpen(err error, name string) error {
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: type sudo chown $USER %s (docs/hardware.md has a udev rule), or run as root", err, name)
	case errors.Is(err, unix.ENOENT) && path.Base(name) == "vfio":
		return fmt.Errorf("%w: type modprobe vfio-pci", err)
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%w: another process has it: type fuser -v %s", err, name)
	}
	return err
}
