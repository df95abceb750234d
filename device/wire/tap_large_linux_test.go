package wire

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// vnetHost is host for IPv4 frames, with the kernel's header before each.
func vnetHost(t *testing.T, name string) int {
	t.Helper()
	fd := host(t, name)
	proto := binary.NativeEndian.Uint16([]byte{8, 0})
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: proto, Ifindex: index(t, name)}); err != nil {
		t.Fatal(err)
	}
	return fd
}

// largeFrame is a TCP segment of n bytes of payload over IPv4, with the pseudo header's sum for a checksum.
func largeFrame(n int) []byte {
	f := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 0}, 0x45, 0, 0, 0, 0, 7, 0x40, 0, 64, 6, 0, 0,
		10, 0, 0, 1, 10, 0, 0, 2, 0x12, 0x34, 0, 9, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0)
	for i := range n {
		f = append(f, byte(i*7>>2))
	}
	ip := f[14:]
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	sum := func(b []byte, s uint32) uint16 {
		for ; len(b) > 1; b = b[2:] {
			s += uint32(binary.BigEndian.Uint16(b))
		}
		s = s&0xffff + s>>16
		return uint16(s + s>>16)
	}
	binary.BigEndian.PutUint16(ip[10:], ^sum(ip[:20], 0))
	binary.BigEndian.PutUint16(ip[36:], sum(ip[12:20], uint32(6+len(ip)-20)))
	return f
}

// TestTAPCarriesLargeFrames sends a large frame each way, uncut.
func TestTAPCarriesLargeFrames(t *testing.T) {
	tap := openTestTAP(t)
	fd := vnetHost(t, tap.Name())
	if !tap.Offload(true) {
		t.Fatal("the kernel offers no large frames")
	}
	want := Frame{Data: largeFrame(20_000), Meta: Meta{Segment: 1448, Unfinished: true}}
	if n := tap.TransmitLarge([]Frame{want}); n != 1 {
		t.Fatalf("took %d", n)
	}
	b := make([]byte, 1<<17)
	n, err := unix.Read(fd, b)
	if err != nil {
		t.Fatal(err)
	}
	if got := getVnet(b[:n]); got.Meta != want.Meta || !bytes.Equal(got.Data, want.Data) {
		t.Errorf("the host got %d bytes, %+v", len(got.Data), got.Meta)
	}

	var h [vnetLen]byte
	putVnet(&h, &want)
	if _, err := unix.Write(fd, append(h[:], want.Data...)); err != nil {
		t.Fatal(err)
	}
	if got := receiveIPv4(t, tap); got.Meta != want.Meta || !bytes.Equal(got.Data, want.Data) {
		t.Errorf("the card got %d bytes, %+v", len(got.Data), got.Meta)
	}

	// Without offload the kernel cuts it and finishes the checksums.
	tap.Offload(false)
	if _, err := unix.Write(fd, append(h[:], want.Data...)); err != nil {
		t.Fatal(err)
	}
	if got := receiveIPv4(t, tap); got.Meta != (Meta{}) || len(got.Data) != 54+1448 {
		t.Errorf("the card got %d bytes, %+v; want a segment", len(got.Data), got.Meta)
	}
}

func receiveIPv4(t *testing.T, tap *TAP) Frame {
	t.Helper()
	wake := engine(tap)
	limit := time.After(time.Minute)
	var frames [4]Frame
	for {
		n := tap.ReceiveLarge(frames[:])
		for _, f := range frames[:n] {
			if len(f.Data) > 54 && f.Data[12] == 8 && f.Data[13] == 0 {
				return Frame{bytes.Clone(f.Data), f.Meta}
			}
		}
		if n == 0 {
			select {
			case <-wake:
			case <-limit:
				t.Fatal("no frame")
			}
		}
	}
}

// TestVnetHeaders: what putVnet says of a frame, getVnet reads; frames that it can't say anything of get an
// empty header, and short records are empty frames.
func TestVnetHeaders(t *testing.T) {
	tagged := append(append(bytes.Clone(largeFrame(100)[:12]), 0x81, 0, 0, 5), largeFrame(100)[12:]...)
	for _, data := range [][]byte{largeFrame(100), tagged} {
		for _, m := range []Meta{{}, {Unfinished: true}, {Segment: 50, Unfinished: true}} {
			var h [vnetLen]byte
			putVnet(&h, &Frame{data, m})
			if got := getVnet(append(h[:], data...)); got.Meta != m || !bytes.Equal(got.Data, data) {
				t.Errorf("%+v became %+v", m, got.Meta)
			}
		}
	}
	for n := range 60 {
		var h [vnetLen]byte
		putVnet(&h, &Frame{largeFrame(10)[:n], Meta{Segment: 9, Unfinished: true}})
		if n < 54 && h != [vnetLen]byte{} {
			t.Errorf("a header for %d bytes: %x", n, h)
		}
	}
	if f := getVnet(make([]byte, vnetLen-1)); f.Data != nil {
		t.Errorf("a frame of a short record: %+v", f)
	}
}
