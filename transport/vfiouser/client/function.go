//go:build linux

package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"cxkit/mmio"
	"cxkit/pci"
	"cxkit/transport/internal/addrspace"
	"cxkit/transport/internal/irq"
	"cxkit/transport/vfiouser"
	"cxkit/transport/vfiouser/internal/sock"
)

// Function is a pci.Function at the other end of a socket.
type Function struct {
	config Config
	conn   *sock.Conn
	info   pci.Info
	server vfiouser.Capabilities
	mapped *mapped
	resets bool // the server takes DEVICE_RESET
	flr    int  // offset of Device Control's upper byte, 0 if function level resets can't be had

	send    sender
	slots   slots
	vectors []*irq.Vector

	places addrspace.Allocator
	space  *addrspace.Space // the arenas, for servers that reach them by messages
	arenas arenaBook

	closed atomic.Bool
	ended  chan struct{} // closed when the function is closed or the server gone
	endMu  sync.Mutex    // guards ended's closing and why
	why    error
	reader sync.WaitGroup
}

var _ pci.Function = (*Function)(nil)

// Dial connects to the server at path.
func Dial(ctx context.Context, path string, config Config) (*Function, error) {
	var d net.Dialer
	socket, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("vfio-user: %w", err)
	}
	return New(ctx, socket.(*net.UnixConn), path, config)
}

// New makes a function of a connected socket, which it owns; name is its address in messages. On an error
// the socket is closed.
func New(ctx context.Context, socket *net.UnixConn, name string, config Config) (*Function, error) {
	conn, err := sock.New(socket)
	if err != nil {
		socket.Close()
		return nil, err
	}
	f := &Function{config: config.withDefaults(), conn: conn, info: pci.Info{Address: name}, ended: make(chan struct{})}
	f.space = addrspace.New(addrspace.Config{})
	f.send.init(conn)
	f.slots.init()
	f.reader.Go(f.receive)
	if err := f.negotiate(ctx); err != nil {
		f.Close()
		return nil, fmt.Errorf("vfio-user %s: %w", name, err)
	}
	return f, nil
}

// Info describes the function.
func (f *Function) Info() pci.Info { return f.info }

// alive is nil, ErrClosed or ErrGone.
func (f *Function) alive() error {
	if f.closed.Load() {
		return pci.ErrClosed
	}
	select {
	case <-f.ended:
		return f.reason()
	default:
		return nil
	}
}

// reason is why the function has ended.
func (f *Function) reason() error {
	f.endMu.Lock()
	defer f.endMu.Unlock()
	if f.closed.Load() {
		return pci.ErrClosed
	}
	return f.why
}

// lose ends the connection: the server is gone. Any goroutine may call it; the first reason counts.
func (f *Function) lose(why error) {
	f.endMu.Lock()
	defer f.endMu.Unlock()
	if f.why != nil {
		return
	}
	f.why = fmt.Errorf("%w: %w", pci.ErrGone, why)
	close(f.ended)
	f.conn.Shutdown()
	for _, v := range f.vectors {
		v.Wake()
	}
}

// Window gives access to a BAR.
func (f *Function) Window(bar int) (*mmio.Window, error) {
	if err := f.alive(); err != nil {
		return nil, err
	}
	if bar < 0 || bar >= len(f.info.BARs) || f.info.BARs[bar] == 0 {
		return nil, fmt.Errorf("%s has no BAR %d", f.info.Address, bar)
	}
	return mmio.NewTrapped(trap{f, uint32(bar)}, f.info.BARs[bar]), nil
}

// Reset performs a function level reset, or a device reset where the function has none.
func (f *Function) Reset(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if f.flr != 0 {
		var control [1]byte
		if err := f.readConfig(ctx, f.flr, control[:]); err != nil {
			return fmt.Errorf("reset: %w", err)
		}
		return f.writeConfig(ctx, f.flr, []byte{control[0] | 0x80})
	}
	if !f.resets {
		return fmt.Errorf("reset: %w", errors.ErrUnsupported)
	}
	if _, err := f.request(ctx, vfiouser.DeviceReset, nil, nil); err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	f.forgetInterrupts()
	return nil
}

// Close stops DMA and interrupts and ends the connection.
func (f *Function) Close() error {
	if !f.closed.CompareAndSwap(false, true) {
		return nil
	}
	for _, v := range f.vectors {
		v.Wake()
	}
	// The reply to this says that the card has left its step. A server that is gone uses no memory.
	f.unmapAll()
	f.lose(pci.ErrClosed)
	f.reader.Wait()
	err := f.conn.Close()
	f.slots.closeFiles()
	for _, v := range f.vectors {
		v.Close()
	}
	f.space.UnmapAll()
	return err
}
