//go:build linux

package server_test

import (
	"context"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cxkit/pci"
	"cxkit/transport/vfiouser"
	"cxkit/transport/vfiouser/internal/sock"
	"cxkit/transport/vfiouser/server"
)

// FuzzClientsFrames: the input becomes messages, with file descriptors, and raw bytes of the stream. The
// server must neither crash nor hang, give every file descriptor back and leave nothing mapped.
//
// A message in the input: command, flags, which file descriptors, length; then so many bytes of payload.
// Command 0xff is so many bytes as they are.
func FuzzClientsFrames(f *testing.F) {
	message := func(c vfiouser.Command, flags, fds byte, payload []byte) []byte {
		return append([]byte{byte(c), flags, fds, byte(len(payload))}, payload...)
	}
	f.Add(message(vfiouser.DMAMap, 0, 1, mapRequest(readWrite, 0x10000, 0x2000, 0)))
	f.Add(append(message(vfiouser.DMAMap, 0, 0, mapRequest(readWrite, 0x10000, 0x2000, 0)), message(vfiouser.DMAUnmap, 0, 0, unmapRequest(0, 0, 1<<63))...))
	f.Add(message(vfiouser.DeviceSetIRQs, 0, 2, setIRQs(toEventFD, msix, 3, 1)))
	f.Add(message(vfiouser.RegionWrite, 0x10, 0, access(0, 0x21c, 4, 0, 0, 0, 2)))
	f.Add(message(vfiouser.RegionRead, 0, 3, access(vfiouser.RegionConfig, 0, 64)))
	f.Add(message(vfiouser.RegionWrite, 0, 0, access(vfiouser.RegionConfig, 0x48, 2, 0, 0x80)))
	f.Add(message(0xff, 0, 1, []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}))
	f.Fuzz(func(t *testing.T, input []byte) {
		if len(input) > 4096 {
			return
		}
		mem, event := memfd(t, 0x4000, 0), eventFD(t)
		sets := [][]int{nil, {mem}, {event}, {mem, event}}
		files := openFiles(t)
		c := newCard()
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		var ends [2]*net.UnixConn
		for i, fd := range fds {
			file := os.NewFile(uintptr(fd), "pair")
			end, err := net.FileConn(file)
			file.Close()
			if err != nil {
				t.Fatal(err)
			}
			ends[i] = end.(*net.UnixConn)
		}
		conn, err := sock.New(ends[1])
		if err != nil {
			t.Fatal(err)
		}
		r := &raw{TB: t, conn: conn}
		var wg sync.WaitGroup
		wg.Go(func() {
			server.ServeConn(context.Background(), ends[0], c, server.Config{DMATimeout: 5 * time.Millisecond})
		})
		r.hello()
		host := <-c.hosts
		wg.Go(func() { // an engine that uses whatever is mapped
			m := host.Memory()
			for range 20 {
				pci.Guard(m, func() {
					if b := m.View(0x10000, 64, pci.Write); b != nil {
						b[0]++
					}
					m.ReadAt(make([]byte, 0x3000), 0x10000)
					host.Raise(3)
				})
			}
		})
		wg.Go(func() { // replies are read, or the server waits for room
			for {
				if _, err := r.next(); err != nil {
					return
				}
			}
		})
		for len(input) >= 4 {
			command, flags, set, n := vfiouser.Command(input[0]), uint32(input[1]), sets[input[2]%4], int(input[3])
			input = input[4:]
			n = min(n, len(input))
			p := input[:n]
			input = input[n:]
			if command != 0xff {
				p = r.frame(command, flags&^1, p)
			}
			if len(p) == 0 || conn.Send(p, set...) != nil {
				break
			}
		}
		conn.Shutdown()
		wg.Wait()
		conn.Close()
		if host.Memory().View(0x10000, 1, pci.Read) != nil {
			t.Error("something is mapped after the client has gone")
		}
		if now := openFiles(t); now != files {
			t.Errorf("%d files open, want %d", now, files)
		}
	})
}
