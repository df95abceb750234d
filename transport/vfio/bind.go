package vfio

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const (
	vfioDriver = "vfio-pci"
	pciDrivers = "/sys/bus/pci/drivers"
)

// Bind takes a function from its driver and gives it to vfio-pci. root is where /sys starts, "" for "/".
// Bind does not look whether somebody uses the function: NetworkInUse does.
func Bind(root, address string) error {
	d, err := ReadDevice(root, address)
	if err != nil {
		return err
	}
	if d.Driver == vfioDriver {
		return nil
	}
	if _, err := os.Stat(filepath.Join(root+pciDrivers, vfioDriver)); err != nil {
		return fmt.Errorf("bind %s: the kernel has no driver %s yet: type modprobe %s", address, vfioDriver, vfioDriver)
	}
	if err := rebind(root, d, vfioDriver); err != nil {
		return fmt.Errorf("bind %s: %w", address, err)
	}
	now, err := ReadDevice(root, address)
	if err != nil {
		return err
	}
	if now.Driver != vfioDriver {
		return fmt.Errorf("bind %s: the kernel gave it to %s instead of %s: dmesg says why; cxkit unbind %s gives it back",
			address, driverName(now), vfioDriver, address)
	}
	return nil
}

// Unbind gives a function back to the driver that the kernel has for it: mlx5_core for a ConnectX. It
// returns that driver's name.
func Unbind(root, address string) (driver string, err error) {
	d, err := ReadDevice(root, address)
	if err != nil {
		return "", err
	}
	if d.Driver != "" && d.Driver != vfioDriver {
		return d.Driver, nil
	}
	if err := rebind(root, d, "\n"); err != nil {
		return "", fmt.Errorf("unbind %s: %w", address, err)
	}
	now, err := ReadDevice(root, address)
	if err != nil {
		return "", err
	}
	if now.Driver == "" {
		return "", fmt.Errorf("unbind %s: no driver of the kernel took it: type modprobe mlx5_core, or see dmesg", address)
	}
	return now.Driver, nil
}

// rebind makes the kernel look for a driver again, override if it is not empty (Linux
// Documentation/ABI/testing/sysfs-bus-pci, driver_override).
func rebind(root string, d Device, override string) error {
	if err := write(filepath.Join(d.dir, "driver_override"), override); err != nil {
		return err
	}
	if d.Driver != "" {
		if err := write(filepath.Join(d.dir, "driver", "unbind"), d.Address); err != nil {
			// It still has its driver. Nobody else is to get it at some later time.
			return errors.Join(err, write(filepath.Join(d.dir, "driver_override"), "\n"))
		}
	}
	return write(root+"/sys/bus/pci/drivers_probe", d.Address)
}

func write(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Close())
	}
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w: type it with sudo", err)
	}
	return err
}

func driverName(d Device) string {
	if d.Driver == "" {
		return "no driver"
	}
	return d.Driver
}
