package metrics_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"cxkit/metrics"
)

// serve serves a target until the test ends.
func serve(t *testing.T) (address string) {
	t.Helper()
	s, err := metrics.Serve("127.0.0.1:0", metrics.NewCollector(metrics.Options{Queues: true}, target(8)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.Addr()
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", address, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// What is no scrape gets an answer that says so, or none, and the next scrape is answered.
func TestServerOutlivesHostileClients(t *testing.T) {
	address := serve(t)
	for name, c := range map[string]struct{ request, answer string }{
		"no HTTP":           {"\x00\x01\x02\x03\r\n\r\n", "HTTP/1.1 400"},
		"another method":    {"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", "HTTP/1.1 405"},
		"another path":      {"GET /etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 404"},
		"a long header":     {"GET /metrics HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("a", 64<<10) + "\r\n\r\n", "HTTP/1.1 431"},
		"lengths that lie":  {"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "HTTP/1.1 400"},
		"HTTP of long ago":  {"GET /metrics HTTP/1.0\r\n\r\n", "HTTP/1.0 200"},
		"a name for a host": {"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", "HTTP/1.1 200"},
	} {
		conn := dial(t, address)
		if _, err := io.WriteString(conn, c.request); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || !strings.HasPrefix(line, c.answer) {
			t.Errorf("%s: answer %q, %v, want %s", name, line, err, c.answer)
		}
	}
	// One that reads nothing of many answers.
	deaf := dial(t, address)
	if _, err := io.WriteString(deaf, strings.Repeat("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 50)); err != nil {
		t.Fatal(err)
	}
	mustScrape(t, address)
}

func mustScrape(t *testing.T, address string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	answer, err := client.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(body), "mlx5_rx_packets_total{") {
		t.Errorf("%s, %v, %d bytes", answer.Status, err, len(body))
	}
}

// Connections that do nothing are bounded in number: surplus ones are closed, and one that ends makes room.
func TestServerBoundsConnections(t *testing.T) {
	const bound = 64
	address := serve(t)
	var idle []net.Conn
	for range bound {
		c := dial(t, address)
		// An answer says that the connection is taken.
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 200") {
			t.Fatalf("connection %d: %q, %v", len(idle), line, err)
		}
		idle = append(idle, c)
	}
	surplus := dial(t, address)
	if n, err := surplus.Read(make([]byte, 1)); err == nil || n > 0 {
		t.Fatalf("connection %d is served", bound+1)
	}
	idle[0].Close()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(time.Minute); ; <-tick.C {
		c := dial(t, address)
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if _, err := bufio.NewReader(c).ReadString('\n'); err == nil {
			return
		}
		if time.Now().After(limit) {
			t.Fatal("a connection that ended makes no room")
		}
	}
}
