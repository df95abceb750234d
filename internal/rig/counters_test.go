package rig_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"cxkit/device"
	"cxkit/device/fault"
	"cxkit/device/wire"
	"cxkit/dma"
	"cxkit/driver"
	"cxkit/drivertest"
	"cxkit/internal/rig"
	"cxkit/internal/rig/rigtest"
	"cxkit/prm"
	"cxkit/stats"
	"cxkit/transport/inproc"
)

// cause makes counters move.
type cause struct {
	name  string
	card  device.Config
	lossy bool
	nic   driver.Config
	do    func(e *drivertest.Env, r *rig.Rig)
	// want is what counters grow by; some: at all.
	want map[string]uint64
}

// some is a growth that depends on timing.
const some = ^uint64(0)

// still are the counters that nothing moves in this model: it has no queue pairs. See
// TestRoCEFramesOfEthernetQueuesAreEthernet.
func still() []string {
	return strings.Fields(`rx_vport_rdma_unicast_packets rx_vport_rdma_unicast_bytes tx_vport_rdma_unicast_packets tx_vport_rdma_unicast_bytes
		rx_vport_rdma_multicast_packets rx_vport_rdma_multicast_bytes tx_vport_rdma_multicast_packets tx_vport_rdma_multicast_bytes`)
}

// general is a counter's name with N for the number of a queue and P for a priority.
func general(name string) string {
	name = regexp.MustCompile(`^(rx|tx|ch)\d+_`).ReplaceAllString(name, "${1}N_")
	return regexp.MustCompile(`_prio\d`).ReplaceAllString(name, "_prioP")
}

// TestEveryCounterHasACause generates what each counter counts and reads its value; docs/counters.md names
// the causes.
func TestEveryCounterHasACause(t *testing.T) {
	documented := docs(t)
	moved := map[string]bool{}
	for _, c := range causes() {
		t.Run(c.name, func(t *testing.T) {
			var r *rig.Rig
			bench := func(t *testing.T, o drivertest.Options) *drivertest.Bench {
				c.card.Profile = "cx6dx"
				var err error
				r, err = rig.New(rig.Config{Device: c.card, Transport: inproc.Config{Kind: dma.Heap}, Cable: wire.CableOptions{Lossy: c.lossy}})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { r.Close() })
				f, err := r.Function(0)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { f.Close() })
				return &drivertest.Bench{Function: f, Far: r.Far, Books: func() (drivertest.CardBooks, error) { return rigtest.Books(r, 0), nil }}
			}
			drivertest.RunOne(t, bench, drivertest.Test{Name: c.name, Config: c.nic, Run: func(e *drivertest.Env) {
				before := all(e)
				c.do(e, r)
				var grown stats.Snapshot
				e.Until("counters move", func() bool {
					grown = all(e).Since(before)
					for name := range c.want {
						if grown.Get(name) == 0 {
							return false
						}
					}
					return true
				})
				for name, want := range c.want {
					if got := grown.Get(name); want != some && got != want {
						e.Errorf("%s grew by %d, want %d", name, got, want)
					}
					moved[general(name)] = true
					if row := documented[general(name)]; !strings.Contains(row, c.name) {
						e.Errorf("docs/counters.md does not say that %s moves %s: %q", c.name, general(name), row)
					}
				}
			}})
		})
	}
	var names []string
	bench := func(t *testing.T, _ drivertest.Options) *drivertest.Bench {
		return rigtest.Bench(t, rig.Config{Device: device.Config{Profile: "cx6dx"}, Transport: inproc.Config{Kind: dma.Heap}})
	}
	drivertest.RunOne(t, bench, drivertest.Test{Config: driver.Config{Queues: 2}, Run: func(e *drivertest.Env) {
		pause(e)
		for _, c := range all(e).Counters {
			names = append(names, general(c.Name))
		}
	}})
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if isStill := slices.Contains(still(), name); moved[name] == isStill {
			t.Errorf("%s: has a cause: %v, is among those without: %v", name, moved[name], isStill)
		}
		if documented[name] == "" {
			t.Errorf("docs/counters.md has no row for %s", name)
		}
		delete(documented, name)
	}
	for _, name := range still() {
		if !slices.Contains(names, name) {
			t.Errorf("%s is no counter", name)
		}
	}
	if len(documented) > 0 {
		t.Errorf("docs/counters.md has rows for what is no counter: %v", slices.Sorted(maps.Keys(documented)))
	}
}

// RoCE is what queue pairs send and receive. What Ethernet queues do is Ethernet, whatever it looks like.
func TestRoCEFramesOfEthernetQueuesAreEthernet(t *testing.T) {
	bench := func(t *testing.T, _ drivertest.Options) *drivertest.Bench {
		return rigtest.Bench(t, rig.Config{Device: device.Config{Profile: "cx6dx"}, Transport: inproc.Config{Kind: dma.Heap}})
	}
	drivertest.RunOne(t, bench, drivertest.Test{Config: driver.Config{AllMulticast: true}, Run: func(e *drivertest.Env) {
		v1 := func(dst driver.MAC) []byte {
			f := drivertest.Frame(dst, 100, 1)
			f[12], f[13] = 0x89, 0x15
			return f
		}
		v2 := func(dst driver.MAC) []byte {
			return drivertest.Flow{Dst: dst, Src: peer(), UDP: true, SrcPort: 0xc000, DstPort: 4791}.Packet(64, 1)
		}
		before := all(e)
		e.Send(v1(e.NIC.MAC()), v2(e.NIC.MAC()), v1(groupAddress()), v2(groupAddress()))
		e.Receive(0, 4)
		e.Transmit(0, v1(peer()), v2(peer()), v1(groupAddress()), v2(groupAddress()))
		e.Arrived(4)
		e.Flush(0)
		grown := all(e).Since(before)
		for _, name := range still() {
			if n, there := grown.Lookup(name); n != 0 || !there {
				e.Errorf("%s grew by %d (there: %v)", name, n, there)
			}
		}
		for _, name := range strings.Fields("rx_vport_unicast_packets rx_vport_multicast_packets tx_vport_unicast_packets tx_vport_multicast_packets") {
			if n := grown.Get(name); n != 2 {
				e.Errorf("%s grew by %d, want 2", name, n)
			}
		}
		if err := e.NIC.Exec(e.Ctx, &prm.CreateQPIn{}, &prm.CreateQPOut{}); err == nil {
			e.Error("the card has queue pairs: these counters can move")
		}
	}})
}

// docs reads the rows of docs/counters.md: what stands behind each counter's name.
func docs(t *testing.T) map[string]string {
	t.Helper()
	b, err := os.ReadFile("../../docs/counters.md")
	if err != nil {
		t.Fatal(err)
	}
	counterRow := regexp.MustCompile("^\\| `([A-Za-z0-9_]+)` \\|(.*)")
	rows := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if row := counterRow.FindStringSubmatch(line); row != nil {
			rows[row[1]] = row[2]
		}
	}
	return rows
}

// all reads all counters.
func all(e *drivertest.Env) stats.Snapshot {
	s, err := e.NIC.Stats(e.Ctx)
	e.Must(err)
	return s
}

// register writes a register of the port.
func register(e *drivertest.Env, id prm.RegisterID, reg interface {
	Len() int
	Put([]byte)
}) {
	in := &prm.AccessRegIn{OpMod: uint16(prm.AccessRegWrite), RegisterID: id, RegisterData: make([]byte, reg.Len())}
	reg.Put(in.RegisterData)
	e.Must(e.NIC.Exec(e.Ctx, in, &prm.AccessRegOut{RegisterData: make([]byte, reg.Len())}))
}

// pause switches on pause of the port and of priority 3.
func pause(e *drivertest.Env) {
	register(e, prm.RegIDPFCC, &prm.RegPFCC{LocalPort: 1, PPRX: true, PFCRX: 1 << 3, PrioMaskRX: 0xff})
}

// portMTU sets the port's MTU behind the driver's back.
func portMTU(e *drivertest.Env, mtu uint16) {
	register(e, prm.RegIDPMTU, &prm.RegPMTU{LocalPort: 1, AdminMTU: mtu})
}

// wakes sends a frame while the receive queue waits for it, until that was by event.
func wakes(e *drivertest.Env, r *rig.Rig) {
	rx := e.NIC.RxQueue(0)
	for n := uint32(0); rx.Stats().Events == 0; n++ {
		e.Must(r.Stop())
		e.Send(drivertest.Frame(e.NIC.MAC(), 60, n))
		arms := rx.Stats().Arms
		done := make(chan error, 1)
		go func() { done <- rx.Wait(e.Ctx) }()
		e.Until("the queue waits", func() bool { return rx.Stats().Arms > arms })
		r.Start()
		e.Must(<-done)
		e.Receive(0, 1)
	}
}

// stopped runs f while the card stands still.
func stopped(e *drivertest.Env, r *rig.Rig, f func()) {
	e.Must(r.Stop())
	f()
	r.Start()
}

// failed waits until a queue notices that it has stopped.
func failed(e *drivertest.Env, look func() error) {
	e.Until("the queue is in error", func() bool { return look() != nil })
	e.Must(e.NIC.Recover(e.Ctx))
}

// patiently ends soon: what it waits for does not come.
func patiently(e *drivertest.Env, wait func(context.Context) error) {
	ctx, cancel := context.WithTimeout(e.Ctx, time.Millisecond)
	defer cancel()
	if err := wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		e.Errorf("the wait ended with %v", err)
	}
}

// module is a fault of the port's module.
func module(status prm.ModuleStatus, why uint8) fault.Plan {
	return fault.Plan{Faults: []fault.Fault{{Kind: fault.Module, ModuleStatus: status, ModuleError: why}}}
}
