package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"cxkit/device/fault"
	"cxkit/stats"
)

// Client is a connection to a running card. One goroutine uses it at a time.
type Client struct {
	conn net.Conn
	in   *bufio.Reader
	path string
}

// Dial connects to the socket at path.
func Dial(ctx context.Context, path string) (*Client, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("attach to %s: %w", path, err)
	}
	return &Client{conn: c, in: bufio.NewReader(c), path: path}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Path is the socket's.
func (c *Client) Path() string { return c.path }

// Info asks what the card is.
func (c *Client) Info(ctx context.Context) (Info, error) {
	return call[Info](ctx, c, opInfo, nil)
}

// Stats asks for the NIC's counters.
func (c *Client) Stats(ctx context.Context) (stats.Snapshot, error) {
	return call[stats.Snapshot](ctx, c, opStats, nil)
}

// VportStats asks for the counters of a port of the card's e-switch: see Switch.
func (c *Client) VportStats(ctx context.Context, vport uint16) (stats.Snapshot, error) {
	return call[stats.Snapshot](ctx, c, opVport, vportArgs{&vport})
}

// SetLink plugs the far end of the card's wire in or out.
func (c *Client) SetLink(ctx context.Context, up bool) error {
	_, err := call[struct{}](ctx, c, opLink, linkArgs{Up: &up})
	return err
}

// Books asks what driver and card have lent each other.
func (c *Client) Books(ctx context.Context) ([]Book, error) {
	return call[[]Book](ctx, c, opBooks, nil)
}

// Reclaim makes the card's firmware ask for so many pages and then offer them back.
func (c *Client) Reclaim(ctx context.Context, pages int) error {
	_, err := call[struct{}](ctx, c, opReclaim, reclaimArgs{Pages: pages})
	return err
}

// Storm asks how far the latest storm of pages has come.
func (c *Client) Storm(ctx context.Context) (Storm, error) {
	return call[Storm](ctx, c, opStorm, nil)
}

// Inject breaks the card by a fault plan: its text in TOML. name is what errors call it.
func (c *Client) Inject(ctx context.Context, name, plan string) error {
	_, err := call[struct{}](ctx, c, opInject, injectArgs{Name: name, Plan: plan})
	return err
}

// Faults asks what became of the faults that the card was given.
func (c *Client) Faults(ctx context.Context) ([]fault.Report, error) {
	return call[[]fault.Report](ctx, c, opFaults, nil)
}

// Health asks what is known of the card's health.
func (c *Client) Health(ctx context.Context) (stats.Health, error) {
	return call[stats.Health](ctx, c, opHealth, nil)
}

// Overview asks for everything that is known without asking the card.
func (c *Client) Overview(ctx context.Context) (Overview, error) {
	return call[Overview](ctx, c, opOverview, nil)
}

// Trace asks for the latest n records of the card's flight recorder, 1 to 10,000.
func (c *Client) Trace(ctx context.Context, n int) (TraceText, error) {
	return call[TraceText](ctx, c, opTrace, traceArgs{Last: n})
}

// callTime bounds a call whose context has no deadline; it is longer than the server's own bounds.
const callTime = 30 * time.Second

func call[T any](ctx context.Context, c *Client, op string, args any) (result T, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s from %s: %w", op, c.path, err)
		}
	}()
	r := request{V: version, Op: op}
	if args != nil {
		if r.Args, err = json.Marshal(args); err != nil {
			return result, err
		}
	}
	deadline := time.Now().Add(callTime)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := c.conn.SetDeadline(deadline); err != nil {
		return result, err
	}
	// Ending the context ends the wait; the connection is of no use then, as a late reply would be
	// taken for the next one's.
	stop := context.AfterFunc(ctx, func() { c.conn.Close() })
	defer stop()
	// A server that refuses says why before it closes: a request that can't be written is not all there is.
	werr := writeLine(c.conn, r, maxRequest)
	if errors.Is(werr, ErrTooLong) {
		return result, werr // it was not sent: nobody answers
	}
	line, err := readLine(c.in, maxReply)
	if err != nil {
		return result, orContext(ctx, ended(err))
	}
	var answer reply
	if err := json.Unmarshal(line, &answer); err != nil {
		return result, fmt.Errorf("reply is not JSON: %w", err)
	}
	switch {
	case answer.Error != "":
		return result, &RemoteError{answer.Error}
	case answer.V != version:
		return result, fmt.Errorf("reply of version %d, want %d", answer.V, version)
	}
	return result, json.Unmarshal(answer.Result, &result)
}

// ended is ErrEnded where an error says that the other end is not there any more: it closed the connection
// before or after it took the request, or in the middle of a reply.
func ended(err error) error {
	var op *net.OpError
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op) && !op.Timeout() && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("%w (%w)", ErrEnded, err)
	}
	return err
}

// orContext prefers the reason why a context ended to the error that its ending caused.
func orContext(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
