//go:build linux

package client

import (
	"context"
	"encoding/binary"
	"runtime"

	"cxkit/transport/vfiouser"
)

// trap carries register accesses of one BAR. It allocates nothing.
type trap struct {
	f   *Function
	bar uint32
}

const accessSize = vfiouser.HeaderSize + vfiouser.RegionAccessSize

// Store sends a write that nobody answers, or writes to the server's memory where that can be mapped.
func (t trap) Store(off uint64, size int, v uint64) {
	f := t.f
	if f.closed.Load() {
		return
	}
	if m := f.mapped; m != nil && m.part.Holds(int(t.bar), off, uint64(size)) {
		m.store(int(off-m.part.Off), size, v)
		runtime.KeepAlive(f) // and with it the mapping
		return
	}
	h := vfiouser.Header{Command: vfiouser.RegionWrite, Size: uint32(accessSize + size), Flags: vfiouser.FlagNoReply}
	r := vfiouser.RegionAccess{Offset: off, Region: t.bar, Count: uint32(size)}
	b := r.Append(h.Append(f.send.begin()))
	if size == 8 {
		b = binary.BigEndian.AppendUint64(b, v)
	} else {
		b = binary.BigEndian.AppendUint32(b, uint32(v))
	}
	if err := f.send.finish(b); err != nil {
		f.lose(err)
	}
}

// Load asks for a register; ones if there is no answer.
func (t trap) Load(off uint64, size int) uint64 {
	if v, ok := t.load(off, size); ok {
		return v
	}
	return ^uint64(0) >> (64 - 8*size)
}

func (t trap) load(off uint64, size int) (v uint64, ok bool) {
	f := t.f
	if f.alive() != nil {
		return 0, false
	}
	i, err := f.take(context.Background())
	if err != nil {
		return 0, false
	}
	h := vfiouser.Header{ID: f.slots.all[i].expect(vfiouser.RegionRead), Command: vfiouser.RegionRead, Size: accessSize}
	r := vfiouser.RegionAccess{Offset: off, Region: t.bar, Count: uint32(size)}
	if err := f.send.finish(r.Append(h.Append(f.send.begin()))); err != nil {
		f.lose(err)
		return 0, false
	}
	p, err := f.await(context.Background(), i)
	if err != nil {
		return 0, false
	}
	defer func() { f.slots.free <- i }()
	data, err := r.Parse(p)
	if err != nil || int(r.Count) != size || len(data) < size {
		return 0, false
	}
	if size == 8 {
		return binary.BigEndian.Uint64(data), true
	}
	return uint64(binary.BigEndian.Uint32(data)), true
}
