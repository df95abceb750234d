//go:build linux

package vmtest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"cxkit/device"
)

// BenchmarkLinux measures what Linux gets out of the card, with trapped and with mapped doorbells, and out of
// QEMU's own network cards in the same guest and run: docs/performance.md. An operation is a guest; what it
// says is shown with -v, and medians of all guests are reported. e1000e is measured if kernel 6.12-full has
// been fetched.
func BenchmarkLinux(b *testing.B) {
	kernel := "6.12-full"
	if cache, err := DefaultCache(); err != nil || cache.Ready(b.Context(), kernel) != nil {
		kernel = "6.12"
	}
	f := findTools(b, kernel)
	values := make(map[string][]float64)
	for b.Loop() {
		measure(b, f, values)
	}
	reportMedians(b, values)
}

// measure runs testdata/measure.sh and adds its results to values.
func measure(b *testing.B, f tools, values map[string][]float64) {
	cards, trapped := serveCards(b, 2, CardsConfig{})
	_, mapped := serveCards(b, 2, CardsConfig{Device: device.Config{MapDoorbells: true, MAC: [6]byte{0x0c, 0x42, 0xa1, 0xc0, 0x80}}})
	g := f.guestFor(b, "measure.sh")
	g.Sockets, g.Load, g.Limit = slices.Concat(trapped, mapped), nil, 20*time.Minute
	g.Modules = []string{"mlx5_core", "e1000e", "vmxnet3", "virtio_net", "virtio_pci"}
	for i, model := range []string{"e1000e", "vmxnet3", "virtio-net-pci"} {
		for end := range 2 {
			id := fmt.Sprintf("far%d%c", i, 'a'+end)
			g.Devices = append(g.Devices,
				"-netdev", fmt.Sprintf("hubport,id=%s,hubid=%d", id, i),
				"-device", fmt.Sprintf("pcie-root-port,id=p%s,chassis=%d,slot=%d", id, 20+2*i+end, 20+2*i+end),
				"-device", fmt.Sprintf("%s,netdev=%s,bus=p%s", model, id, id))
		}
	}
	addResults(b, run(b, g, cards), values)
}

// addResults adds a guest's results to values by "driver/name-unit".
func addResults(b *testing.B, r *Result, values map[string][]float64) {
	b.Helper()
	for line := range strings.Lines(r.Output) {
		f := strings.Fields(line)
		if len(f) != 5 || f[0] != "result" {
			continue
		}
		v, err := strconv.ParseFloat(f[3], 64)
		if err != nil {
			b.Fatalf("result %q: %v", line, err)
		}
		name := f[1] + "/" + f[2] + "-" + f[4]
		values[name] = append(values[name], v)
	}
}

// reportMedians reports the medians of values, and logs all of them.
func reportMedians(b *testing.B, values map[string][]float64) {
	b.ReportMetric(0, "ns/op") // most of it is the guest's boot
	for _, name := range slices.Sorted(maps.Keys(values)) {
		v := values[name]
		b.Logf("%s: %v", name, v) // in the order they were measured
		v = slices.Sorted(slices.Values(v))
		b.ReportMetric(v[len(v)/2], name)
	}
}
