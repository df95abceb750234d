package vmtest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cxkit/device"
	"cxkit/device/wire"
)

// BenchmarkLinuxOnTAPs measures TCP and datagrams between a guest and this host, over a TAP interface for each
// kind of card, all kinds in one guest and in turn. TAPs and host are in a network namespace of their own,
// which needs root. An operation is a guest; medians are reported, all values logged.
func BenchmarkLinuxOnTAPs(b *testing.B) {
	kernel := "6.12-full"
	if cache, err := DefaultCache(); err != nil || cache.Ready(b.Context(), kernel) != nil {
		kernel = "6.12" // has no e1000e
	}
	f := findTools(b, kernel)
	inNamespace(b)
	serveAtHost(b)
	values := make(map[string][]float64)
	for b.Loop() {
		measureOnTAPs(b, f, values)
	}
	reportMedians(b, values)
}

// inNamespace moves the goroutine, and what it starts, into a network namespace.
func inNamespace(b *testing.B) {
	b.Helper()
	if os.Getuid() != 0 {
		b.Skip("needs root: a network namespace with TAP interfaces")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		b.Skip(err)
	}
	runtime.LockOSThread() // the thread ends with the goroutine
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		b.Skipf("a network namespace: %v", err)
	}
}

// serveAtHost runs the agent in the namespace until the benchmark ends.
func serveAtHost(b *testing.B) {
	b.Helper()
	command(b, "ip", "link", "set", "lo", "up")
	agent := exec.Command(buildAgent(b), "serve", "0.0.0.0:7000")
	out, err := agent.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	dieWithParent(agent)
	if err := agent.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		agent.Process.Kill()
		agent.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "serving\n" {
		b.Fatalf("the agent says %q, %v", line, err)
	}
}

func command(b *testing.B, args ...string) {
	b.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		b.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// measureOnTAPs runs testdata/measure_tap.sh. Interface tapN of the host is 10.1.N.1.
func measureOnTAPs(b *testing.B, f tools, values map[string][]float64) {
	var taps []*wire.TAP
	card := func(n int, c device.Config) (*Cards, []string) {
		tap, err := wire.OpenTAP(fmt.Sprintf("tap%d", n), 0)
		if err != nil {
			b.Fatal(err)
		}
		taps = append(taps, tap)
		return serveCards(b, 1, CardsConfig{Device: c, Ports: []wire.Port{tap}})
	}
	trapped, first := card(1, device.Config{})
	mapped, second := card(2, device.Config{MapDoorbells: true, MAC: [6]byte{0x0c, 0x42, 0xa1, 0xc0, 0x80}})
	g := f.guestFor(b, "measure_tap.sh")
	g.Sockets, g.Load, g.Limit = slices.Concat(first, second), nil, 20*time.Minute
	g.Modules = []string{"mlx5_core", "e1000e", "vmxnet3", "virtio_net", "virtio_pci"}
	for i, model := range []string{"e1000e", "vmxnet3", "virtio-net-pci"} {
		n := i + 3
		command(b, "ip", "tuntap", "add", "dev", fmt.Sprintf("tap%d", n), "mode", "tap", "vnet_hdr")
		g.Devices = append(g.Devices,
			"-netdev", fmt.Sprintf("tap,id=n%d,ifname=tap%[1]d,script=no,downscript=no", n),
			"-device", fmt.Sprintf("pcie-root-port,id=p%d,chassis=%[1]d,slot=%[1]d", 20+n),
			"-device", fmt.Sprintf("%s,netdev=n%d,bus=p%d", model, n, 20+n))
	}
	for n := 1; n <= 5; n++ {
		tap := fmt.Sprintf("tap%d", n)
		command(b, "ip", "addr", "add", fmt.Sprintf("10.1.%d.1/24", n), "dev", tap)
		command(b, "ip", "link", "set", tap, "up")
	}
	addResults(b, run(b, g, trapped), values)
	for _, c := range []*Cards{trapped, mapped} {
		if err := c.Close(); err != nil {
			b.Error(err)
		}
	}
	for _, tap := range taps {
		if err := tap.Close(); err != nil {
			b.Error(err)
		}
	}
	for n := 3; n <= 5; n++ {
		command(b, "ip", "link", "del", fmt.Sprintf("tap%d", n))
	}
}
