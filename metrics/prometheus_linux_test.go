package metrics_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"cxkit/metrics"
)

// A real Prometheus, Debian's package, scrapes a collector over loopback, and answers queries about it. With
// CXKIT_PROMETHEUS=require its absence is a failure; else the test needs the program in PATH.
func TestPrometheusScrapes(t *testing.T) {
	program, err := exec.LookPath("prometheus")
	if err != nil {
		if os.Getenv("CXKIT_PROMETHEUS") == "require" {
			t.Fatal("Debian's package prometheus is not installed")
		}
		t.Skip("needs Debian's package prometheus")
	}
	s, err := metrics.Serve("127.0.0.1:0", metrics.NewCollector(metrics.Options{Queues: true}, target(4)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	dir := t.TempDir()
	config := fmt.Sprintf("scrape_configs:\n- job_name: cxkit\n  scrape_interval: 200ms\n  scrape_timeout: 200ms\n  static_configs:\n  - targets: ['%s']\n", s.Addr())
	if err := os.WriteFile(filepath.Join(dir, "p.yml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close() // it opens the port itself
	var log bytes.Buffer
	cmd := exec.Command(program, "--config.file", filepath.Join(dir, "p.yml"), "--storage.tsdb.path", filepath.Join(dir, "data"),
		"--web.listen-address", address)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
		if t.Failed() {
			t.Logf("%s", log.Bytes())
		}
	}()
	for query, want := range map[string]string{
		`up{job="cxkit"}`: "1",
		`mlx5_rx_out_of_buffer_total{device="0000:08:00.0",port="1"}`:              "3000",
		`mlx5_queue_rx_packets_total{queue="3"}`:                                   "2",
		`mlx5_command_latency_seconds_count{command="QUERY_VPORT_COUNTER"}`:        "3",
		`sum(mlx5_firmware_pages)`:                                                 "521",
		`rate(mlx5_rx_out_of_buffer_total[5m]) >= bool 0`:                          "1",
		`count(count by (__name__) ({job="cxkit",__name__=~"mlx5_.*"})) > bool 40`: "1",
	} {
		eventually(t, "http://"+address, query, want)
	}
}

// eventually asks until the answer is there: another process scrapes when it likes.
func eventually(t *testing.T, base, query, want string) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var got string
	for limit := time.Now().Add(time.Minute); time.Now().Before(limit); <-tick.C {
		if got = ask(base, query); got == want {
			return
		}
	}
	t.Errorf("%s is %q, want %s", query, got, want)
}

// ask returns the value of the first series of a query, "" if there is none.
func ask(base, query string) string {
	r, err := http.Get(base + "/api/v1/query?query=" + url.QueryEscape(query))
	if err != nil {
		return ""
	}
	defer r.Body.Close()
	b, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	var answer struct {
		Data struct {
			Result []struct{ Value [2]any }
		}
	}
	if err != nil || json.Unmarshal(b, &answer) != nil || len(answer.Data.Result) == 0 {
		return ""
	}
	return fmt.Sprint(answer.Data.Result[0].Value[1])
}
