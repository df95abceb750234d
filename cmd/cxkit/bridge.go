//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"cxkit/driver"
)

// bridge is a learning bridge over the representors of a physical function and the function itself, which
// stands for the uplink. What it has forwarded once it hands to the card as a rule, by the port that a frame
// comes from and its destination: from then on the bridge sees no such frame.
type bridge struct {
	nic   *driver.NIC
	log   *slog.Logger
	ports []*bridgePort
	ended sync.WaitGroup
	stop  context.CancelFunc
	seen  atomic.Uint64 // frames that no rule took

	mu    sync.Mutex // guards the two below; not held during a command
	where map[driver.MAC]*bridgePort
	rules map[bridgeFlow]bool // in force, or on their way
}

// bridgeFlow is what a rule is for.
type bridgeFlow struct {
	from driver.Vport
	to   driver.MAC
}

// bridgePort is one port of the bridge. A goroutine owns its receive queue; the send queue has a lock.
type bridgePort struct {
	vport driver.Vport
	rx    *driver.RxQueue

	mu sync.Mutex // guards tx
	tx *driver.TxQueue
}

// Limits of what frames, which anyone may send, make the bridge keep.
const (
	maxBridgeStations = 1 << 12
	maxBridgeRules    = 1 << 12
)

// newBridge bridges the uplink and n virtual functions until Close.
func newBridge(ctx context.Context, nic *driver.NIC, n int, log *slog.Logger) (*bridge, error) {
	b := &bridge{nic: nic, log: log, where: make(map[driver.MAC]*bridgePort), rules: make(map[bridgeFlow]bool)}
	if err := nic.SetPromiscuous(ctx, true); err != nil {
		return nil, err
	}
	b.ports = append(b.ports, &bridgePort{vport: driver.Uplink, rx: nic.RxQueue(0), tx: nic.TxQueue(0)})
	for i := range n {
		r, err := nic.Representor(ctx, i+1)
		if err != nil {
			return nil, err
		}
		b.ports = append(b.ports, &bridgePort{vport: r.Vport(), rx: r.Rx(), tx: r.Tx()})
	}
	run, stop := context.WithCancel(context.Background())
	b.stop = stop
	for _, p := range b.ports {
		b.ended.Go(func() { b.run(run, p) })
	}
	return b, nil
}

// Close ends the bridge; rules stay until the mode ends.
func (b *bridge) Close() error {
	b.stop()
	b.ended.Wait()
	return nil
}

// run forwards what comes to a port.
func (b *bridge) run(ctx context.Context, p *bridgePort) {
	pkts := make([]driver.Packet, 32)
	for ctx.Err() == nil {
		n := p.rx.Poll(pkts)
		b.seen.Add(uint64(n))
		for i := range pkts[:n] {
			b.forward(ctx, p, pkts[i].Data)
		}
		p.rx.Release(pkts[:n])
		if n == 0 && p.rx.Wait(ctx) != nil {
			return
		}
	}
}

// forward sends a frame where it belongs: to the port of its destination, or to all others.
func (b *bridge) forward(ctx context.Context, from *bridgePort, frame []byte) {
	if len(frame) < 14 {
		return
	}
	dst, src := driver.MAC(frame[:6]), driver.MAC(frame[6:12])
	b.mu.Lock()
	if src[0]&1 == 0 && (b.where[src] != nil || len(b.where) < maxBridgeStations) {
		b.where[src] = from
	}
	to := b.where[dst]
	flow := bridgeFlow{from.vport, dst}
	offload := to != nil && to != from && !b.rules[flow] && len(b.rules) < maxBridgeRules
	if offload {
		b.rules[flow] = true
	}
	b.mu.Unlock()
	if to != nil {
		if to != from {
			to.send(frame)
		}
	} else {
		for _, p := range b.ports {
			if p != from {
				p.send(frame)
			}
		}
	}
	if offload {
		// Close waits for a rule that is on its way.
		if err := b.offload(context.WithoutCancel(ctx), flow, to.vport); err != nil {
			b.log.Warn("no rule", "from", flow.from, "to", flow.to, "err", err)
		}
	}
}

// offload makes the card forward a flow.
func (b *bridge) offload(ctx context.Context, flow bridgeFlow, to driver.Vport) error {
	_, err := b.nic.AddSwitchRule(ctx, driver.SwitchMatch{From: &flow.from, Destination: &flow.to},
		driver.SwitchAction{To: []driver.Vport{to}, Count: true})
	if err == nil {
		return nil
	}
	if errors.Is(err, driver.ErrNICClosed) {
		return nil
	}
	return fmt.Errorf("rule: %w", err)
}

// send sends a copy of a frame. Without room it is dropped, as a switch does.
func (p *bridgePort) send(frame []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tx.Reap()
	pkts := make([]driver.Packet, 1)
	if p.tx.Get(pkts) == 0 {
		return
	}
	if cap(pkts[0].Data) < len(frame) {
		p.tx.Release(pkts)
		return
	}
	pkts[0].Data = append(pkts[0].Data[:0], frame...)
	if p.tx.Send(pkts) == 0 {
		p.tx.Release(pkts)
	}
}
