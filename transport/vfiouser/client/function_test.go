//go:build linux

package client_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"cxkit/dma"
	"cxkit/pci"
	"cxkit/transport/transporttest"
	"cxkit/transport/vfiouser/client"
	"cxkit/transport/vfiouser/server"
)

// kinds are what the transport offers: no heap, for another process can't see it.
var kinds = []dma.Kind{dma.Shared, dma.Reserved}

func TestFunctionOverASocketPair(t *testing.T) {
	transporttest.Run(t, transporttest.Options{Open: openPair, Kinds: kinds, MSIXTable: true})
}

func TestFunctionOverASocketInTheFileSystem(t *testing.T) {
	transporttest.Run(t, transporttest.Options{Kinds: kinds, MSIXTable: true, Open: func(t testing.TB) pci.Function {
		return dial(t, serve(t, transporttest.NewCard(), server.Config{}))
	}})
}

// openPair plugs a new card in over a socket pair.
func openPair(t testing.TB) pci.Function { return openCard(t, transporttest.NewCard()) }

func openCard(t testing.TB, card pci.Endpoint) pci.Function {
	t.Helper()
	ends := socketPair(t)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := server.ServeConn(ctx, ends[0], card, server.Config{}); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("server: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	f, err := client.New(context.Background(), ends[1], "pair", client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func socketPair(t testing.TB) (ends [2]*net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(file)
		file.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
	}
	return ends
}

// serve serves a card at a socket until the test ends.
func serve(t testing.TB, card pci.Endpoint, config server.Config) *server.Server {
	t.Helper()
	s, err := server.Listen(filepath.Join(t.TempDir(), "s"), card, config)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Serve(context.Background()); err != nil {
			t.Errorf("server: %v", err)
		}
	})
	t.Cleanup(func() { s.Close(); wg.Wait() })
	return s
}

func dial(t testing.TB, s *server.Server) *client.Function {
	t.Helper()
	f, err := client.Dial(context.Background(), s.Path(), client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
