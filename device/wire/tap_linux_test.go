package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inNamespace moves the test into a network namespace of its own.
func inNamespace(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: a network namespace with a TAP interface")
	}
	if _, err := os.Stat(tunDevice); err != nil {
		t.Skipf("needs %s: %v", tunDevice, err)
	}
	runtime.LockOSThread()
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); errors.Is(err, unix.EPERM) {
		t.Skip("needs the right to make a network namespace (CAP_SYS_ADMIN)")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// On failure the thread stays locked, and dies with the test's goroutine.
		if err := unix.Setns(home, unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		unix.Close(home)
		runtime.UnlockOSThread()
	})
}

func openTestTAP(t *testing.T) *TAP {
	t.Helper()
	inNamespace(t)
	tap, err := OpenTAP("cxtest0", 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tap.Close(); err != nil {
			t.Error(err)
		}
	})
	return tap
}

// testType is an ethertype for local experiments: the host answers nothing and sends nothing of it.
const testType = 0x88b5

// host opens a packet socket on the interface: the host's side of the TAP.
func host(t *testing.T, name string) int {
	t.Helper()
	proto := binary.NativeEndian.Uint16([]byte{testType >> 8, testType & 0xff})
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(proto))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: proto, Ifindex: index(t, name)}); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20); err != nil {
		t.Fatal(err)
	}
	limit := unix.NsecToTimeval(int64(10 * time.Second))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		t.Fatal(err)
	}
	return fd
}

func index(t *testing.T, name string) int {
	t.Helper()
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(s)
	if err := unix.IoctlIfreq(s, unix.SIOCGIFINDEX, ifr); err != nil {
		t.Fatal(err)
	}
	return int(ifr.Uint32())
}

// testFrame makes frame number seq, n bytes long.
func testFrame(n, seq int) []byte {
	f := frame(n, byte(seq))
	copy(f, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, testType >> 8, testType & 0xff})
	binary.BigEndian.PutUint32(f[14:], uint32(seq))
	return f
}

const tapFrames = 3000

func TestTAPReceivesWhatTheHostSends(t *testing.T) {
	tap := openTestTAP(t)
	if !tap.Link() || tap.Lossless() || !tap.IsUp() || tap.Name() != "cxtest0" {
		t.Errorf("link %v, lossless %v, up %v, name %s", tap.Link(), tap.Lossless(), tap.IsUp(), tap.Name())
	}
	fd := host(t, tap.Name())
	wake := engine(tap)
	limit := time.After(time.Minute)
	frames := make([][]byte, 16)
	seen, sent := 0, 0
	for seen < tapFrames {
		// Fewer on their way than the interface's queue (500) holds.
		for ; sent < tapFrames && sent < seen+300; sent++ {
			_, err := unix.Write(fd, testFrame(60+sent%1455, sent))
			for err == unix.EINTR {
				_, err = unix.Write(fd, testFrame(60+sent%1455, sent))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		n := tap.Receive(frames)
		for _, f := range frames[:n] {
			if len(f) < 14 || binary.BigEndian.Uint16(f[12:]) != testType {
				continue // the host's own: neighbour discovery
			}
			if !bytes.Equal(f, testFrame(60+seen%1455, seen)) {
				t.Fatalf("frame %d: %d bytes, or other content", seen, len(f))
			}
			seen++
		}
		if n == 0 {
			select {
			case <-wake:
			case <-limit:
				t.Fatalf("%d frames of %d", seen, tapFrames)
			}
		}
	}
	if c := tap.Counters(); c.RxFrames < tapFrames || c.RxBytes < tapFrames*60 {
		t.Errorf("counters %+v", c)
	}
}

func TestHostReceivesWhatTheTAPSends(t *testing.T) {
	tap := openTestTAP(t)
	fd := host(t, tap.Name())
	wake := engine(tap)
	limit := time.After(time.Minute)
	buf := make([]byte, 2000)
	for seq := 0; seq < tapFrames; {
		batch := make([][]byte, 0, 20)
		for i := range min(cap(batch), tapFrames-seq) {
			batch = append(batch, testFrame(60+(seq+i)%1455, seq+i))
		}
		for next := 0; next < len(batch); {
			n := tap.Transmit(batch[next:])
			if next += n; next < len(batch) {
				select {
				case <-wake:
				case <-limit:
					t.Fatalf("the TAP took %d frames", seq+next)
				}
			}
		}
		for _, want := range batch {
			n, err := unix.Read(fd, buf)
			for err == unix.EINTR { // the scheduler's signals
				n, err = unix.Read(fd, buf)
			}
			if err != nil || !bytes.Equal(buf[:n], want) {
				t.Fatalf("frame %d: the host has %d bytes, %v, or other content", seq, n, err)
			}
			seq++
		}
	}
	if c := tap.Counters(); c.TxFrames != tapFrames || c.TxDropped != 0 {
		t.Errorf("counters %+v", c)
	}
}

// eventually asks until ok, woken by wake, 10 s at most.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(time.Minute)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("gave up waiting: %s", what)
		}
	}
}

func setDown(t *testing.T, name string) {
	t.Helper()
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(s)
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		t.Fatal(err)
	}
	ifr.SetUint16(0)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, ifr); err != nil {
		t.Fatal(err)
	}
}

func TestFramesIntoAnInterfaceThatIsDownAreCounted(t *testing.T) {
	tap := openTestTAP(t)
	setDown(t, tap.Name())
	if tap.IsUp() {
		t.Error("IsUp of an interface that is down")
	}
	if n := tap.Transmit([][]byte{testFrame(60, 1), testFrame(60, 2)}); n != 2 {
		t.Errorf("took %d of 2", n)
	}
	eventually(t, "two frames refused", func() bool { return tap.Counters().TxDropped == 2 })
	if c := tap.Counters(); c.TxFrames != 0 || c.TxBytes != 0 {
		t.Errorf("frames the host refused count as sent: %+v", c)
	}
	if !tap.Link() || tap.Err() != nil {
		t.Errorf("link %v, %v: an interface that is down may come up again", tap.Link(), tap.Err())
	}
}

// deleteLink deletes an interface as "ip link del" does.
func deleteLink(t *testing.T, name string) {
	t.Helper()
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(s)
	msg := make([]byte, unix.SizeofNlMsghdr+unix.SizeofIfInfomsg)
	e := binary.NativeEndian
	e.PutUint32(msg, uint32(len(msg)))
	e.PutUint16(msg[4:], unix.RTM_DELLINK)
	e.PutUint16(msg[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	e.PutUint32(msg[unix.SizeofNlMsghdr+4:], uint32(index(t, name)))
	if err := unix.Sendto(s, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(s, answer, 0)
	if err != nil || n < unix.SizeofNlMsghdr+4 || e.Uint32(answer[unix.SizeofNlMsghdr:]) != 0 {
		t.Fatalf("delete %s: % x, %v", name, answer[:n], err)
	}
}

func TestDeletedInterfaceTakesTheLinkDown(t *testing.T) {
	tap := openTestTAP(t)
	wake := engine(tap)
	deleteLink(t, tap.Name())
	select {
	case <-wake:
	case <-time.After(time.Minute):
		t.Fatal("nobody was told")
	}
	if tap.Link() || tap.Err() == nil || !strings.Contains(tap.Err().Error(), "cxtest0: the interface was deleted") {
		t.Errorf("link %v, error %v", tap.Link(), tap.Err())
	}
	if !tap.deleted() { // what tells when the poller was quicker
		t.Error("the descriptor does not know that its interface is gone")
	}
	if tap.Transmit([][]byte{testFrame(60, 1)}) != 1 || tap.Counters().TxDropped != 1 {
		t.Errorf("a frame without a link: %+v", tap.Counters())
	}
}

func TestClosedTAPIsQuiet(t *testing.T) {
	tap := openTestTAP(t)
	for range 2 {
		if err := tap.Close(); err != nil {
			t.Error(err)
		}
	}
	if tap.Link() || tap.Err() != nil || tap.Receive(make([][]byte, 1)) != 0 || tap.Transmit([][]byte{testFrame(60, 1)}) != 1 {
		t.Errorf("after Close: link %v, error %v", tap.Link(), tap.Err())
	}
}

func TestTAPErrorsSayWhatToType(t *testing.T) {
	for _, name := range []string{"", "a-name-of-16-byte"} {
		if _, err := OpenTAP(name, 0); err == nil || !strings.Contains(err.Error(), "1 to 15 bytes") {
			t.Errorf("name %q: %v", name, err)
		}
	}
	tap := openTestTAP(t)
	if _, err := OpenTAP(tap.Name(), 0); !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), "another program") {
		t.Errorf("a second program: %v", err)
	}
	for cause, text := range map[error]string{
		unix.ENOENT: "modprobe tun",
		unix.EINVAL: "ip -d link show cxtest0",
		unix.EIO:    "attach: input/output error",
	} {
		if err := tapError("cxtest0", "attach", cause); !errors.Is(err, cause) || !strings.Contains(err.Error(), text) {
			t.Errorf("%v: %v", cause, err)
		}
	}
}

func TestTAPWithoutRightsNamesTheCommand(t *testing.T) {
	inNamespace(t)
	// This thread alone becomes nobody for a moment.
	become := func(uid uintptr) {
		keep := ^uintptr(0)
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, keep, uid, keep); e != 0 {
			t.Fatal(e)
		}
	}
	become(65534)
	_, err := OpenTAP("cxtest0", 0)
	become(0)
	if !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "sudo ip tuntap add dev cxtest0 mode tap user $USER") {
		t.Errorf("error %v", err)
	}
}
