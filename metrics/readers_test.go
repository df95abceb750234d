package metrics_test

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cxkit/device"
	"cxkit/device/fault"
	"cxkit/device/wire"
	"cxkit/driver"
	"cxkit/internal/rig"
	"cxkit/metrics"
	"cxkit/stats"
)

// Readers of every kind and scrapes go on while a NIC gets other channels, is reset, loses its card, is brought
// back and is closed. None waits for ever, none fails but by saying that the NIC is closed or failed, and none
// sees a counter fall.
func TestReadersOutliveChangesFailureAndEndOfTheirNIC(t *testing.T) {
	r, err := rig.New(rig.Config{Plug: wire.NewDiscard(), Device: device.Config{Seed: 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	f, err := r.Function(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	var at atomic.Pointer[driver.NIC]
	nic, err := driver.Open(t.Context(), f, driver.Config{
		CheckBuffers: true, MaxChannels: 4, RxRing: 64, TxRing: 64, StatsInterval: new(time.Duration(0)), HealthInterval: 10 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	at.Store(nic)
	h := metrics.Handler(metrics.NewCollector(metrics.Options{Queues: true}, metrics.Target{
		Device: "0000:08:00.0", Port: "1", Counters: func() stats.Snapshot { return at.Load().QuickAllStats() },
		Commands: func() stats.Commands { return at.Load().CommandStats() }, Health: func() stats.Health { return at.Load().Health() },
		Pages: func() []stats.FunctionPages { return at.Load().FunctionPages() },
	}))
	over := make(chan struct{})
	var readers sync.WaitGroup
	var readings atomic.Uint64
	for i := range 4 {
		readers.Go(func() {
			var last map[string]uint64
			for k := i; ; k++ {
				select {
				case <-over:
					return
				default:
					runtime.Gosched()
				}
				nic := at.Load()
				var s stats.Snapshot
				switch k % 8 {
				case 0, 4:
					s = nic.QuickStats()
				case 1, 5, 6, 7:
					s = nic.QuickAllStats()
				case 2:
					s, _ = nic.Stats(t.Context()) // an error is that of a NIC that fails or ends
				case 3:
					w := httptest.NewRecorder()
					h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
					if w.Code != http.StatusServiceUnavailable && !strings.Contains(w.Body.String(), "mlx5_rx_packets_total{") {
						t.Errorf("scrape: %d, %.200s", w.Code, w.Body)
					}
					nic.SoftwareStats()
					continue
				}
				now := make(map[string]uint64, len(s.Counters))
				for _, c := range s.Counters {
					if c.Value < last[c.Name] && !stats.Gauge(c.Name) {
						t.Errorf("%s was %d and is %d", c.Name, last[c.Name], c.Value)
					}
					now[c.Name] = c.Value
				}
				last = now
				readings.Add(1)
			}
		})
	}
	// Something to count.
	send := func(nic *driver.NIC, frames int) {
		t.Helper()
		tx, pkts := nic.TxQueue(nic.Queues()-1), make([]driver.Packet, 1)
		for range frames {
			if tx.Get(pkts) != 1 {
				t.Fatal("no buffer")
			}
			pkts[0].Data = pkts[0].Data[:60]
			if tx.Send(pkts) != 1 {
				t.Fatal("not sent")
			}
		}
		if err := tx.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	seen := func(n uint64) {
		for from := readings.Load(); readings.Load() < from+n && t.Context().Err() == nil; {
			runtime.Gosched()
		}
	}
	reset := func() {
		t.Helper()
		if nic, err = nic.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		at.Store(nic)
	}
	for _, n := range []int{4, 2, 3, 1} {
		if _, err := nic.SetChannels(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		send(nic, 10)
		seen(8)
	}
	reset()
	send(nic, 10)
	seen(8)
	broken := fault.AssertCX6()
	broken.ResetRequest = true
	if err := r.Card.Inject(fault.Plan{Faults: []fault.Fault{{Kind: fault.Health, Health: broken}}}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-nic.Failed():
	case <-time.After(time.Minute):
		t.Fatal("the failure is not noticed")
	}
	seen(8)
	reset()
	send(nic, 10)
	seen(8)
	if err := nic.Close(t.Context()); err != nil {
		t.Error(err)
	}
	seen(8)
	close(over)
	readers.Wait()
	if n := nic.SoftwareStats().Get("tx_packets"); n != 60 {
		t.Errorf("tx_packets is %d, want 60", n)
	}
}
