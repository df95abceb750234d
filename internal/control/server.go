package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"cxkit/device/fault"
	"cxkit/internal/plan"
	"cxkit/stats"
	"cxkit/trace"
)

// Card is what a server reaches of a running card. Its methods are called from several goroutines at a
// time; each gets a context that ends with the request.
type Card interface {
	Info(ctx context.Context) (Info, error)
	Stats(ctx context.Context) (stats.Snapshot, error)
	// SetLink plugs the far end of the card's wire in or out.
	SetLink(ctx context.Context, up bool) error
	Books(ctx context.Context) ([]Book, error)
	// Reclaim begins a storm of firmware pages; Storm says how far it has come.
	Reclaim(ctx context.Context, pages int) error
	Storm(ctx context.Context) (Storm, error)
	// Inject breaks the card by a checked plan, which starts now. Faults says what struck so far.
	Inject(ctx context.Context, p fault.Plan) error
	Faults(ctx context.Context) ([]fault.Report, error)
	// Health is what is known of the card's health.
	Health(ctx context.Context) (stats.Health, error)
	// Overview is what is known without asking the card: it issues no command and does not wait.
	Overview(ctx context.Context) (Overview, error)
	// Trace returns the latest n records, oldest first, and how many older ones are lost.
	Trace(ctx context.Context, n int) (records []trace.Record, lost uint64, err error)
}

// Switch is a Card whose driver manages an e-switch.
type Switch interface {
	// VportStats reads the counters of one of its ports: 0 is the physical function's, n that of virtual
	// function n, 65,535 the uplink.
	VportStats(ctx context.Context, vport uint16) (stats.Snapshot, error)
}

// Server serves one card on one socket.
type Server struct {
	card Card
	lim  limits
	log  *slog.Logger
	path string
	l    net.Listener
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu    sync.Mutex // guards conns; nil once closed
	conns map[net.Conn]struct{}
}

// Serve opens a socket in Dir and serves card until Close. log gets what clients did wrong; nil discards.
func Serve(card Card, log *slog.Logger) (*Server, error) {
	return serve(card, log, defaultLimits())
}

func serve(card Card, log *slog.Logger, lim limits) (*Server, error) {
	dir, err := ownDir()
	if err != nil {
		return nil, err
	}
	l, path, err := listen(dir)
	if err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Server{card: card, lim: lim, log: log, path: path, l: l, conns: map[net.Conn]struct{}{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.wg.Go(s.accept)
	return s, nil
}

// Path is the socket's.
func (s *Server) Path() string { return s.path }

// Close ends the server, its connections and the requests under way, and removes the socket.
func (s *Server) Close() error {
	s.mu.Lock()
	conns := s.conns
	s.conns = nil
	s.mu.Unlock()
	if conns == nil {
		return nil
	}
	s.stop()
	err := s.l.Close() // removes the socket too
	for c := range conns {
		c.Close()
	}
	s.wg.Wait()
	return err
}

// acceptPause follows an error of accept that is not our own closing: out of file descriptors, say.
const acceptPause = 100 * time.Millisecond

func (s *Server) accept() {
	for {
		c, err := s.l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			s.log.Warn("control: accept", "error", err)
			select {
			case <-time.After(acceptPause):
				continue
			case <-s.ctx.Done():
				return
			}
		}
		if !s.add(c) {
			s.refuse(c)
			continue
		}
		s.wg.Go(func() {
			defer s.remove(c)
			if err := s.serve(c); err != nil {
				s.log.Debug("control: connection", "error", err)
			}
		})
	}
}

func (s *Server) add(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil || len(s.conns) >= s.lim.clients {
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *Server) remove(c net.Conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	c.Close()
}

// refuse tells a client that there are too many. It never waits: the socket's buffer takes the line or
// the client gets none.
func (s *Server) refuse(c net.Conn) {
	s.log.Warn("control: too many clients", "most", s.lim.clients)
	c.SetWriteDeadline(time.Now().Add(time.Millisecond))
	writeLine(c, reply{V: version, Error: fmt.Sprintf("too many clients: %d are connected", s.lim.clients)}, maxReply)
	c.Close()
}

// serve answers one client's requests until it goes away or breaks the rules.
func (s *Server) serve(c net.Conn) error {
	in := bufio.NewReaderSize(c, 4096)
	for {
		c.SetReadDeadline(time.Now().Add(s.lim.idle))
		line, err := readLine(in, maxRequest)
		if err == io.EOF {
			return nil
		}
		var out reply
		if err == nil {
			out = s.answer(line)
		} else if errors.Is(err, ErrTooLong) {
			out = reply{Error: fmt.Sprintf("request longer than %d bytes", maxRequest)}
		} else {
			return err
		}
		out.V = version
		c.SetWriteDeadline(time.Now().Add(s.lim.write))
		if werr := writeLine(c, out, maxReply); werr != nil || err != nil {
			return errors.Join(err, werr)
		}
	}
}

// answer does one request.
func (s *Server) answer(line []byte) reply {
	var r request
	if err := json.Unmarshal(line, &r); err != nil {
		return reply{Error: "request is not JSON: " + err.Error()}
	}
	if r.V != version {
		return reply{Error: fmt.Sprintf("version %d is not spoken here, version %d is", r.V, version)}
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.lim.request)
	defer cancel()
	result, err := s.do(ctx, r)
	if err != nil && s.ctx.Err() != nil {
		err = ErrEnded // what the card says is a consequence
	}
	if err != nil {
		return reply{Error: err.Error()}
	}
	b, err := json.Marshal(result)
	if err != nil {
		return reply{Error: "reply: " + err.Error()}
	}
	return reply{Result: b}
}

func (s *Server) do(ctx context.Context, r request) (any, error) {
	switch r.Op {
	case opInfo:
		return s.card.Info(ctx)
	case opStats:
		return s.card.Stats(ctx)
	case opBooks:
		return s.card.Books(ctx)
	case opLink:
		var args linkArgs
		if err := arguments(r, &args); err != nil {
			return nil, err
		}
		if args.Up == nil {
			return nil, errors.New("link: up is missing")
		}
		return struct{}{}, s.card.SetLink(ctx, *args.Up)
	case opReclaim:
		var args reclaimArgs
		if err := arguments(r, &args); err != nil {
			return nil, err
		}
		if args.Pages < 1 {
			return nil, fmt.Errorf("reclaim: %d pages, want 1 or more", args.Pages)
		}
		return struct{}{}, s.card.Reclaim(ctx, args.Pages)
	case opStorm:
		return s.card.Storm(ctx)
	case opInject:
		var args injectArgs
		if err := arguments(r, &args); err != nil {
			return nil, err
		}
		return struct{}{}, s.inject(ctx, args)
	case opFaults:
		return s.card.Faults(ctx)
	case opHealth:
		return s.card.Health(ctx)
	case opOverview:
		return s.card.Overview(ctx)
	case opVport:
		var args vportArgs
		if err := arguments(r, &args); err != nil {
			return nil, err
		}
		if args.Vport == nil {
			return nil, errors.New("vport: vport is missing")
		}
		s, manages := s.card.(Switch)
		if !manages {
			return nil, errors.New("vport: the driver of this card is not here, and with it the e-switch")
		}
		return s.VportStats(ctx, *args.Vport)
	case opTrace:
		var args traceArgs
		if err := arguments(r, &args); err != nil {
			return nil, err
		}
		if args.Last < 1 || args.Last > MaxTrace {
			return nil, fmt.Errorf("trace: last is %d, want 1 to %d", args.Last, MaxTrace)
		}
		return s.trace(ctx, args.Last)
	}
	return nil, fmt.Errorf("no operation %.40q in version %d", r.Op, version)
}

// inject reads a plan and hands it on. A plan without a seed takes the card's.
func (s *Server) inject(ctx context.Context, args injectArgs) error {
	info, err := s.card.Info(ctx)
	if err != nil {
		return err
	}
	p, err := plan.Parse(args.Name, []byte(args.Plan), info.Seed)
	if err != nil {
		return err
	}
	if p.Empty() {
		return fmt.Errorf("%s: the plan is empty", args.Name)
	}
	return s.card.Inject(ctx, p)
}

func (s *Server) trace(ctx context.Context, n int) (TraceText, error) {
	records, lost, err := s.card.Trace(ctx, n)
	if err != nil {
		return TraceText{}, err
	}
	var b bytes.Buffer
	if err := trace.WriteText(&b, records); err != nil {
		return TraceText{}, err
	}
	return TraceText{Text: b.String(), Lost: lost}, nil
}

func arguments(r request, into any) error {
	if len(r.Args) == 0 {
		return nil
	}
	if err := json.Unmarshal(r.Args, into); err != nil {
		return fmt.Errorf("%s: arguments: %w", r.Op, err)
	}
	return nil
}

// writeLine writes v as one line of at most limit bytes; a longer reply becomes an error.
func writeLine(w io.Writer, v any, limit int) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(b) >= limit {
		if _, ok := v.(reply); !ok {
			return ErrTooLong
		}
		if b, err = json.Marshal(reply{V: version, Error: fmt.Sprintf("reply longer than %d bytes: ask for less", limit)}); err != nil {
			return err
		}
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// readLine reads a line of at most limit bytes, without its end. A line that the end of the stream cuts
// is io.ErrUnexpectedEOF.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > limit {
			return nil, ErrTooLong
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case errors.Is(err, bufio.ErrBufferFull):
		case err == io.EOF && len(line) > 0:
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}
