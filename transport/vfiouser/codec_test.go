package vfiouser

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestHeaderLayout(t *testing.T) {
	h := Header{ID: 0x0201, Command: RegionWrite, Size: 0x20, Flags: FlagNoReply, Errno: 0}
	want := []byte{1, 2, 10, 0, 0x20, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0} // as a little-endian host has it
	if got := h.Append(nil); !bytes.Equal(got, want) {
		t.Errorf("% x, want % x", got, want)
	}
	var back Header
	if err := back.Parse(want); err != nil || back != h {
		t.Errorf("%+v, %v", back, err)
	}
	if h.Reply() || h.Wanted() {
		t.Error("a posted request looks like something else")
	}
}

func TestHeadersNoMessageCanHaveAreRefused(t *testing.T) {
	for _, h := range []Header{{Size: 0}, {Size: 15}, {Size: MaxMessage + 1}, {Size: 1<<32 - 1}, {Size: 16, Flags: 2}, {Size: 16, Flags: 0xf}} {
		var back Header
		if err := back.Parse(h.Append(nil)); err == nil {
			t.Errorf("%+v was accepted", h)
		}
	}
}

func TestCommandNames(t *testing.T) {
	for c, want := range map[Command]string{Version: "VERSION", RegionWriteMulti: "REGION_WRITE_MULTI", 0: "command 0", 99: "command 99"} {
		if got := c.String(); got != want {
			t.Errorf("%d: %q, want %q", uint16(c), got, want)
		}
	}
}

func TestVersionRoundTrips(t *testing.T) {
	for _, c := range []Capabilities{DefaultCapabilities(),
		{MaxMsgFDs: 16, MaxDataXferSize: 4096, PageSizes: 0x201000, MaxDMAMaps: 12, WriteMultiple: true}} {
		v := VersionMessage{Major: 0, Minor: 2, Capabilities: c}
		var back VersionMessage
		if err := back.Parse(v.Append(nil)); err != nil || back != v {
			t.Errorf("%+v, %v, want %+v", back, err, v)
		}
	}
}

func TestVersionOfForeignPeers(t *testing.T) {
	for text, want := range map[string]Capabilities{
		// libvfio-user's reply, and QEMU's request with names unknown here.
		`{"capabilities":{"max_msg_fds":8,"max_data_xfer_size":1048576,"pgsizes":4096,"migration":{"pgsize":4096},"twin_socket":{"supported":true,"fd_index":0}}}`: {MaxMsgFDs: 8, MaxDataXferSize: 1 << 20, PageSizes: 4096, MaxDMAMaps: 65535},
		`{}`:                    DefaultCapabilities(),
		`{"capabilities":{}}`:   DefaultCapabilities(),
		`{"capabilities":null}`: DefaultCapabilities(),
		`{"capabilities":{"max_dma_maps":9223372036854775807}}`: {MaxMsgFDs: 1, MaxDataXferSize: 1 << 20, PageSizes: 4096, MaxDMAMaps: 1 << 30},
	} {
		var v VersionMessage
		if err := v.Parse(append(append([]byte{0, 0, 1, 0}, text...), 0)); err != nil || v.Capabilities != want {
			t.Errorf("%s: %+v, %v", text, v.Capabilities, err)
		}
	}
	var v VersionMessage
	if err := v.Parse([]byte{0, 0, 1, 0}); err != nil || v.Minor != 1 || v.Capabilities != DefaultCapabilities() {
		t.Errorf("without text: %+v, %v", v, err)
	}
	for _, bad := range []string{"", "{}", "null{}\x00", "{\"capabilities\":[]}\x00", "{\"capabilities\":{\"write_multiple\":1}}\x00",
		"{\"capabilities\":{\"max_dma_maps\":0}}\x00", "{\"capabilities\":{\"pgsizes\":0}}\x00", "\x00", "{}\x00\x00"} {
		if bad == "" {
			continue
		}
		if err := v.Parse(append([]byte{0, 0, 0, 0}, bad...)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestRegionInfoWithoutRoomAnnouncesItsCapabilities(t *testing.T) {
	r := RegionInfo{Flags: RegionReadable | RegionMappable, Index: 2, Size: 0x10000, Offset: 0x3000, Sparse: []Area{{0x1000, 0x2000}, {0x8000, 0x1000}}}
	short := r.Append(nil, 32)
	if len(short) != 32 || u32(short, 0) != 32+16+32 || u32(short, 4)&regionHasCaps == 0 || u32(short, 12) != 32 {
		t.Errorf("short reply % x", short)
	}
	var back RegionInfo
	if err := back.Parse(short); err != nil || back.Room != 80 || back.Sparse != nil {
		t.Errorf("short reply: %+v, %v", back, err)
	}
	full := r.Append(nil, back.Room)
	r.Room = back.Room
	if err := back.Parse(full); err != nil || !reflect.DeepEqual(back, r) {
		t.Errorf("full reply: %+v, %v, want %+v", back, err, r)
	}
	plain := RegionInfo{Room: 32, Flags: 3, Size: 16}
	if p := plain.Append(nil, 32); len(p) != 32 || u32(p, 12) != 0 {
		t.Errorf("plain reply % x", p)
	}
}

func TestHostileCapabilitiesAreRefused(t *testing.T) {
	r := RegionInfo{Flags: RegionMappable, Sparse: []Area{{0, 0x1000}}}
	good := r.Append(nil, 4096)
	for name, spoil := range map[string]func([]byte){
		"a list that loops":        func(p []byte) { copy(p[36:], []byte{32, 0, 0, 0}) },
		"a list into the head":     func(p []byte) { copy(p[36:], []byte{8, 0, 0, 0}) },
		"cut off":                  func(p []byte) { copy(p[12:], []byte{60, 0, 0, 0}) },
		"more areas than there is": func(p []byte) { copy(p[40:], []byte{3, 0, 0, 0}) },
		"2^32 areas":               func(p []byte) { copy(p[40:], []byte{255, 255, 255, 255}) },
	} {
		p := slices.Clone(good)
		spoil(p)
		var back RegionInfo
		if err := back.Parse(p); err == nil {
			t.Errorf("%s was accepted: %+v", name, back)
		}
	}
}

func TestMultipleWritesRoundTrip(t *testing.T) {
	want := []MultiWrite{{RegionAccess{8, 0, 4}, [8]byte{1, 2, 3, 4}}, {RegionAccess{16, 2, 8}, [8]byte{8, 7, 6, 5, 4, 3, 2, 1}}}
	var got []MultiWrite
	n, err := ParseMulti(AppendMulti(nil, want), func(w *MultiWrite) error { got = append(got, *w); return nil })
	if err != nil || n != 2 || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

// payload is what every payload's type can do.
type payload interface {
	Append([]byte) []byte
	Parse([]byte) error
}

func TestPayloadsRoundTripAndRefuseShortOnes(t *testing.T) {
	for _, want := range []payload{
		&MapRequest{Flags: 3, Offset: 0x1000, Address: 1 << 40, Size: 0x2000},
		&UnmapRequest{Flags: 2, Address: 5, Size: 6},
		&DeviceInfo{Flags: 3, Regions: 9, IRQs: 5},
		&IRQInfo{Flags: 1, Index: 2, Count: 64},
		&IRQSet{Flags: IRQDataBool | IRQMask, Index: 2, Start: 1, Count: 3, Bools: []byte{1, 0, 1}},
	} {
		p := want.Append(nil)
		got := reflect.New(reflect.TypeOf(want).Elem()).Interface().(payload)
		if err := got.Parse(p); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
		name := strings.TrimPrefix(reflect.TypeOf(want).String(), "*vfiouser.")
		for n := range len(p) {
			if err := got.Parse(p[:n]); err == nil {
				t.Errorf("%s of %d bytes was accepted, has %d", name, n, len(p))
			}
		}
		p[0], p[1] = 1, 0 // argsz
		if err := got.Parse(p); err == nil {
			t.Errorf("%s that says it has 1 byte was accepted", name)
		}
	}
}

// sparseOfNothing is a mappable region whose list of parts to map is there, and empty.
func sparseOfNothing() []byte {
	m := RegionInfo{Flags: RegionMappable, Size: 4096, Sparse: []Area{{0, 4096}}}
	b := m.Append(nil, 4096)
	clear(b[regionInfoSize+8 : regionInfoSize+12])
	return b
}

func TestRegionWithAnEmptyListOfPartsIsNotMappable(t *testing.T) {
	var m RegionInfo
	if err := m.Parse(sparseOfNothing()); err != nil || m.Flags&RegionMappable != 0 || m.Sparse != nil {
		t.Errorf("%+v, %v", m, err)
	}
}

// FuzzPayloads: whatever a decoder accepts, it encodes again to what it can decode to the same.
func FuzzPayloads(f *testing.F) {
	f.Add(byte(0), (&MapRequest{Flags: 3, Size: 4096}).Append(nil))
	f.Add(byte(5), (&VersionMessage{Capabilities: Capabilities{MaxMsgFDs: 3, MaxDataXferSize: 1, PageSizes: 4096, MaxDMAMaps: 1}}).Append(nil))
	f.Add(byte(6), (&RegionInfo{Sparse: []Area{{1, 2}}}).Append(nil, 4096))
	f.Add(byte(6), sparseOfNothing())
	f.Add(byte(7), AppendMulti(nil, make([]MultiWrite, 3)))
	f.Fuzz(func(t *testing.T, kind byte, p []byte) {
		switch kind % 9 {
		case 7:
			n, err := ParseMulti(p, func(w *MultiWrite) error { _ = w.Data[:w.Count]; return nil })
			if err == nil && n > uint64(len(p)) {
				t.Errorf("%d writes in %d bytes", n, len(p))
			}
			return
		case 8:
			if len(p) >= HeaderSize {
				var h Header
				if h.Parse(p) == nil && !bytes.Equal(h.Append(nil), p[:HeaderSize]) {
					t.Errorf("% x became %+v", p[:HeaderSize], h)
				}
			}
			return
		}
		a, b := fuzzed(kind%9), fuzzed(kind%9)
		if a.Parse(p) != nil {
			return
		}
		if err := b.Parse(a.Append(nil)); err != nil || !reflect.DeepEqual(a, b) {
			t.Errorf("%+v became %+v, %v", a, b, err)
		}
	})
}

func fuzzed(kind byte) payload {
	switch kind {
	case 0:
		return &MapRequest{}
	case 1:
		return &UnmapRequest{}
	case 2:
		return &DeviceInfo{}
	case 3:
		return &IRQInfo{}
	case 4:
		return &IRQSet{}
	case 5:
		return &VersionMessage{}
	}
	return &wholeRegion{}
}

// wholeRegion is a RegionInfo with room for its capabilities.
type wholeRegion struct{ RegionInfo }

func (w *wholeRegion) Append(b []byte) []byte { return w.RegionInfo.Append(b, 1<<20) }
func (w *wholeRegion) Parse(p []byte) error {
	err := w.RegionInfo.Parse(p)
	w.Room = 0 // says what the sender's room needs, not what this is
	return err
}
