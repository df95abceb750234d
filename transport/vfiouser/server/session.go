//go:build linux

package server

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"cxkit/pci"
	"cxkit/transport/internal/addrspace"
	"cxkit/transport/internal/cfgspace"
	"cxkit/transport/internal/msix"
	"cxkit/transport/vfiouser"
	"cxkit/transport/vfiouser/internal/sock"
)

// flushAt is how many bytes of replies are gathered at most.
const flushAt = 64 << 10

// session is one client. Requests are performed by one goroutine at a time: the receiver, or the one that
// a request was put aside for (aside.go).
type session struct {
	conn     *sock.Conn
	endpoint pci.Endpoint
	info     pci.Info
	config   Config
	stats    *counters

	cfg    *cfgspace.Space
	space  *addrspace.Space
	msix   *msix.Table
	bars   msix.BARs
	irqs   eventFDs
	files  map[fileKey]*sharedFile
	direct messages // DMA by messages

	negotiated bool
	unshared   int // mappings that were ever made without memory: then the engine may wait for the client
	out        []byte
	aside      aside
	mapped     uint64 // bytes of files that are mapped

	why atomic.Pointer[error] // what ended the session, if not the client
}

func newSession(conn *sock.Conn, ep pci.Endpoint, config Config, stats *counters) *session {
	s := &session{conn: conn, endpoint: ep, info: ep.Info(), config: config, stats: stats, files: map[fileKey]*sharedFile{}}
	s.cfg = cfgspace.New(ep)
	s.direct.init(conn, config.DMATimeout, s.fail)
	s.space = addrspace.New(addrspace.Config{Messages: &s.direct, MaxMaps: config.MaxMaps, OnFault: func() {
		s.fail(errors.New("shared memory vanished: the client truncated its file"))
	}})
	s.irqs.init(s.info.Vectors, &stats.dropped)
	s.msix = msix.New(s.info.Vectors, s.irqs.signal)
	s.bars = msix.NewBARs(ep, s.msix)
	return s
}

// host is what the card sees of the client.
type host struct{ s *session }

func (h host) Memory() pci.Memory { return h.s.space }
func (h host) Raise(vector int)   { h.s.msix.Raise(vector) }

// run serves the client until it goes.
func (s *session) run() error {
	if err := s.endpoint.Attach(host{s}); err != nil {
		return fmt.Errorf("plug in %s: %w", s.info.Address, err)
	}
	s.conn.SetReadDeadline(time.Now().Add(s.config.HandshakeTimeout))
	err := s.receive()
	if why := s.why.Load(); why != nil {
		err = *why
	}
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) {
		err = nil
	}
	s.unplug()
	return err
}

// unplug takes everything back that the client had.
func (s *session) unplug() {
	s.conn.Shutdown()
	s.direct.end() // the engine waits for this client no more
	s.aside.wait()
	s.endpoint.Reset(pci.ResetHot)
	s.endpoint.Detach()
	s.space.UnmapAll()
	s.irqs.closeAll()
	s.stats.maps.Store(0)
}

// fail ends the session from any goroutine.
func (s *session) fail(err error) {
	if s.why.CompareAndSwap(nil, &err) {
		s.conn.Shutdown()
	}
}

// receive performs requests until the stream ends.
func (s *session) receive() error {
	for {
		if err := s.drain(); err != nil {
			return err
		}
		if err := s.conn.Fill(); err != nil {
			return err
		}
	}
}

// drain performs what has been received and sends the replies.
func (s *session) drain() error {
	for n := uint64(0); ; n++ {
		m, ok, err := s.conn.Next()
		if err != nil {
			s.flush() // what was asked before has been done
			return err
		}
		if !ok {
			s.stats.requests.Add(n)
			return s.flush()
		}
		if m.Reply() {
			err = s.direct.reply(&m)
		} else {
			err = s.request(&m)
		}
		m.CloseFDs()
		if err != nil {
			s.flush()
			return err
		}
	}
}

// flush sends the receiver's replies.
func (s *session) flush() error {
	if len(s.out) == 0 {
		return nil
	}
	err := s.conn.Send(s.out)
	s.out = s.out[:0]
	return err
}

// request performs a request, or queues it behind one that was put aside.
func (s *session) request(m *sock.Message) error {
	if s.aside.queue(m) {
		return s.aside.overflow()
	}
	out, err := s.perform(m, s.out, false)
	s.out = out
	if err == nil && len(s.out) >= flushAt {
		err = s.flush()
	}
	return err
}

// errno is the error of an error reply.
type errno = unix.Errno

// perform performs one request and appends its reply to out. mayWait: the caller may wait for the engine.
// An error ends the session.
func (s *session) perform(m *sock.Message, out []byte, mayWait bool) ([]byte, error) {
	if !s.negotiated {
		return s.negotiate(m, out)
	}
	var err error
	done := len(out)
	switch m.Command {
	case vfiouser.RegionWrite:
		out, err = s.regionWrite(m, out, mayWait)
	case vfiouser.RegionRead:
		out, err = s.regionRead(m, out)
	case vfiouser.RegionWriteMulti:
		out, err = s.regionWriteMulti(m, out, mayWait)
	case vfiouser.DMAMap:
		out, err = s.dmaMap(m, out)
	case vfiouser.DMAUnmap:
		out, err = s.dmaUnmap(m, out, mayWait)
	case vfiouser.DeviceGetInfo:
		out, err = s.deviceInfo(m, out)
	case vfiouser.DeviceGetRegion:
		out, err = s.regionInfo(m, out)
	case vfiouser.DeviceGetIRQ:
		out, err = s.irqInfo(m, out)
	case vfiouser.DeviceSetIRQs:
		out, err = s.setIRQs(m, out)
	case vfiouser.DeviceReset:
		out, err = s.reset(m, out, mayWait)
	case vfiouser.Version:
		err = unix.EINVAL // once is enough
	default:
		err = unix.EOPNOTSUPP
	}
	if err == errAside {
		return out, nil
	}
	if err != nil {
		out = s.refuse(m, out[:done], err)
	}
	return out, nil
}

// refuse appends an error reply, if a reply is wanted.
func (s *session) refuse(m *sock.Message, out []byte, err error) []byte {
	s.stats.errors.Add(1)
	code := unix.EINVAL
	var e errno
	if errors.As(err, &e) {
		code = e
	}
	s.config.Logger.Debug("vfio-user request refused", "request", m.Command, "id", m.ID, "why", err)
	if !m.Wanted() {
		return out
	}
	h := vfiouser.Header{ID: m.ID, Command: m.Command, Size: vfiouser.HeaderSize, Flags: vfiouser.FlagReply | vfiouser.FlagError, Errno: uint32(code)}
	return h.Append(out)
}

// begin appends the header of a reply with n bytes of payload. Only where a reply is wanted.
func begin(m *sock.Message, out []byte, n int) []byte {
	h := vfiouser.Header{ID: m.ID, Command: m.Command, Size: uint32(vfiouser.HeaderSize + n), Flags: vfiouser.FlagReply}
	return h.Append(out)
}

// answer appends a reply whose payload encode appends.
func answer(m *sock.Message, out []byte, encode func([]byte) []byte) []byte {
	if !m.Wanted() {
		return out
	}
	at := len(out)
	out = encode(begin(m, out, 0))
	h := vfiouser.Header{ID: m.ID, Command: m.Command, Size: uint32(len(out) - at), Flags: vfiouser.FlagReply}
	h.Put(out[at:])
	return out
}

// negotiate is the first request of a session; anything else than an agreement ends it.
func (s *session) negotiate(m *sock.Message, out []byte) ([]byte, error) {
	fail := func(err error) ([]byte, error) {
		return s.refuse(m, out, err), err
	}
	if m.Command != vfiouser.Version {
		return fail(fmt.Errorf("%w: %v before VERSION", sock.ErrProtocol, m.Command))
	}
	var v vfiouser.VersionMessage
	if err := v.Parse(m.Payload); err != nil {
		return fail(fmt.Errorf("%w: %w", sock.ErrProtocol, err))
	}
	if v.Major != 0 {
		return fail(fmt.Errorf("%w: version %d.%d, this is 0.0", sock.ErrProtocol, v.Major, v.Minor))
	}
	if v.Capabilities.PageSizes&pageSize == 0 {
		return fail(fmt.Errorf("%w: page sizes %#x, want 4096 among them", sock.ErrProtocol, v.Capabilities.PageSizes))
	}
	s.direct.limit(v.Capabilities.MaxDataXferSize)
	s.conn.SetReadDeadline(time.Time{})
	s.negotiated = true
	reply := vfiouser.VersionMessage{Capabilities: s.config.capabilities()}
	payload := reply.Append(nil)
	if len(payload) > len(m.Payload) {
		// QEMU's room for the reply is its request's length. All of this can be assumed of a server.
		reply.Capabilities = vfiouser.DefaultCapabilities()
		if payload = reply.Append(nil); len(payload) > len(m.Payload) {
			payload = payload[:4]
		}
	}
	return answer(m, out, func(b []byte) []byte { return append(b, payload...) }), nil
}

// deviceInfo answers DEVICE_GET_INFO. There are no error and request interrupts to configure.
func (s *session) deviceInfo(m *sock.Message, out []byte) ([]byte, error) {
	var d vfiouser.DeviceInfo
	if err := d.Parse(m.Payload); err != nil {
		return out, err
	}
	d = vfiouser.DeviceInfo{Flags: vfiouser.DevicePCI | vfiouser.DeviceResets, Regions: vfiouser.Regions, IRQs: vfiouser.IRQMSIX + 1}
	return answer(m, out, d.Append), nil
}

// reset answers DEVICE_RESET: the state after power-on, with mappings and interrupts of the client kept.
func (s *session) reset(m *sock.Message, out []byte, mayWait bool) ([]byte, error) {
	if !mayWait && s.unshared > 0 {
		return out, s.putAside(m)
	}
	s.endpoint.Reset(pci.ResetHot)
	s.msix.Reset()
	return answer(m, out, func(b []byte) []byte { return b }), nil
}
