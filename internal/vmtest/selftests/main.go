//go:build linux

package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"cxkit/device/wire"
	"cxkit/internal/vmtest"
)

//go:embed selftests.sh
var script string

//go:embed csum_env.py
var checksumEnvironment string

// rivals are QEMU's cards: the kernel's driver, and QEMU's name. virtio-net's hash key can be changed if it is asked to
// have one.
func rivals() map[string]string {
	return map[string]string{"e1000e": "e1000e", "igb": "igb", "vmxnet3": "vmxnet3", "virtio_net": "virtio-net-pci,rss=on"}
}

// options are the command line.
type options struct {
	fetch         bool
	kernel        string
	kinds         string
	tests         string
	write, record string
	from          string
	cpus          int
	limit         time.Duration
}

func main() {
	var o options
	flag.BoolVar(&o.fetch, "fetch", false, "fetch what is missing")
	flag.StringVar(&o.kernel, "kernel", "6.12-full", "the guest's kernel")
	flag.StringVar(&o.kinds, "kinds", model+" e1000e igb vmxnet3 virtio_net", "drivers of the cards to test")
	flag.StringVar(&o.tests, "tests", ".", "a regular expression: which tests")
	flag.StringVar(&o.write, "write", "", "write tables into this file, behind its line "+mark)
	flag.StringVar(&o.record, "record", "", "keep all that the guest prints in this file")
	flag.StringVar(&o.from, "from", "", "run no guest, but read what earlier ones recorded: files, separated by commas; a test in a later one counts instead of that in an earlier one, on all kinds of cards")
	flag.IntVar(&o.cpus, "cpus", 12, "the guest's processors, and with them a card's queues")
	flag.DurationVar(&o.limit, "limit", 2*time.Hour, "how long all of it may take")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "selftests:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	out, err := outcomeOf(ctx, o)
	if err != nil {
		return err
	}
	out.summary(os.Stdout)
	if o.write != "" {
		if err := out.rewrite(o.write); err != nil {
			return err
		}
	}
	return out.judge()
}

// outcomeOf is what a guest says, or several that ran before, one program on all kinds of cards in one of them.
func outcomeOf(ctx context.Context, o options) (outcome, error) {
	if o.from == "" {
		text, err := listen(ctx, o)
		return parse(text), err
	}
	var out outcome
	for i, name := range strings.Split(o.from, ",") {
		b, err := os.ReadFile(name)
		if err != nil {
			return out, err
		}
		later := parse(string(b))
		if i == 0 {
			out = later
			continue
		}
		if err := out.replace(later); err != nil {
			return out, fmt.Errorf("%s: %w", name, err)
		}
	}
	return out, nil
}

// listen returns what a guest says that runs the tests.
func listen(ctx context.Context, o options) (string, error) {
	cache, err := vmtest.DefaultCache()
	if err != nil {
		return "", err
	}
	if o.fetch {
		if err := cache.Fetch(ctx, vmtest.FetchOptions{Kernels: []string{o.kernel}, Selftests: true, Log: os.Stderr}); err != nil {
			return "", err
		}
	}
	g, err := guest(ctx, cache, o)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "cxkit-selftests-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	cards, near, far, err := serve(&g, dir)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	g.Output = io.MultiWriter(&text, os.Stdout)
	if o.record != "" {
		f, err := os.Create(o.record)
		if err != nil {
			return "", err
		}
		defer f.Close()
		g.Output = io.MultiWriter(g.Output, f)
	}
	_, err = g.Run(ctx)
	if err = errors.Join(err, cards.Close(), near.Close(), far.Close()); err != nil {
		return "", err
	}
	return text.String(), nil
}

// serve makes three cards for a guest: two on a cable, and one without.
func serve(g *vmtest.Guest, dir string) (cards *vmtest.Cards, near, far *wire.End, err error) {
	for _, name := range []string{"a", "b", "c"} {
		g.Sockets = append(g.Sockets, filepath.Join(dir, name))
	}
	near, far = wire.NewCable(wire.CableOptions{Lossy: true})
	cards, err = vmtest.ServeCards(vmtest.CardsConfig{Sockets: g.Sockets, Ports: []wire.Port{near, far, wire.NewDiscard()}})
	if err == nil {
		_, err = cards.Card(2).Plug(0, nil)
	}
	return cards, near, far, err
}

// guest is one that has two cards of each kind, wired to each other, and the tests.
func guest(ctx context.Context, cache vmtest.Cache, o options) (g vmtest.Guest, err error) {
	g = vmtest.Guest{
		CPUs: o.cpus, Mem: 3072, Limit: o.limit,
		Modules: modules(),
		Command: "ln -sf /usr/bin/* /usr/sbin/* /bin/; ln -sf bash /bin/sh; exec bash /root/selftests.sh", // busybox's shell prefers its own programs
		Files:   []vmtest.File{{Path: "/root/selftests.sh", Data: []byte(script)}, {Path: "/root/csum_env.py", Data: []byte(checksumEnvironment)}},
	}
	if g.QEMU, err = cache.QEMU(ctx); err != nil {
		return g, err
	}
	if g.Kernel, err = cache.Kernel(o.kernel); err != nil {
		return g, err
	}
	if g.Userland, err = cache.Userland(); err != nil {
		return g, err
	}
	if g.Accel, err = cache.Accel(ctx, g.QEMU, g.Kernel, g.Userland); err != nil {
		return g, err
	}
	if g.Trees, err = cache.SelftestTrees(); err != nil {
		return g, err
	}
	for i, kind := range strings.Fields(o.kinds) {
		if kind == model {
			continue
		}
		name, ok := rivals()[kind]
		if !ok {
			return g, fmt.Errorf("no card for driver %q", kind)
		}
		for end := range 2 {
			id, slot := fmt.Sprintf("n%d%c", i, 'a'+end), 20+2*i+end
			g.Devices = append(g.Devices,
				"-netdev", fmt.Sprintf("hubport,id=%s,hubid=%d", id, i),
				"-device", fmt.Sprintf("pcie-root-port,id=p%s,chassis=%d,slot=%d", id, slot, slot),
				"-device", fmt.Sprintf("%s,netdev=%s,bus=p%s", name, id, id))
		}
	}
	_, source, err := cache.Selftests()
	if err != nil {
		return g, err
	}
	endpoint, pair, err := programs(source, o.tests)
	if err != nil {
		return g, err
	}
	g.Files = append(g.Files, vmtest.File{Path: "/root/plan", Data: fmt.Appendf(nil, "kinds='%s'\nendpoint='%s'\npair='%s'\n",
		o.kinds, strings.Join(endpoint, " "), strings.Join(pair, " "))})
	// What packages would have done when they were installed.
	g.Files = append(g.Files,
		vmtest.File{Path: "/etc/passwd", Data: []byte("root:x:0:0:root:/root:/bin/bash\ntcpdump:x:100:100::/:/bin/false\n")},
		vmtest.File{Path: "/etc/group", Data: []byte("root:x:0:\ntcpdump:x:100:\n")})
	err = addProgram(ctx, cache, &g)
	return g, err
}

// addProgram compiles the one test that is no script.
func addProgram(ctx context.Context, cache vmtest.Cache, g *vmtest.Guest) error {
	dir, err := os.MkdirTemp("", "cxkit-csum-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	to := filepath.Join(dir, "csum")
	if err := cache.BuildChecksumTest(ctx, to); err != nil {
		return err
	}
	data, err := os.ReadFile(to)
	g.Files = append(g.Files, vmtest.File{Path: "/src/tools/testing/selftests/net/lib/csum", Data: data, Program: true})
	return err
}

// modules are what the tests make of networks.
func modules() []string {
	return []string{
		model, "e1000e", "igb", "vmxnet3", "virtio_net", "virtio_pci", "8021q", "vrf", "dummy", "veth", "macvlan", "bridge", "ip_gre",
		"ip6_gre", "ipip", "gre", "ip_tunnel", "vxlan", "netconsole", "configfs", "sch_ingress", "sch_mqprio", "sch_ets", "sch_tbf", "sch_prio",
		"cls_flower", "cls_matchall", "cls_basic", "act_gact", "act_mirred", "act_police", "tun", "af_packet_diag", "xsk_diag", "ptp",
	}
}

// folders hold the tests of drivers that any card may be put to.
func folders() []string { return []string{"drivers/net", "drivers/net/hw"} }

// testList is a Makefile's list of tests, testName one of them.
var (
	testList = regexp.MustCompile(`(?m)^TEST_PROGS\s*:?=(?:.*\\\n)*`)
	testName = regexp.MustCompile(`[\w-]+\.(?:py|sh)`)
)

// programs lists the tests that the kernel's Makefiles name. Those on net/forwarding/lib.sh want both ends of
// a wire in their arguments, the others a far end in a namespace.
func programs(source, which string) (endpoint, pair []string, err error) {
	want, err := regexp.Compile(which)
	if err != nil {
		return nil, nil, err
	}
	for _, folder := range folders() {
		at := filepath.Join(source, "tools/testing/selftests", folder)
		makefile, err := os.ReadFile(filepath.Join(at, "Makefile"))
		if err != nil {
			return nil, nil, err
		}
		for _, m := range testName.FindAll(testList.Find(makefile), -1) {
			name := string(m)
			if !want.MatchString(path.Join(folder, name)) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(at, name))
			if err != nil {
				return nil, nil, err
			}
			if strings.Contains(string(text), "forwarding/lib.sh") {
				pair = append(pair, path.Join(folder, name))
			} else {
				endpoint = append(endpoint, path.Join(folder, name))
			}
		}
	}
	if len(endpoint)+len(pair) == 0 {
		return nil, nil, fmt.Errorf("no test of %v is like %q", folders(), which)
	}
	return endpoint, pair, nil
}
