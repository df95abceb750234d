//go:build linux

package client_test

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cxkit/dma"
	"cxkit/transport/vfiouser"
	"cxkit/transport/vfiouser/internal/sock"
)

// FuzzServersReplies: a server that answers honestly for a while and then with what the fuzzer says. The
// client must neither crash nor hang, and must close.
func FuzzServersReplies(f *testing.F) {
	f.Add(byte(0), []byte{0, 0, 0, 0})
	f.Add(byte(1), (&vfiouser.DeviceInfo{Flags: 3, Regions: 9, IRQs: 5}).Append(nil))
	f.Add(byte(2), (&vfiouser.RegionInfo{Room: 32, Size: 1 << 20}).Append(nil, 32))
	f.Add(byte(9), (&vfiouser.IRQInfo{Index: 2, Count: 3, Flags: 1}).Append(nil))
	f.Add(byte(12), (&vfiouser.DMAAccess{Address: 1 << 32, Count: 16}).Append(nil))
	f.Fuzz(func(t *testing.T, honestFor byte, p []byte) {
		s, open := fake(t, func() answers {
			n := 0
			return func(m *sock.Message) ([]byte, unix.Errno) {
				if n++; n <= int(honestFor) {
					return honest(m)
				}
				if len(p) > 0 && p[0]&0xc0 == 0xc0 {
					return nil, unix.Errno(p[0])
				}
				return p, 0
			}
		}())
		fn, err := open()
		if err != nil {
			return
		}
		defer fn.Close()
		if len(p) >= 24 { // a request of the server
			h := vfiouser.Header{ID: 1, Command: vfiouser.Command(binary.NativeEndian.Uint16(p)), Size: uint32(16 + len(p))}
			s.conn.Send(append(h.Append(nil), p...))
		}
		if w, err := fn.Window(0); err == nil {
			w.Store32(0, 1)
			w.Load32(0)
		}
		if a, err := fn.NewArena(1, dma.Shared); err == nil {
			a.Close()
		}
		var b [16]byte
		fn.ReadConfig(4, b[:])
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		fn.Wait(ctx, 0)
		fn.Reset(ctx)
	})
}
