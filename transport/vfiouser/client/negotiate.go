//go:build linux

package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"cxkit/dma"
	"cxkit/pci"
	"cxkit/transport/vfiouser"
)

const (
	// regionRoom is what the description of a region with one part that can be mapped takes.
	regionRoom = 64
	maxBAR     = 1 << 40
	maxVectors = 2048 // of an MSI-X capability
	capExpress = 0x10
	capMSIX    = 0x11
)

// negotiate learns what is at the other end and sets interrupts up.
func (f *Function) negotiate(ctx context.Context) error {
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"version", f.agreeOnVersion},
		{"device", f.learnDevice},
		{"regions", f.learnRegions},
		{"configuration space", f.learnConfig},
		{"interrupts", f.setUpInterrupts},
	} {
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

func (f *Function) agreeOnVersion(ctx context.Context) error {
	v := vfiouser.VersionMessage{Capabilities: vfiouser.Capabilities{
		MaxMsgFDs: vfiouser.MaxFDs, MaxDataXferSize: vfiouser.MaxData, PageSizes: dma.PageSize, MaxDMAMaps: 65535,
	}}
	reply, err := f.request(ctx, vfiouser.Version, v.Append(nil), nil)
	if err != nil {
		return err
	}
	if err := v.Parse(reply); err != nil {
		return err
	}
	if v.Major != 0 {
		return fmt.Errorf("server speaks version %d.%d", v.Major, v.Minor)
	}
	f.server = v.Capabilities
	if f.server.PageSizes&dma.PageSize == 0 {
		return fmt.Errorf("server maps pages of sizes %#x, want 4096 among them", f.server.PageSizes)
	}
	return nil
}

func (f *Function) learnDevice(ctx context.Context) error {
	var d vfiouser.DeviceInfo
	reply, err := f.request(ctx, vfiouser.DeviceGetInfo, d.Append(nil), nil)
	if err != nil {
		return err
	}
	if err := d.Parse(reply); err != nil {
		return err
	}
	if d.Flags&vfiouser.DevicePCI == 0 || d.Regions <= vfiouser.RegionConfig || d.IRQs <= vfiouser.IRQMSIX {
		return fmt.Errorf("no PCI function: flags %#x, %d regions, %d interrupts", d.Flags, d.Regions, d.IRQs)
	}
	f.resets = d.Flags&vfiouser.DeviceResets != 0
	return nil
}

func (f *Function) learnRegions(ctx context.Context) error {
	for bar := range f.info.BARs {
		r := vfiouser.RegionInfo{Room: regionRoom, Index: uint32(bar)}
		reply, file, err := f.exchange(ctx, vfiouser.DeviceGetRegion, r.AppendRequest(nil), nil)
		if err != nil {
			return fmt.Errorf("BAR %d: %w", bar, err)
		}
		if err = r.Parse(reply); err == nil && r.Size > maxBAR {
			err = fmt.Errorf("BAR %d of %#x bytes", bar, r.Size)
		}
		if err == nil {
			f.info.BARs[bar] = r.Size
			f.mapRegion(bar, &r, file)
		}
		if file >= 0 {
			unix.Close(file)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// learnConfig finds the identifiers and capabilities.
func (f *Function) learnConfig(ctx context.Context) error {
	var space [256]byte
	if err := f.readConfig(ctx, 0, space[:]); err != nil {
		return err
	}
	f.info.Vendor, f.info.Device = binary.LittleEndian.Uint16(space[0:]), binary.LittleEndian.Uint16(space[2:])
	at := int(space[0x34]) &^ 3
	for range 48 { // as many as there is room for: a list can loop
		if at < 0x40 {
			return nil
		}
		switch c := space[at:]; {
		case c[0] == capExpress && len(c) >= 10 && binary.LittleEndian.Uint32(c[4:])&(1<<28) != 0:
			f.flr = at + 9
		case c[0] == capMSIX && len(c) >= 12:
			vectors := uint64(binary.LittleEndian.Uint16(c[2:])&0x7ff) + 1
			f.info.MSIXTable = barRange(binary.LittleEndian.Uint32(c[4:]), vectors*16)
			f.info.MSIXPBA = barRange(binary.LittleEndian.Uint32(c[8:]), (vectors+63)/64*8)
		}
		at = int(space[at+1]) &^ 3
	}
	return nil
}

// barRange decodes an offset with the BAR in its lower bits.
func barRange(v uint32, n uint64) pci.BARRange {
	return pci.BARRange{BAR: int(v & 7), Off: uint64(v &^ 7), Len: n}
}

// setUpInterrupts gives every vector an eventfd.
func (f *Function) setUpInterrupts(ctx context.Context) error {
	info := vfiouser.IRQInfo{Index: vfiouser.IRQMSIX}
	reply, err := f.request(ctx, vfiouser.DeviceGetIRQ, info.Append(nil), nil)
	if err != nil {
		return err
	}
	if err := info.Parse(reply); err != nil {
		return err
	}
	if info.Count > maxVectors {
		return fmt.Errorf("%d vectors", info.Count)
	}
	if info.Count == 0 {
		return nil
	}
	if info.Flags&vfiouser.IRQEventFD == 0 || f.server.MaxMsgFDs < 1 {
		return errors.New("the server does not signal eventfds")
	}
	f.info.Vectors = int(info.Count)
	if err := f.makeVectors(); err != nil {
		return err
	}
	most := min(f.server.MaxMsgFDs, vfiouser.MaxFDs)
	for first := 0; first < f.info.Vectors; first += most {
		n := min(most, f.info.Vectors-first)
		set := vfiouser.IRQSet{
			Flags: vfiouser.IRQDataEventFD | vfiouser.IRQTrigger, Index: vfiouser.IRQMSIX, Start: uint32(first), Count: uint32(n),
		}
		var fds []int
		for _, v := range f.vectors[first : first+n] {
			fds = append(fds, v.FD())
		}
		if _, err := f.request(ctx, vfiouser.DeviceSetIRQs, set.Append(nil), fds); err != nil {
			return fmt.Errorf("vectors %d to %d: %w", first, first+n-1, err)
		}
	}
	return nil
}
