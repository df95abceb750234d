package reclaim

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"cxkit/device"
	"cxkit/driver"
	"cxkit/internal/rig"
)

// Receiving is how long a frame takes from the far end of the wire to the application, with and without
// firmware giving pages back meanwhile.
type Receiving struct {
	Frames       int // of each kind
	Storms       int // that began while frames were received
	Quiet, Storm Quantiles
	// Ratios are, for each pair of rounds, how much longer the worst of 10,000 frames takes in a storm.
	Ratios []float64
}

// Quantiles of a latency.
type Quantiles struct{ P50, P99, P999, P9999, Max time.Duration }

// Ratio is the median of the pairs' ratios. What the machine does beside strikes single rounds: it makes the
// quantiles of all rounds together, but not most of the pairs.
func (r *Receiving) Ratio() float64 {
	if len(r.Ratios) == 0 {
		return 0
	}
	list := slices.Sorted(slices.Values(r.Ratios))
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}

const (
	receiveRounds = 16
	receiveFrames = 20_000 // a round
	stormPages    = 300_000
)

// Receive measures the receive path, one frame at a time, in rounds with a storm and rounds without, by
// turns, so that what else the machine does strikes both alike.
func Receive(ctx context.Context, s Setting) (r Receiving, err error) {
	g, err := rig.New(rig.Config{Device: device.Config{Seed: s.Seed}})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	f, err := g.Function(0)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	nic, err := driver.Open(ctx, f, driver.Config{Promiscuous: true, ReclaimLimit: &s.Limit, MailboxPool: s.Pool, HostPage: s.HostPage})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, nic.Close(context.WithoutCancel(ctx))) }()
	for l := range nic.LinkChanges(ctx) {
		if l.Up {
			break
		}
	}
	var quiet, storm []time.Duration
	keep := func() error {
		st, err := g.Card.Storm(0, device.PageFunction{})
		if err != nil || st.Phase == device.StormFilling || st.Phase == device.StormDraining {
			return err
		}
		r.Storms++
		return g.Card.StormPages(0, device.PageFunction{}, stormPages)
	}
	for range receiveRounds {
		a, err := roundTrips(ctx, g, nic, nil)
		if err != nil {
			return r, err
		}
		b, err := roundTrips(ctx, g, nic, keep)
		if err != nil {
			return r, err
		}
		if err := calm(ctx, g); err != nil {
			return r, err
		}
		quiet, storm = append(quiet, a...), append(storm, b...)
		r.Ratios = append(r.Ratios, float64(quantiles(b).P9999)/float64(max(quantiles(a).P9999, 1)))
	}
	r.Frames, r.Quiet, r.Storm = len(quiet), quantiles(quiet), quantiles(storm)
	return r, nil
}

// roundTrips sends frames one after the other and notes when each is received. keep is called now and then.
func roundTrips(ctx context.Context, g *rig.Rig, nic *driver.NIC, keep func() error) ([]time.Duration, error) {
	times := make([]time.Duration, 0, receiveFrames)
	frame := make([]byte, 60)
	for i := range 6 {
		frame[i] = 0xff
	}
	rx := nic.RxQueue(0)
	pkts := make([]driver.Packet, 16)
	for i := range receiveFrames {
		if keep != nil && i%256 == 0 {
			if err := keep(); err != nil {
				return times, err
			}
		}
		begin := time.Now()
		for g.Far.Send(frame) != 1 {
			runtime.Gosched()
		}
		for n := 0; n == 0; {
			if n = rx.Poll(pkts); n > 0 {
				rx.Release(pkts[:n])
				break
			}
			if time.Since(begin) > 10*time.Second {
				return times, fmt.Errorf("frame %d has not come within 10 s", i)
			}
			if err := ctx.Err(); err != nil {
				return times, err
			}
			runtime.Gosched()
		}
		times = append(times, time.Since(begin))
	}
	return times, nil
}

// calm waits for the end of a storm.
func calm(ctx context.Context, g *rig.Rig) error {
	return (&bench{}).until(ctx, func() (bool, error) {
		st, err := g.Card.Storm(0, device.PageFunction{})
		return st.Phase == device.StormOver, err
	})
}

func quantiles(list []time.Duration) Quantiles {
	if len(list) == 0 {
		return Quantiles{}
	}
	slices.Sort(list)
	at := func(q float64) time.Duration { return list[min(int(q*float64(len(list))), len(list)-1)] }
	return Quantiles{P50: at(0.5), P99: at(0.99), P999: at(0.999), P9999: at(0.9999), Max: list[len(list)-1]}
}
