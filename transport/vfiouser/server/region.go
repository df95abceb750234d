//go:build linux

package server

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"golang.org/x/sys/unix"

	"cxkit/transport/internal/cfgspace"
	"cxkit/transport/vfiouser"
	"cxkit/transport/vfiouser/internal/sock"
)

// regionInfo answers DEVICE_GET_REGION_INFO. A region can be mapped where the endpoint has memory in it; where
// none has, QEMU posts its writes.
func (s *session) regionInfo(m *sock.Message, out []byte) ([]byte, error) {
	var r vfiouser.RegionInfo
	if err := r.Parse(m.Payload); err != nil {
		return out, err
	}
	if r.Index >= vfiouser.Regions {
		return out, fmt.Errorf("region %d", r.Index)
	}
	info := vfiouser.RegionInfo{Index: r.Index, Size: s.regionSize(r.Index)}
	if info.Size > 0 {
		info.Flags = vfiouser.RegionReadable | vfiouser.RegionWritable
	}
	encode := func(b []byte) []byte { return info.Append(b, r.Room) }
	part := s.info.Mapped
	if part == nil || int(r.Index) != part.BAR {
		return answer(m, out, encode), nil
	}
	fd, ok := part.Memory.FD()
	if !ok || !m.Wanted() {
		return answer(m, out, encode), nil
	}
	info.Flags |= vfiouser.RegionMappable
	info.Sparse = []vfiouser.Area{{Offset: part.Off, Size: part.Len}}
	// The file goes with the first byte of its reply: what waits is sent before.
	if err := s.conn.Send(out); err != nil {
		return out, s.lost(err)
	}
	if err := s.conn.Send(answer(m, nil, encode), fd); err != nil {
		return out, s.lost(err)
	}
	return out[:0], nil
}

// lost ends the session for want of a connection.
func (s *session) lost(err error) error {
	s.fail(err)
	return err
}

func (s *session) regionSize(index uint32) uint64 {
	switch {
	case index < vfiouser.RegionROM:
		return s.info.BARs[index]
	case index == vfiouser.RegionConfig:
		return cfgspace.Size
	}
	return 0
}

// regionAccess decodes and checks an access.
func (s *session) regionAccess(p []byte) (r vfiouser.RegionAccess, data []byte, err error) {
	if data, err = r.Parse(p); err != nil {
		return r, nil, err
	}
	return r, data, s.checkAccess(&r)
}

func (s *session) checkAccess(r *vfiouser.RegionAccess) error {
	size := s.regionSize(r.Region)
	if r.Offset > size || uint64(r.Count) > size-r.Offset {
		return fmt.Errorf("access of %d bytes at %#x of region %d, which has %#x", r.Count, r.Offset, r.Region, size)
	}
	if r.Count > vfiouser.MaxData {
		return fmt.Errorf("access of %d bytes: %w", r.Count, unix.E2BIG)
	}
	return nil
}

func (s *session) regionRead(m *sock.Message, out []byte) ([]byte, error) {
	r, _, err := s.regionAccess(m.Payload)
	if err != nil {
		return out, err
	}
	if !m.Wanted() {
		return out, nil
	}
	out = r.Append(begin(m, out, vfiouser.RegionAccessSize+int(r.Count)))
	at := len(out)
	out = append(out, make([]byte, r.Count)...)
	p := out[at:]
	if r.Region == vfiouser.RegionConfig {
		return out, s.cfg.Read(int(r.Offset), p)
	}
	for off := r.Offset; len(p) > 0; {
		n := unit(off, len(p))
		var word [8]byte
		binary.BigEndian.PutUint64(word[:], s.bars.Read(int(r.Region), off, n))
		copy(p, word[8-n:])
		p, off = p[n:], off+uint64(n)
	}
	return out, nil
}

func (s *session) regionWrite(m *sock.Message, out []byte, mayWait bool) ([]byte, error) {
	r, data, err := s.regionAccess(m.Payload)
	if err != nil {
		return out, err
	}
	if len(data) < int(r.Count) {
		return out, fmt.Errorf("write of %d bytes with %d bytes of data", r.Count, len(data))
	}
	if r.Region == vfiouser.RegionConfig && !mayWait && s.unshared > 0 {
		return out, s.putAside(m) // it may be a reset
	}
	if err := s.write(&r, data[:r.Count]); err != nil {
		return out, err
	}
	if !m.Wanted() {
		return out, nil
	}
	return r.Append(begin(m, out, vfiouser.RegionAccessSize)), nil
}

// write performs a checked write.
func (s *session) write(r *vfiouser.RegionAccess, p []byte) error {
	if r.Region == vfiouser.RegionConfig {
		return s.writeConfig(int(r.Offset), p)
	}
	for off := r.Offset; len(p) > 0; {
		n := unit(off, len(p))
		var word [8]byte
		copy(word[8-n:], p[:n])
		s.bars.Write(int(r.Region), off, n, binary.BigEndian.Uint64(word[:]))
		p, off = p[n:], off+uint64(n)
	}
	return nil
}

func (s *session) writeConfig(off int, p []byte) error {
	e, err := s.cfg.Write(off, p)
	if e.Reset {
		s.msix.Reset()
	}
	if e.MSIX {
		s.msix.SetFunctionMask(e.FunctionMask)
	}
	return err
}

func (s *session) regionWriteMulti(m *sock.Message, out []byte, mayWait bool) ([]byte, error) {
	if !mayWait && s.unshared > 0 {
		return out, s.putAside(m) // one of them may be a reset
	}
	n, err := vfiouser.ParseMulti(m.Payload, func(w *vfiouser.MultiWrite) error {
		if err := s.checkAccess(&w.RegionAccess); err != nil {
			return err
		}
		return s.write(&w.RegionAccess, w.Data[:w.Count])
	})
	if err != nil {
		return out, err
	}
	return answer(m, out, func(b []byte) []byte { return vfiouser.AppendMultiReply(b, n) }), nil
}

// unit is the largest aligned access of at most 8 and at most left bytes at off.
func unit(off uint64, left int) int {
	return 1 << min(3, bits.TrailingZeros64(off), bits.Len(uint(left))-1)
}
