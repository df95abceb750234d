//go:build !race

package rig_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cxkit/device"
	"cxkit/device/wire"
	"cxkit/drivertest"
	"cxkit/internal/rig"
	"cxkit/internal/rig/rigtest"
	"cxkit/transport/vfiouser/client"
	"cxkit/transport/vfiouser/server"
)

// The suite with the card in another process: the function is reached by vfio-user, the far end of its wire
// and the card's books by calls over the process's standard input and output. Not under the race detector, which
// does not see what two processes share.

// cardAt tells the test binary that it is the other process: it serves a card at the socket that the variable
// names until its standard input ends. cardWire says what its wire is like.
const (
	cardAt   = "CXKIT_TEST_CARD_AT"
	cardWire = "CXKIT_TEST_CARD_WIRE"
	cardKind = "CXKIT_TEST_CARD_KIND"
	lossy    = "lossy"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(cardAt); path != "" {
		if err := serveCard(path, os.Getenv(cardWire) == lossy, os.Getenv(cardKind)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func TestNICInAnotherProcess(t *testing.T) {
	drivertest.Run(t, func(t *testing.T, o drivertest.Options) *drivertest.Bench {
		path, card := cardProcess(t, o)
		f, err := client.Dial(t.Context(), path, client.Config{Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
		return &drivertest.Bench{Function: f, Far: card, Books: card.books}
	})
}

// serveCard is the other process.
func serveCard(path string, lossy bool, kind string) (err error) {
	r, err := rig.New(rig.Config{Device: device.Config{Profile: kind}, Cable: wire.CableOptions{Lossy: lossy}})
	if err != nil {
		return err
	}
	s, err := server.Listen(path, r.Card.Function(0), server.Config{})
	if err != nil {
		return errors.Join(err, r.Close())
	}
	calls := rpc.NewServer()
	if err := calls.RegisterName("Card", &cardCalls{r}); err != nil {
		return errors.Join(err, s.Close(), r.Close())
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background()) }()
	fmt.Println("listening")
	calls.ServeConn(stdio{}) // until standard input ends
	return errors.Join(s.Close(), <-served, r.Close())
}

// stdio is the connection of calls in the other process.
type stdio struct{}

func (stdio) Read(b []byte) (int, error)  { return os.Stdin.Read(b) }
func (stdio) Write(b []byte) (int, error) { return os.Stdout.Write(b) }
func (stdio) Close() error                { return nil }

// cardCalls are the calls that the other process answers. Contexts stay with the caller: a call that nobody
// waits for any more ends with the rig.
type cardCalls struct{ rig *rig.Rig }

func (c *cardCalls) Send(frames [][]byte, _ *struct{}) error {
	return c.rig.Far.SendAll(context.Background(), frames...)
}

func (c *cardCalls) Recv(_ struct{}, frame *[]byte) (err error) {
	*frame, err = c.rig.Far.Recv(context.Background())
	return err
}

func (c *cardCalls) SetLink(up bool, _ *struct{}) error {
	c.rig.Far.SetLink(up)
	return nil
}

func (c *cardCalls) Books(_ struct{}, b *drivertest.CardBooks) error {
	*b = rigtest.Books(c.rig, 0)
	return nil
}

// otherCard is the card of the other process, seen from this one. It is a drivertest.Far.
type otherCard struct {
	t     testing.TB
	calls *rpc.Client
}

func (c *otherCard) SendAll(ctx context.Context, frames ...[]byte) error {
	return c.call(ctx, "Card.Send", frames, nil)
}

func (c *otherCard) Recv(ctx context.Context) (frame []byte, err error) {
	err = c.call(ctx, "Card.Recv", struct{}{}, &frame)
	return frame, err
}

func (c *otherCard) SetLink(up bool) {
	if err := c.call(context.Background(), "Card.SetLink", up, nil); err != nil {
		c.t.Errorf("link of the other process: %v", err)
	}
}

func (c *otherCard) books() (b drivertest.CardBooks, err error) {
	err = c.call(context.Background(), "Card.Books", struct{}{}, &b)
	return b, err
}

func (c *otherCard) call(ctx context.Context, method string, args, result any) error {
	if result == nil {
		result = new(struct{})
	}
	call := c.calls.Go(method, args, result, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		return call.Error
	case <-ctx.Done():
		return ctx.Err()
	}
}

// cardProcess starts the other process, which ends with the test, and without an error.
func cardProcess(t *testing.T, o drivertest.Options) (path string, card *otherCard) {
	t.Helper()
	dir, err := os.MkdirTemp("", "cxkit-test-") // not t.TempDir: the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path = filepath.Join(dir, "card")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), cardAt+"="+path, cardKind+"="+o.Card)
	if o.Lossy {
		cmd.Env = append(cmd.Env, cardWire+"="+lossy)
	}
	var said strings.Builder
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn := pipes{bufio.NewReader(out), in}
	if line, err := conn.ReadString('\n'); err != nil || line != "listening\n" {
		in.Close()
		t.Fatalf("the other process does not listen: %q, %v, %v\n%s", line, err, cmd.Wait(), &said)
	}
	card = &otherCard{t, rpc.NewClient(conn)}
	t.Cleanup(func() {
		card.calls.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the other process: %v\n%s", err, &said)
		}
	})
	return path, card
}

// pipes are the connection of calls in this process.
type pipes struct {
	*bufio.Reader
	io.WriteCloser
}
