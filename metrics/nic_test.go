package metrics_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"cxkit/device/wire"
	"cxkit/driver"
	"cxkit/internal/rig"
	"cxkit/metrics"
)

// open makes a NIC on a card that stands still: its firmware answers nothing until it is started.
func open(t *testing.T, config driver.Config) (*rig.Rig, *driver.NIC) {
	t.Helper()
	r, err := rig.New(rig.Config{Plug: wire.NewDiscard()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	f, err := r.Function(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	config.CheckBuffers = true
	nic, err := driver.Open(t.Context(), f, config)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	return r, nic
}

// targetOf is how cxkit run exposes a NIC.
func targetOf(nic *driver.NIC) metrics.Target {
	info := nic.Info()
	return metrics.Target{
		Device: info.Address, Port: "1", Model: info.Model, Firmware: info.Firmware.String(),
		Counters: nic.QuickAllStats, Commands: nic.CommandStats, Health: nic.Health, Pages: nic.FunctionPages,
	}
}

// A scrape issues no command on its own path: with firmware that stands still two hundred of them
// are answered, and what they have asked for in the background is one refresh, which hangs in its first command.
func TestScrapeSendsNoCommandAndDoesNotWait(t *testing.T) {
	r, nic := open(t, driver.Config{StatsInterval: new(time.Duration(0))}) // each reading asks
	h := metrics.Handler(metrics.NewCollector(metrics.Options{Queues: true}, targetOf(nic)))
	before := nic.CommandStats()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
				if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "mlx5_rx_packets_total{") {
					t.Errorf("status %d: %.200s", w.Code, w.Body)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := nic.CommandStats().Issued - before.Issued; n > 1 {
		t.Errorf("%d commands for 200 scrapes, want the first one of a refresh in the background", n)
	}
	r.Start()
	s, err := nic.Stats(t.Context())
	if err != nil || s.Get("link_down_events_phy") != 0 {
		t.Errorf("the card goes on: %v", err)
	}
	if err := nic.Close(t.Context()); err != nil {
		t.Error(err)
	}
	// Of a closed NIC the last counters are exposed.
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if !strings.Contains(w.Body.String(), "mlx5_rx_packets_total{") {
		t.Errorf("of a closed NIC: %.200s", w.Body)
	}
}

// Reports R53: a NIC whose driver bypasses the kernel is not in /proc/net/dev. What it moves, and what its
// port does, is exposed here.
func TestKernelBypassIsVisible(t *testing.T) {
	_, nic := open(t, driver.Config{Queues: 2})
	h := metrics.Handler(metrics.NewCollector(metrics.Options{}, targetOf(nic)))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, name := range strings.Fields(`rx_packets rx_bytes tx_packets tx_bytes rx_out_of_buffer rx_packets_phy tx_packets_phy
		rx_discards_phy rx_prio0_packets rx_pause_ctrl_phy link_down_events_phy outbound_pci_buffer_overflow`) {
		if !strings.Contains(w.Body.String(), "mlx5_"+name+"_total{device=\"0000:08:00.0\",port=\"1\"} ") {
			t.Errorf("%s is not exposed", name)
		}
	}
}
