package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"cxkit/device/fault"
	"cxkit/stats"
	"cxkit/trace"
)

// fake is a card that answers from its fields.
type fake struct {
	plans []fault.Plan
	mu    sync.Mutex
	link  []bool
	block chan struct{} // Stats waits for it or its context
	storm Storm
}

func (f *fake) Info(context.Context) (Info, error) {
	return Info{Command: "cxkit run --play x", PID: 7, Device: "sim:cx5", Seed: 1 << 63, Address: "0000:08:00.0", LinkUp: true}, nil
}

func (f *fake) Stats(ctx context.Context) (stats.Snapshot, error) {
	if f.block != nil {
		select {
		case <-f.block:
		case <-ctx.Done():
			return stats.Snapshot{}, ctx.Err()
		}
	}
	var s stats.Snapshot
	s.Add("rx_packets", 1<<63)
	return s, nil
}

func (f *fake) VportStats(_ context.Context, vport uint16) (stats.Snapshot, error) {
	var s stats.Snapshot
	s.Add("rx_vport_unicast_packets", uint64(vport))
	return s, nil
}

// plain is a card without a switch.
type plain struct{ Card }

func (f *fake) SetLink(_ context.Context, up bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.link = append(f.link, up)
	if len(f.link) > 2 {
		return errors.New("the wire is worn out")
	}
	return nil
}

func (f *fake) Books(context.Context) ([]Book, error) {
	n := 12
	return []Book{{Name: "pages", Driver: 12, Card: &n}, {Name: "buffers", Driver: 3}}, nil
}

func (f *fake) Reclaim(_ context.Context, pages int) error {
	if pages > 1000 {
		return errors.New("firmware keeps at most 1000")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.storm = Storm{Phase: "draining", Pages: pages, Hoarded: pages, Takes: 3, Took: time.Second}
	return nil
}

func (f *fake) Storm(context.Context) (Storm, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.storm, nil
}

func (f *fake) Inject(_ context.Context, p fault.Plan) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plans = append(f.plans, p)
	if len(f.plans) > 1 {
		return errors.New("broken enough")
	}
	return nil
}

func (f *fake) Faults(context.Context) ([]fault.Report, error) {
	return []fault.Report{{Name: "x", Kind: fault.Late, Matched: 5, Struck: 3}}, nil
}

func (f *fake) Health(context.Context) (stats.Health, error) {
	return stats.Health{
		Misses: 2, Power: &stats.Power{Known: true, Watts: 27, Insufficient: true},
		Reporters: []stats.Reporter{{Name: "fw", State: "error", Dump: &stats.HealthBuffer{ExtSyndrome: 0x8f7a}}},
	}, nil
}

func (f *fake) Overview(ctx context.Context) (Overview, error) {
	s, err := f.Stats(ctx)
	return Overview{Info: Info{Queues: 3}, Stats: s, Commands: &stats.Commands{Issued: 9}, Buffers: []Buffers{{"posted", 7}}}, err
}

func (f *fake) Trace(_ context.Context, n int) ([]trace.Record, uint64, error) {
	r := trace.New(trace.Config{})
	l := r.For(trace.Driver, "0000:08:00.0")
	for i := range 5 {
		l.Note(fmt.Sprint(i))
	}
	return r.Last(n), 5, nil
}

// home gives the test a folder for sockets. Paths of sockets are short: t.TempDir's are not always.
func home(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cx")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("XDG_RUNTIME_DIR", dir)
	return filepath.Join(dir, "cxkit")
}

func start(t *testing.T, card Card, lim limits) *Server {
	t.Helper()
	s, err := serve(card, nil, lim)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func attach(t *testing.T, path string) *Client {
	t.Helper()
	c, err := Attach(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestClientReachesTheOnlyRunningCard(t *testing.T) {
	home(t)
	card := &fake{}
	start(t, card, defaultLimits())
	c := attach(t, "")
	ctx := t.Context()

	if info, err := c.Info(ctx); err != nil || info.Seed != 1<<63 || info.Device != "sim:cx5" || !info.LinkUp {
		t.Errorf("Info: %+v, %v", info, err)
	}
	if s, err := c.Stats(ctx); err != nil || s.Get("rx_packets") != 1<<63 {
		t.Errorf("Stats: %+v, %v", s, err)
	}
	if err := c.SetLink(ctx, false); err != nil {
		t.Error(err)
	}
	if err := c.SetLink(ctx, true); err != nil {
		t.Error(err)
	}
	var remote *RemoteError
	if err := c.SetLink(ctx, true); !errors.As(err, &remote) || remote.Text != "the wire is worn out" {
		t.Errorf("the card's error arrives as %v", err)
	}
	if fmt.Sprint(card.link) != "[false true true]" {
		t.Errorf("card saw %v", card.link)
	}
	books, err := c.Books(ctx)
	if err != nil || len(books) != 2 || *books[0].Card != 12 || books[1].Card != nil {
		t.Errorf("Books: %+v, %v", books, err)
	}
	if err := c.Reclaim(ctx, 1001); !errors.As(err, &remote) || remote.Text != "firmware keeps at most 1000" {
		t.Errorf("a storm the card refuses: %v", err)
	}
	if err := c.Reclaim(ctx, 1000); err != nil {
		t.Error(err)
	}
	if s, err := c.Storm(ctx); err != nil || s != card.storm || s.Pages != 1000 || s.Took != time.Second {
		t.Errorf("Storm: %+v, %v", s, err)
	}
	text, err := c.Trace(ctx, 2)
	if err != nil || text.Lost != 5 {
		t.Errorf("Trace: %+v, %v", text, err)
	}
	if records, err := trace.Read(strings.NewReader(text.Text)); err != nil || len(records) != 2 || records[1].Text != "4" {
		t.Errorf("trace reads as %v, %v", records, err)
	}
	if _, err := c.Trace(ctx, 0); !errors.As(err, &remote) {
		t.Errorf("trace of 0 records: %v", err)
	}
}

func TestFaultsAreInjected(t *testing.T) {
	home(t)
	card := &fake{}
	start(t, card, defaultLimits())
	c := attach(t, "")
	ctx := t.Context()
	if err := c.Inject(ctx, "mine", "[[fault]]\nkind = \"late\"\ndelay = \"1s\"\n"); err != nil {
		t.Fatal(err)
	}
	if p := card.plans[0]; p.Seed != 1<<63 || len(p.Faults) != 1 || p.Faults[0].Delay != time.Second {
		t.Errorf("card got %+v; want the card's seed and one fault", p)
	}
	for text, want := range map[string]string{
		"[[fault]]\nkind = \"late\"\n":         "mine:1: fault 1: late: delay is missing",
		"[[fault]]\nkind = \"x\"\nspeed = 1\n": "mine:3:1: no key fault.speed",
		"":                                     "mine: the plan is empty",
		"seed = 1\n[latency]\nNOP = \"1s\"\n":  "broken enough",
	} {
		var remote *RemoteError
		if err := c.Inject(ctx, "mine", text); !errors.As(err, &remote) || !strings.Contains(remote.Text, want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if r, err := c.Faults(ctx); err != nil || len(r) != 1 || r[0].Struck != 3 || r[0].Kind != fault.Late {
		t.Errorf("Faults: %+v, %v", r, err)
	}
	if h, err := c.Health(ctx); err != nil || h.Misses != 2 || h.Power.Watts != 27 || h.OK() || h.Reporters[0].Dump.ExtSyndrome != 0x8f7a {
		t.Errorf("Health: %+v, %v", h, err)
	}
}

func TestSocketIsClosedToOthers(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Log("file modes say nothing on windows; the folder is the user's own")
		return
	}
	dir := home(t)
	s := start(t, &fake{}, defaultLimits())
	for path, want := range map[string]os.FileMode{s.Path(): 0o600, dir: 0o700} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v (%v)", path, info.Mode().Perm(), want, err)
		}
	}
}

func TestFolderThatOthersCanWriteIsRefused(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Log("file modes say nothing on windows")
		return
	}
	dir := home(t)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if s, err := Serve(&fake{}, nil); err == nil || !strings.Contains(err.Error(), "written by others") {
		t.Errorf("served in a folder of mode 0777: %v, %v", s, err)
	}
}

func TestLinkInPlaceOfTheFolderIsRefused(t *testing.T) {
	dir := home(t)
	if err := os.Symlink(t.TempDir(), dir); err != nil {
		t.Fatal(err)
	}
	if s, err := Serve(&fake{}, nil); err == nil || !strings.Contains(err.Error(), "not a folder") {
		t.Errorf("served behind a symbolic link: %v, %v", s, err)
	}
}

func TestNoCardIsAnErrorThatSaysWhatToDo(t *testing.T) {
	home(t)
	if _, err := Attach(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "cxkit run") {
		t.Errorf("got %v", err)
	}
}

func TestSeveralCardsAreListed(t *testing.T) {
	home(t)
	a, b := start(t, &fake{}, defaultLimits()), start(t, &fake{}, defaultLimits())
	if a.Path() == b.Path() {
		t.Fatal("both cards have one socket")
	}
	_, err := Attach(t.Context(), "")
	for _, want := range []string{a.Path(), b.Path(), "--attach", "cxkit run --play x"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
	if info, err := attach(t, b.Path()).Info(t.Context()); err != nil || info.PID != 7 {
		t.Errorf("attached by path: %+v, %v", info, err)
	}
}

func TestSocketOfADeadProcessIsRemoved(t *testing.T) {
	dir := home(t)
	start(t, &fake{}, defaultLimits())
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "1.sock")})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false) // as a killed process leaves it
	l.Close()
	if err := os.WriteFile(filepath.Join(dir, "notes.sock"), []byte("not a socket"), 0o600); err != nil {
		t.Fatal(err)
	}
	attach(t, "") // the dead one is no candidate
	if _, err := os.Stat(filepath.Join(dir, "1.sock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the dead socket is still there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "notes.sock")); err != nil {
		t.Errorf("a file that is no socket was touched: %v", err)
	}
}

func TestCloseRemovesTheSocketAndEndsConnections(t *testing.T) {
	home(t)
	s := start(t, &fake{block: make(chan struct{})}, defaultLimits())
	c := attach(t, s.Path())
	if _, err := c.Info(t.Context()); err != nil {
		t.Fatal(err)
	}
	attached := attach(t, s.Path())
	if _, err := attached.Info(t.Context()); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { _, err := c.Stats(context.Background()); done <- err }() // hangs in the card
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, ErrEnded) {
		t.Errorf("a request under way at Close got: %v", err)
	}
	for range 2 { // what a closed connection says depends on when it is asked
		if _, err := attached.Info(t.Context()); !errors.Is(err, ErrEnded) {
			t.Errorf("a request after Close got: %v", err)
		}
	}
	if _, err := os.Stat(s.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("socket is still there: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// A request that is too long is not sent: nobody answers it, and nobody waits for that.
func TestRequestThatIsTooLongFailsAtOnce(t *testing.T) {
	home(t)
	c := attach(t, start(t, &fake{}, defaultLimits()).Path())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.Inject(ctx, "long.toml", strings.Repeat("#", maxRequest)); !errors.Is(err, ErrTooLong) {
		t.Errorf("error: %v", err)
	}
	if _, err := c.Info(t.Context()); err != nil {
		t.Errorf("the connection is of no use any more: %v", err)
	}
}

func TestCallEndsWithItsContext(t *testing.T) {
	home(t)
	s := start(t, &fake{block: make(chan struct{})}, defaultLimits())
	c := attach(t, s.Path())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := c.Stats(ctx); done <- err }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestRequestHasADeadline(t *testing.T) {
	home(t)
	lim := defaultLimits()
	lim.request = time.Millisecond
	s := start(t, &fake{block: make(chan struct{})}, lim)
	_, err := attach(t, s.Path()).Stats(t.Context())
	var remote *RemoteError
	if !errors.As(err, &remote) || !strings.Contains(remote.Text, "deadline") {
		t.Errorf("got %v", err)
	}
}

// raw connects without a client.
func raw(t *testing.T, s *Server) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", s.Path())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestCountersOfVportsAreReachedWhereTheSwitchIs(t *testing.T) {
	home(t)
	start(t, &fake{}, defaultLimits())
	if s, err := attach(t, "").VportStats(t.Context(), 7); err != nil || s.Get("rx_vport_unicast_packets") != 7 {
		t.Errorf("%+v, %v", s, err)
	}
	home(t)
	start(t, plain{&fake{}}, defaultLimits())
	if _, err := attach(t, "").VportStats(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "the driver of this card is not here") {
		t.Errorf("a card without a switch: %v", err)
	}
}

func TestHostileRequestsAreAnsweredWithAnError(t *testing.T) {
	home(t)
	lim := defaultLimits()
	lim.clients = 64
	s := start(t, &fake{}, lim)
	for text, want := range map[string]string{
		"rubbish\n":                  "not JSON",
		"\n":                         "not JSON",
		"[]\n":                       "not JSON",
		`{"v":2,"op":"info"}` + "\n": "version 2 is not spoken here, version 1 is",
		`{"op":"info"}` + "\n":       "version 0 is not",
		`{"v":1}` + "\n":             "no operation",
		`{"v":1,"op":"` + strings.Repeat("x", 200) + "\"}\n":     "no operation",
		`{"v":1,"op":"vport"}` + "\n":                            "vport is missing",
		`{"v":1,"op":"vport","args":{"vport":65536}}` + "\n":     "vport: arguments",
		`{"v":1,"op":"link"}` + "\n":                             "up is missing",
		`{"v":1,"op":"link","args":{"up":"yes"}}` + "\n":         "link: arguments",
		`{"v":1,"op":"trace","args":{"last":-1}}` + "\n":         "want 1 to",
		`{"v":1,"op":"reclaim"}` + "\n":                          "want 1 or more",
		`{"v":1,"op":"reclaim","args":{"pages":-1}}` + "\n":      "want 1 or more",
		`{"v":1,"op":"reclaim","args":{"pages":1e99}}` + "\n":    "reclaim: arguments",
		`{"v":1,"op":"trace","args":{"last":1000000000}}` + "\n": "want 1 to",
		strings.Repeat("[", 60000) + "\n":                        "not JSON",
		strings.Repeat("x", maxRequest+4096):                     "longer than",
	} {
		c := raw(t, s)
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(c).ReadString('\n')
		if err != nil || !strings.Contains(line, `"error":`) || !strings.Contains(line, want) {
			t.Errorf("%.40q: %s, %v; want an error with %q", text, line, err, want)
		}
	}
	attach(t, "") // and the server is still there
}

func TestConnectionOutlivesARefusedRequest(t *testing.T) {
	home(t)
	s := start(t, &fake{}, defaultLimits())
	c := raw(t, s)
	in := bufio.NewReader(c)
	for _, text := range []string{"rubbish\n", `{"v":1,"op":"info"}` + "\n"} {
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		line, err := in.ReadString('\n')
		if err != nil || strings.Contains(line, "error") != (text == "rubbish\n") {
			t.Errorf("%q: %s, %v", text, line, err)
		}
	}
}

func TestClientsAreBoundedInNumber(t *testing.T) {
	home(t)
	lim := defaultLimits()
	lim.clients = 2
	s := start(t, &fake{}, lim)
	first := attach(t, s.Path())
	for range 2 { // the second fills the server, the third is one too many
		c := attach(t, s.Path())
		if _, err := c.Info(t.Context()); err != nil && !strings.Contains(err.Error(), "too many clients") &&
			!errors.Is(err, ErrEnded) {
			t.Errorf("one client too many got %v", err)
		} else if err != nil {
			if _, err := first.Info(t.Context()); err != nil {
				t.Errorf("the first client suffers: %v", err)
			}
			return
		}
	}
	t.Error("three clients were served, two are allowed")
}

func TestIdleConnectionIsClosed(t *testing.T) {
	home(t)
	lim := defaultLimits()
	lim.idle = time.Millisecond
	c := raw(t, start(t, &fake{}, lim))
	if _, err := io.WriteString(c, `{"v":1,`); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("got %v, want the end of the connection", err)
	}
}

func TestReplyThatIsTooLongBecomesAnError(t *testing.T) {
	var b strings.Builder
	if err := writeLine(&b, reply{V: version, Result: []byte(`"` + strings.Repeat("x", 500) + `"`)}, 200); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "reply longer than 200 bytes") || len(b.String()) > 200 {
		t.Errorf("got %s", b.String())
	}
}

func TestHostileServerCannotHurtAClient(t *testing.T) {
	dir := home(t)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"":                              "process ended",
		"rubbish\n":                     "not JSON",
		"{\"v\":9}\n":                   "version 9",
		"{\"v\":1}\n":                   "unexpected end of JSON",
		"{\"v\":1,\"result\":{\"pid\":": "unexpected EOF",
		"{\"v\":1,\"result\":[1]}\n":    "cannot unmarshal",
	} {
		path := filepath.Join(dir, "h.sock")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan struct{})
		go func() {
			defer close(served)
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
				return
			}
			io.WriteString(c, text)
		}()
		_, err = attach(t, path).Info(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		<-served
		l.Close()
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"v":1,"op":"info"}`))
	f.Add([]byte(`{"v":1,"op":"trace","args":{"last":3}}`))
	f.Add([]byte(`{"v":1,"op":"link","args":{"up":true}}`))
	s := &Server{card: &fake{}, lim: defaultLimits(), ctx: context.Background()}
	f.Fuzz(func(t *testing.T, line []byte) {
		r := s.answer(line)
		if (r.Error == "") == (r.Result == nil) {
			t.Errorf("%q: neither result nor error, or both: %+v", line, r)
		}
	})
}
