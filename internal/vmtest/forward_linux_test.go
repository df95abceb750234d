//go:build linux

package vmtest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
		machine := intelIOMMU("6.12", "")
		g.Append = machine.cmdline
		g.Devices = h.devices(f.accel, machine.iommu)
		g.Limit = 10 * time.Minute
		program, one, many := buildStatic(b, "build", "-o", "OUT", "cxkit/cmd/cxkit"), broadcasts(b, 1), broadcasts(b, forwarded)
		g.Files = append(g.Files,
			File{Path: "/usr/bin/cxkit", Data: program, Program: true},
			File{Path: "/root/one.pcapng", Data: one}, File{Path: "/root/many.pcapng", Data: many},
		)
		g.Devices = append(g.Devices, "-name", "guest,debug-threads=on")
		var moments []workDone
		answer(b, g, func(question string) {
			if question != "measure" {
				h.asked(question)
				return
			}
			w, err := h.workSoFar()
			if err != nil {
				b.Error(err)
			}
			moments = append(moments, w)
		})
		result, err := g.Run(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if len(moments) != 2 {
			b.Fatalf("the guest asked %d times for a measurement, want 2", len(moments))
		}
		result.Output += resultsOf(moments[0], moments[1])
		result.Output += fmt.Sprintf("result host forward %d ns\n", onHost(b, program, one, many).Nanoseconds())
		b.Log(result.Output)
		if result.Status != 0 {
			b.Fatalf("status %d\n%s", result.Status, result.Console)
		}
		addResults(b, result, values)
	}
	reportMedians(b, values)
}

// BenchmarkMappingThroughVFIO measures what it takes to let a card reach 1 GiB of a guest's memory: docs/hardware.md.
func BenchmarkMappingThroughVFIO(b *testing.B) {
	f := findTools(b, "6.12")
	values := make(map[string][]float64)
	for b.Loop() {
		h := newVFIOHost(b)
		g := f.guestFor(b, "mapping.sh")
		g.Load = []string{"vfio_iommu_type1", "vfio_pci"}
		g.Modules = []string{"virtio_pci", "virtio_console"}
		machine := intelIOMMU("6.12", "")
		g.Append, g.Mem = machine.cmdline, 2048
		g.Devices = h.devices(f.accel, machine.iommu)
		g.Files = append(g.Files,
			File{Path: "/usr/bin/cxkit", Data: buildStatic(b, "build", "-o", "OUT", "cxkit/cmd/cxkit"), Program: true},
			File{Path: "/usr/bin/vfiotest", Data: buildStatic(b, "test", "-c", "-o", "OUT", "cxkit/transport/vfio"), Program: true},
		)
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

// forwarded is how many frames card and driver in one process forward.
const forwarded = 200000

// onHost is what a frame takes cxkit on this machine with the model in its process, as the guest measures it too.
func onHost(b *testing.B, program, one, many []byte) time.Duration {
	b.Helper()
	dir := b.TempDir()
	path := filepath.Join(dir, "cxkit")
	if err := os.WriteFile(path, program, 0o755); err != nil {
		b.Fatal(err)
	}
	var took [2]time.Duration
	for i, file := range [][]byte{one, many} {
		name := filepath.Join(dir, "played.pcapng")
		if err := os.WriteFile(name, file, 0o644); err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		if out, err := exec.Command(path, "run", "--play", name, "--mode", "reflect", "--show", "0").CombinedOutput(); err != nil {
			b.Fatalf("%v\n%s", err, out)
		}
		took[i] = time.Since(began)
	}
	return (took[1] - took[0]) / forwarded
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
