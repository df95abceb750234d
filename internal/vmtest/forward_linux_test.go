//go:build linux

package vmtest

import (
	"bytes"
	"testing"
	"time"

	"cxkit/device/wire/capture"
)

// BenchmarkForwardingThroughVFIO measures what forwarding a frame of 64 bytes costs our driver in a guest, through the
// kernel's VFIO on the model outside and with the model in its own process: docs/performance.md.
func BenchmarkForwardingThroughVFIO(b *testing.B) {
	f := findTools(b, "6.12")
	values := make(map[string][]float64)
	for b.Loop() {
		h := newVFIOHost(b)
		g := f.guestFor(b, "forward.sh")
		g.Load = []string{"vfio_iommu_type1", "vfio_pci"}
		g.Modules = []string{"virtio_pci", "virtio_console"}
		g.Append = "intel_iommu=on iommu=pt"
		g.Devices = h.devices(f.accel)
		g.Limit = 10 * time.Minute
		g.Files = append(g.Files,
			File{Path: "/usr/bin/cxkit", Data: buildStatic(b, "build", "-o", "OUT", "cxkit/cmd/cxkit"), Program: true},
			File{Path: "/root/one.pcapng", Data: broadcasts(b, 1)}, File{Path: "/root/many.pcapng", Data: broadcasts(b, 200000)},
		)
		answer(b, g, h.asked)
		result, err := g.Run(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		b.Log(result.Output)
		if result.Status != 0 {
			b.Fatalf("status %d\n%s", result.Status, result.Console)
		}
		addResults(b, result, values)
	}
	reportMedians(b, values)
}

// broadcast is a frame of 64 bytes with its FCS, to all.
func broadcast() []byte {
	frame := make([]byte, 60)
	copy(frame, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x88, 0xb5})
	return frame
}

// broadcasts is a capture of n of them.
func broadcasts(b *testing.B, n int) []byte {
	b.Helper()
	var file bytes.Buffer
	r, err := capture.NewRecorder("broadcasts", &file, "p0")
	if err != nil {
		b.Fatal(err)
	}
	for range n {
		if err := r.Write(0, broadcast(), time.Unix(0, 0)); err != nil {
			b.Fatal(err)
		}
	}
	if err := r.Close(); err != nil {
		b.Fatal(err)
	}
	return file.Bytes()
}
