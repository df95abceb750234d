package wire

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	tunDevice = "/dev/net/tun"
	// tapFrame is the room for one read: the largest MTU a TAP interface can have, its headers, and what the
	// kernel says of the frame.
	tapFrame = 65535 + 18 + vnetLen
	// tapBurst is how many frames are moved before the other side sees them.
	tapBurst = 64
)

// TAP is a port plugged into a TAP interface of this host: what the card sends, the host receives on
// the interface. Two goroutines move frames; Close ends them.
//
// It carries large frames both ways when the card takes them (Large): what the host's TCP sends comes as it
// was before segmentation, and the card's large sends reach the host uncut.
//
// The link is up while the interface exists. A TAP is not lossless: when the card has no buffer the
// frame is dropped, as on a network.
type TAP struct {
	name string
	file *os.File
	raw  syscall.RawConn
	rx   *ring // host to card
	tx   *ring // card to host

	wake     atomic.Pointer[func()]
	link     atomic.Bool
	closed   atomic.Bool
	frames   [tapBurst][]byte // of ReceiveLarge
	head     [vnetLen]byte    // of TransmitLarge
	rxRoom   chan struct{}    // the reader may go on
	txReady  chan struct{}    // the writer has frames
	gone     chan struct{}
	workers  sync.WaitGroup
	refused  tally         // frames the host did not take
	downDrop atomic.Uint64 // frames sent after the link went down

	mu  sync.Mutex
	err error
}

var _ Large = (*TAP)(nil)

// OpenTAP attaches to the TAP interface name, or makes it when this process may, and sets it up when
// this process may. ring is the room for frames each way in bytes, 0 for DefaultRing. Unless the card asks
// for offloads checksums are complete, and no frame is longer than the interface's MTU allows.
func OpenTAP(name string, ring int) (*TAP, error) {
	fd, name, err := openTAP(name)
	if err != nil {
		return nil, err
	}
	setUp(name) // needs rights that attaching does not need; IsUp tells
	t := &TAP{
		name: name,
		file: os.NewFile(uintptr(fd), tunDevice),
		gone: make(chan struct{}), rxRoom: make(chan struct{}, 1), txReady: make(chan struct{}, 1),
	}
	if t.raw, err = t.file.SyscallConn(); err != nil {
		t.file.Close()
		return nil, fmt.Errorf("TAP %s: %w", name, err)
	}
	if ring <= 0 {
		ring = DefaultRing
	}
	// Half the ring is the longest frame, and the reader always has room for that.
	ring = max(ring, 4*tapFrame)
	t.rx = newRing(ring, t.poke, func() { signal(t.rxRoom) })
	t.tx = newRing(ring, func() { signal(t.txReady) }, t.poke)
	t.link.Store(true)
	t.workers.Go(t.read)
	t.workers.Go(t.write)
	return t, nil
}

// openTAP returns a non-blocking descriptor attached to the interface, and the interface's name.
func openTAP(name string) (fd int, iface string, err error) {
	ifr, err := unix.NewIfreq(name)
	if err != nil || name == "" {
		return -1, "", fmt.Errorf("TAP %q: an interface name has 1 to %d bytes", name, unix.IFNAMSIZ-1)
	}
	fd, err = unix.Open(tunDevice, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, "", tapError(name, "open "+tunDevice, err)
	}
	ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
		unix.Close(fd)
		return -1, "", tapError(name, "attach", err)
	}
	return fd, ifr.Name(), nil
}

// tapError says what to type.
func tapError(name, what string, err error) error {
	hint := ""
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		hint = fmt.Sprintf("make it once with: sudo ip tuntap add dev %s mode tap user $USER && sudo ip link set %s up", name, name)
	case errors.Is(err, unix.EBUSY):
		hint = "another program is attached to it, or an interface of another kind has this name"
	case errors.Is(err, unix.EINVAL):
		hint = fmt.Sprintf("it is not a plain TAP interface; see: ip -d link show %s", name)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		hint = "the kernel has no TAP driver loaded: sudo modprobe tun"
	}
	if hint == "" {
		return fmt.Errorf("TAP %s: %s: %w", name, what, err)
	}
	return fmt.Errorf("TAP %s: %s: %w: %s", name, what, err, hint)
}

// interfaceFlags returns the interface's flags and, with up, sets it up first.
func interfaceFlags(name string, up bool) (uint16, error) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(s)
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	if err := unix.IoctlIfreq(s, unix.SIOCGIFFLAGS, ifr); err != nil {
		return 0, err
	}
	if up && ifr.Uint16()&unix.IFF_UP == 0 {
		ifr.SetUint16(ifr.Uint16() | unix.IFF_UP)
		err = unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, ifr)
	}
	return ifr.Uint16(), err
}

func setUp(name string) { _, _ = interfaceFlags(name, true) }

// Name is the interface's name.
func (t *TAP) Name() string { return t.name }

// IsUp reports whether the interface is set up, asked in the caller's network namespace. Until somebody
// types "ip link set NAME up" the host drops what the card sends.
func (t *TAP) IsUp() bool {
	flags, err := interfaceFlags(t.name, false)
	return err == nil && flags&unix.IFF_UP != 0
}

// read moves frames from the interface into the ring. Each wake-up of the poller reads a burst.
func (t *TAP) read() {
	var failed error
	burst := func(fd uintptr) bool {
		var n int
		n, failed = t.readBurst(int(fd))
		return n > 0 || failed != nil
	}
	for t.reserveRead() {
		if err := t.raw.Read(burst); t.end(err) || t.end(failed) {
			return
		}
	}
}

// reserveRead waits until the ring has room for one frame of any length.
func (t *TAP) reserveRead() bool {
	for {
		if _, _, ok := t.rx.reserve(t.rx.produced, tapFrame); ok || t.rx.waitRoom(t.rx.produced, tapFrame) {
			return true
		}
		select {
		case <-t.rxRoom:
		case <-t.gone:
			return false
		}
	}
}

// readBurst reads frames straight into the ring until there are no more, no room, or tapBurst.
func (t *TAP) readBurst(fd int) (n int, err error) {
	at, bytes := t.rx.produced, 0
	for n < tapBurst {
		off, _, ok := t.rx.reserve(at, tapFrame)
		if !ok {
			break
		}
		var got int
		got, err = unix.Read(fd, t.rx.mem[off+recordHead:off+recordHead+tapFrame])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			break
		}
		// The frame is shorter than what was reserved, and starts where that did.
		at = t.rx.fill(off, at, got)
		bytes += got
		n++
	}
	t.rx.sent.add(uint64(n), uint64(max(bytes-n*vnetLen, 0)))
	t.rx.publish(at)
	if err == unix.EAGAIN {
		err = nil
	}
	return n, err
}

// write moves frames from the ring to the interface.
func (t *TAP) write() {
	var frames [tapBurst][]byte
	var next, n int
	var failed error
	burst := func(fd uintptr) bool {
		next, failed = t.writeBurst(int(fd), frames[:n], next)
		return next == n || failed != nil
	}
	for {
		if n = t.tx.consume(frames[:]); n == 0 {
			select {
			case <-t.txReady:
				continue
			case <-t.gone:
				return
			}
		}
		next = 0
		if err := t.raw.Write(burst); t.end(err) || t.end(failed) {
			return
		}
	}
}

// writeBurst writes frames from next on and returns the first it could not write yet.
func (t *TAP) writeBurst(fd int, frames [][]byte, next int) (int, error) {
	for next < len(frames) {
		_, err := unix.Write(fd, frames[next])
		switch err {
		case nil:
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return next, nil
		case unix.EBADFD:
			return next, err
		default:
			// EIO: the interface is down. EINVAL: the frame has no Ethernet header. ENOMEM, ENOBUFS.
			t.refused.add(1, uint64(len(frames[next])-vnetLen))
		}
		next++
	}
	return next, nil
}

// end reports whether a worker must stop, and books why. The interface may be deleted under us.
func (t *TAP) end(err error) bool {
	if err == nil {
		return false
	}
	if t.closed.Load() {
		return true
	}
	t.mu.Lock()
	if t.err == nil {
		if errors.Is(err, unix.EBADFD) || t.deleted() {
			err = fmt.Errorf("the interface was deleted: %w", err)
		}
		t.err = fmt.Errorf("TAP %s: %w", t.name, err)
	}
	t.mu.Unlock()
	if t.link.Swap(false) {
		t.poke()
	}
	return true
}

// deleted asks the descriptor whether its interface is gone. A worker that begins to wait just then is told by
// Go's poller that the descriptor can't be waited for, and nothing else.
func (t *TAP) deleted() bool {
	ifr, err := unix.NewIfreq(t.name)
	if err != nil {
		return false
	}
	var gone bool
	return t.raw.Control(func(fd uintptr) {
		gone = errors.Is(unix.IoctlIfreq(int(fd), unix.TUNGETIFF, ifr), unix.EBADFD)
	}) == nil && gone
}

// Err says why the link went down before Close, nil if it did not.
func (t *TAP) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

func (t *TAP) poke() {
	if w := t.wake.Load(); w != nil {
		(*w)()
	}
}

// Attach says whom to wake; see Port.
func (t *TAP) Attach(wake func()) {
	if wake == nil {
		t.wake.Store(nil)
		return
	}
	t.wake.Store(&wake)
}

// Transmit copies frames for the writing goroutine; it takes fewer when that is behind.
func (t *TAP) Transmit(frames [][]byte) int {
	if !t.link.Load() {
		count(&t.downDrop, uint64(len(frames)))
		return len(frames)
	}
	clear(t.head[:])
	b := t.tx.begin()
	for b.done < len(frames) && b.put(t.head[:], frames[b.done], false) {
	}
	b.end()
	return b.done
}

// TransmitLarge is Transmit for large frames too; see Large.
func (t *TAP) TransmitLarge(frames []Frame) int {
	if !t.link.Load() {
		count(&t.downDrop, uint64(len(frames)))
		return len(frames)
	}
	b := t.tx.begin()
	for b.done < len(frames) {
		f := &frames[b.done]
		putVnet(&t.head, f)
		if !b.put(t.head[:], f.Data, false) {
			break
		}
	}
	b.end()
	return b.done
}

// Receive gives out frames the host sent; see Port.
func (t *TAP) Receive(frames [][]byte) int {
	if t.closed.Load() {
		return 0
	}
	n := t.rx.consume(frames)
	for i, f := range frames[:n] {
		frames[i] = f[min(len(f), vnetLen):]
	}
	return n
}

// ReceiveLarge is Receive for large frames too; see Large.
func (t *TAP) ReceiveLarge(frames []Frame) int {
	if t.closed.Load() {
		return 0
	}
	n := t.rx.consume(t.frames[:min(len(frames), len(t.frames))])
	for i, f := range t.frames[:n] {
		frames[i] = getVnet(f)
	}
	return n
}

// Offload tells the kernel what the card takes; see Large.
func (t *TAP) Offload(on bool) bool {
	offloads := 0
	if on {
		offloads = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6
	}
	var err error
	if t.raw.Control(func(fd uintptr) { err = unix.IoctlSetInt(int(fd), unix.TUNSETOFFLOAD, offloads) }) != nil {
		return false
	}
	return on && err == nil
}

// Link is up while the interface exists and the port is open.
func (t *TAP) Link() bool { return t.link.Load() }

// Lossless is false.
func (t *TAP) Lossless() bool { return false }

// Counters are the port's. TxDropped contains what the host refused, for instance while the interface
// was down. What the host drops in front of the TAP is in its own statistics: ip -s link show NAME.
func (t *TAP) Counters() Counters {
	refused, refusedBytes := t.refused.frames.Load(), t.refused.bytes.Load() // before sent, which contains them
	return Counters{
		RxFrames:  t.rx.received.frames.Load(),
		RxBytes:   t.rx.received.bytes.Load() - t.rx.received.frames.Load()*vnetLen,
		TxFrames:  t.tx.sent.frames.Load() - refused,
		TxBytes:   t.tx.sent.bytes.Load() - refusedBytes,
		TxDropped: t.tx.dropped.Load() + t.downDrop.Load() + refused,
	}
}

// Close detaches from the interface. One that OpenTAP made disappears; one made with ip tuntap stays.
// Frames the writer has not written yet are lost.
func (t *TAP) Close() error {
	if t.closed.Swap(true) {
		return nil
	}
	t.link.Store(false)
	close(t.gone)
	err := t.file.Close() // ends waits in the poller
	t.workers.Wait()
	t.poke()
	if err != nil {
		return fmt.Errorf("TAP %s: %w", t.name, err)
	}
	return nil
}
