//go:build linux

package client

import (
	"context"
	"fmt"

	"cxkit/transport/internal/cfgspace"
	"cxkit/transport/vfiouser"
)

// ReadConfig fills p from configuration space.
func (f *Function) ReadConfig(off int, p []byte) error {
	return f.readConfig(context.Background(), off, p)
}

// WriteConfig writes p to configuration space. It returns when a reset that it starts is over.
func (f *Function) WriteConfig(off int, p []byte) error {
	return f.writeConfig(context.Background(), off, p)
}

func (f *Function) readConfig(ctx context.Context, off int, p []byte) error {
	r, err := f.configAccess("read", off, len(p))
	if err != nil {
		return err
	}
	if len(p) == 0 {
		return nil
	}
	reply, err := f.request(ctx, vfiouser.RegionRead, r.Append(nil), nil)
	if err != nil {
		return fmt.Errorf("read config %#x+%d: %w", off, len(p), err)
	}
	data, err := r.Parse(reply)
	if err != nil || len(data) < len(p) {
		return fmt.Errorf("read config %#x+%d: %d bytes came", off, len(p), len(data))
	}
	copy(p, data)
	return nil
}

func (f *Function) writeConfig(ctx context.Context, off int, p []byte) error {
	r, err := f.configAccess("write", off, len(p))
	if err != nil {
		return err
	}
	if len(p) == 0 {
		return nil
	}
	if _, err := f.request(ctx, vfiouser.RegionWrite, append(r.Append(nil), p...), nil); err != nil {
		return fmt.Errorf("write config %#x+%d: %w", off, len(p), err)
	}
	if at := f.flr - off; f.flr != 0 && at >= 0 && at < len(p) && p[at]&0x80 != 0 {
		f.forgetInterrupts()
	}
	return nil
}

func (f *Function) configAccess(op string, off, n int) (r vfiouser.RegionAccess, err error) {
	if err := f.alive(); err != nil {
		return r, err
	}
	if off < 0 || off > cfgspace.Size || n > cfgspace.Size-off {
		return r, fmt.Errorf("%s config %#x+%d: outside configuration space", op, off, n)
	}
	return vfiouser.RegionAccess{Offset: uint64(off), Region: vfiouser.RegionConfig, Count: uint32(n)}, nil
}
