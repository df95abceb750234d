package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"cxkit/device/wire"
	"cxkit/driver"
	"cxkit/pci"
)

// second is the card's second port with its function, or another card, of --mode forward: what comes on one port leaves by the
// other. Buffers belong to a NIC, so frames are copied on their way.
type second struct {
	nic  *driver.NIC
	port wire.Port
	back []*backWorker
}

// openSecond brings up the other function and plugs its port in when frames may come.
func (s *session) openSecond(ctx context.Context) error {
	if s.c.Mode != "forward" {
		return nil
	}
	var port wire.Port
	var f pci.Function
	t, err := parseTarget(s.c.To)
	if err == nil {
		f, err = t.open(ctx, s.log)
	} else if port, err = s.openTo(ctx); err == nil {
		f, err = s.rig.Function(1)
	}
	if err != nil {
		return err
	}
	s.later("close the second function", f.Close)
	config, err := s.config()
	if err != nil {
		return err
	}
	nic, err := driver.Open(ctx, f, config)
	if err != nil {
		if ctx.Err() != nil {
			return interruption{err}
		}
		return err
	}
	s.later("close the second NIC", func() error { return s.close(nic) })
	s.second = &second{nic: nic, port: port}
	for i, w := range s.workers {
		w.tx = nic.TxQueue(i)
		s.second.back = append(s.second.back, &backWorker{rx: nic.RxQueue(i), tx: s.nic.TxQueue(i), s: s})
	}
	return nil
}

// openTo opens what the card's second port is plugged into.
func (s *session) openTo(ctx context.Context) (wire.Port, error) {
	port, err := await(ctx, func() (wire.Port, error) {
		if s.c.To == "discard" {
			return wire.NewDiscard(), nil
		}
		return wire.OpenTAP(tapNamed(s.c.To), 0)
	})
	if err == nil {
		s.later("close the second port", port.Close)
	}
	return port, err
}

// checkForward finds mistakes of --mode forward.
func (c *runCommand) checkForward(first target) error {
	second, err := parseTarget(c.To)
	switch {
	case (c.Mode == "forward") != (c.To != ""):
		return usagef("--mode forward and --to go together")
	case c.To == "" || err == nil && !second.simulated():
		return nil
	case !first.simulated():
		return usagef("--to %q: %s has no second port here: want another card", c.To, c.Device)
	case c.To != "discard" && tapNamed(c.To) == "":
		return usagef("--to %q: want tap:NAME, discard, or another card", c.To)
	}
	return nil
}

// start plugs the second port in and moves what comes there until ctx ends.
func (p *second) start(ctx context.Context, s *session, wg *sync.WaitGroup) error {
	if p == nil {
		return nil
	}
	for i, w := range p.back {
		wg.Go(func() {
			if err := w.run(ctx); err != nil {
				select {
				case s.failed <- fmt.Errorf("second port, queue %d: %w", i, err):
				default:
				}
			}
		})
	}
	if p.port == nil {
		return nil // a card with a port of its own
	}
	_, err := s.rig.Card.Plug(1, p.port)
	return err
}

// backWorker moves frames from a queue of the second port to one of the first.
type backWorker struct {
	s     *session
	rx    *driver.RxQueue
	tx    *driver.TxQueue
	moved tally
	pkts  [burst]driver.Packet
	copyBurst
}

func (w *backWorker) run(ctx context.Context) error {
	idle := 0
	for ctx.Err() == nil {
		n := w.rx.Poll(w.pkts[:])
		if n > 0 {
			idle = 0
			sent, err := w.forward(ctx, w.rx, w.tx, w.pkts[:n])
			w.moved.join(sent)
			if err != nil {
				return err
			}
			continue
		}
		if err := w.rx.Err(); err != nil {
			return err
		}
		if idle++; idle < patience {
			runtime.Gosched()
			continue
		}
		idle = 0
		if err := w.rx.Wait(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	if w.tx.Pending() == 0 {
		return nil
	}
	end, cancel := context.WithTimeout(context.Background(), w.s.c.flushTime())
	defer cancel()
	if err := w.tx.Flush(end); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// copyBurst copies packets between NICs.
type copyBurst struct{ out [burst]driver.Packet }

// forward sends copies of packets on a queue of another NIC and releases the packets. It waits for room.
func (c *copyBurst) forward(ctx context.Context, rx *driver.RxQueue, tx *driver.TxQueue, pkts []driver.Packet) (sent tally, err error) {
	defer rx.Release(pkts)
	before := tx.Stats()
	defer func() {
		after := tx.Stats()
		sent = tally{after.Packets - before.Packets, after.Bytes - before.Bytes}
	}()
	for left := pkts; len(left) > 0; {
		n := tx.Get(c.out[:min(len(left), burst)])
		for i := range c.out[:n] {
			c.out[i].Data = append(c.out[i].Data, left[i].Data...)
		}
		for out := c.out[:n]; ; {
			if out = out[tx.Send(out):]; len(out) == 0 {
				break
			}
			if err := tx.Wait(ctx); err != nil {
				tx.Release(out)
				return sent, unlessOver(ctx, err)
			}
		}
		left = left[n:]
		if n == 0 {
			if err := tx.Wait(ctx); err != nil {
				return sent, unlessOver(ctx, err)
			}
		}
	}
	return sent, nil
}

// unlessOver leaves out an error that the end of the run has caused.
func unlessOver(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// returned is what the second port received and the first one sent.
func (s *session) returned() *tally {
	if s.second == nil {
		return nil
	}
	t := new(tally)
	for _, w := range s.second.back {
		t.join(w.moved)
	}
	return t
}

// putRules puts the rules of the command line in force. All count, so that the result can tell of them.
func (s *session) putRules(ctx context.Context) error {
	rules, err := s.c.rules(s.c.Queues)
	if err != nil {
		return err
	}
	for _, r := range rules {
		r.rule.Count = true
		if r.group != nil {
			if r.rule.Group, err = s.nic.NewQueueGroup(ctx, driver.GroupConfig{Queues: r.group}); err != nil {
				return err
			}
		}
		id, err := s.nic.AddRule(ctx, r.rule)
		if err != nil {
			return fmt.Errorf("rule %q: %w", r.text, err)
		}
		s.rules = append(s.rules, ruleInForce{r, id})
	}
	return nil
}

// ruleInForce is a rule that the NIC has, and in the end what it counted.
type ruleInForce struct {
	userRule
	id driver.RuleID
}

// readRules reads the rules' counters.
func (s *session) readRules(ctx context.Context) error {
	for _, r := range s.rules {
		frames, bytes, err := s.nic.RuleCounter(ctx, r.id)
		if err != nil {
			return err
		}
		s.ruled = append(s.ruled, ruleResult{Rule: r.text, Frames: frames, Bytes: bytes})
		if r.rule.Action == driver.RuleDrop {
			s.dropped += frames
		}
	}
	return nil
}
