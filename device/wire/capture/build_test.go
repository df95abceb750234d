package capture

import (
	"encoding/binary"
	"errors"
	"io"
	"testing"
)

// builder makes captures by hand, right and wrong ones.
type builder struct {
	order binary.ByteOrder
	b     []byte
}

func (w *builder) u16(v ...uint16) *builder {
	for _, v := range v {
		w.b = append(w.b, 0, 0)
		w.order.PutUint16(w.b[len(w.b)-2:], v)
	}
	return w
}

func (w *builder) u32(v ...uint32) *builder {
	for _, v := range v {
		w.b = append(w.b, 0, 0, 0, 0)
		w.order.PutUint32(w.b[len(w.b)-4:], v)
	}
	return w
}

func (w *builder) bytes(b ...byte) *builder { w.b = append(w.b, b...); return w }

// pcap starts a pcap file.
func pcap(order binary.ByteOrder, magic, link uint32) *builder {
	w := &builder{order: order}
	return w.u32(magic).u16(2, 4).u32(0, 0, maxFrame, link)
}

func (w *builder) record(sec, frac uint32, length int, data []byte) *builder {
	return w.u32(sec, frac, uint32(len(data)), uint32(length)).bytes(data...)
}

// pcapng starts a pcapng file: a section header without options.
func pcapng(order binary.ByteOrder) *builder { return (&builder{order: order}).section() }

func (w *builder) section() *builder {
	return w.block(0x0a0d0d0a, func(w *builder) { w.u32(0x1a2b3c4d).u16(1, 0).u32(0xffffffff, 0xffffffff) })
}

// block wraps what body writes.
func (w *builder) block(typ uint32, body func(*builder)) *builder {
	start := len(w.b)
	w.u32(typ, 0)
	body(w)
	for len(w.b)%4 != 0 {
		w.bytes(0)
	}
	size := uint32(len(w.b) - start + 4)
	w.order.PutUint32(w.b[start+4:], size)
	return w.u32(size)
}

// iface adds an interface; options are code, value bytes.
func (w *builder) iface(link uint16, options ...[]byte) *builder {
	return w.block(1, func(w *builder) {
		w.u16(link, 0).u32(0)
		for _, o := range options {
			w.u16(uint16(o[0]), uint16(len(o)-1)).bytes(o[1:]...)
			for len(w.b)%4 != 0 {
				w.bytes(0)
			}
		}
	})
}

func (w *builder) enhanced(in uint32, ts uint64, length int, data []byte) *builder {
	return w.block(6, func(w *builder) {
		w.u32(in, uint32(ts>>32), uint32(ts), uint32(len(data)), uint32(length)).bytes(data...)
	})
}

// data makes n bytes that depend on seed.
func data(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(seed + i*7)
	}
	return b
}

// readAll returns copies of the capture's frames and the error that ended it, nil for the end.
func readAll(tb testing.TB, capture []byte) ([]Frame, error) {
	tb.Helper()
	d, err := NewReader("test", &trickle{data: capture})
	if err != nil {
		return nil, err
	}
	var all []Frame
	for {
		f, err := d.Next()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			if _, again := d.Next(); !errors.Is(again, err) {
				tb.Errorf("the error is not kept: first %v, then %v", err, again)
			}
			return all, err
		}
		f.Data = append([]byte(nil), f.Data...)
		all = append(all, f)
	}
}

// trickle gives out data in pieces of changing size, as files and pipes may.
type trickle struct {
	data []byte
	n    int
}

func (r *trickle) Read(p []byte) (int, error) {
	if len(r.data) == 0 {
		return 0, io.EOF
	}
	r.n = r.n%1021 + 17
	n := copy(p[:min(r.n, len(p))], r.data)
	r.data = r.data[n:]
	return n, nil
}
