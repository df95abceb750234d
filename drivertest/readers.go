package drivertest

import (
	"errors"
	"sync"
	"time"

	"cxkit/driver"
	"cxkit/stats"
)

// settled waits until the driver has nothing of its own to ask, as after a link came up.
func (e *Env) settled() uint64 {
	e.Helper()
	var issued uint64
	for quiet := 0; quiet < 20; {
		now := e.NIC.CommandStats().Issued
		if quiet++; now != issued {
			issued, quiet = now, 0
		}
		select {
		case <-time.After(time.Millisecond):
		case <-e.Ctx.Done():
			e.Fatalf("commands do not end: %v", e.Ctx.Err())
		}
	}
	return issued
}

// readingsCost compares what groups say that they cost with the commands that are issued.
func readingsCost(e *Env) {
	before := e.settled()
	s, err := e.NIC.Stats(e.Ctx)
	e.Must(err)
	var all, link int
	for _, g := range s.Groups {
		all += g.Commands
		if g.Link {
			link += g.Commands
		}
		if g.Read.IsZero() {
			e.Errorf("group %s was not read", g.Name)
		}
	}
	if n := e.settled() - before; n != uint64(all) {
		e.Errorf("a full reading took %d commands, its groups say %d", n, all)
	}
	if link < 2 || link > 4 {
		e.Errorf("a refresh of the link groups takes %d commands, want 2 to 4", link)
	}
}

// quickStats reads often: counters catch up, their age is known, and no reader makes a command.
func quickStats(e *Env) {
	want := Frames(e.NIC.MAC(), 20, 100)
	e.Send(want...)
	e.Same(e.Receive(0, len(want)), want)
	e.Until("quick readings catch up", func() bool {
		s := e.NIC.QuickStats()
		vport, _ := e.since(s, "rx_vport_unicast_packets")
		return vport == 20 && s.Get("rx_packets") == 20
	})
	e.Until("those of all groups, too", func() bool {
		prio, _ := e.since(e.NIC.QuickAllStats(), "rx_prio0_packets")
		return prio == 20
	})
	e.settled()
	begin, before := time.Now(), e.NIC.CommandStats().Issued
	var readers sync.WaitGroup
	for range 16 {
		readers.Go(func() {
			for range 1000 {
				e.NIC.QuickStats()
			}
		})
	}
	readers.Wait()
	rounds := uint64(time.Since(begin)/(200*time.Millisecond)) + 1
	if n := e.settled() - before; n > 4*rounds {
		e.Errorf("16,000 readings took %d commands in %v, want at most 4 a round of %d", n, time.Since(begin), rounds)
	}
}

// countersGoOn resets the NIC: nothing that it counted falls, and it goes on counting.
func countersGoOn(e *Env) {
	e.Send(Frames(e.NIC.MAC(), 10, 100)...)
	e.Receive(0, 10)
	e.Transmit(0, Frames(peer(), 5, 60)...)
	e.Flush(0)
	e.Arrived(5)
	before, err := e.NIC.Stats(e.Ctx)
	e.Must(err)
	next, err := e.NIC.Reset(e.Ctx)
	e.Must(err)
	e.NIC = next
	for _, s := range []stats.Snapshot{next.QuickStats(), e.fullStats()} {
		for _, c := range before.Counters {
			if now, there := s.Lookup(c.Name); !there || now < c.Value {
				e.Errorf("%s was %d, is %d after a reset, there: %v", c.Name, c.Value, now, there)
			}
		}
	}
	e.OnlyArrives(Frame(e.NIC.MAC(), 60, 1))
	e.Counters(map[string]uint64{"rx_packets": 11, "rx0_packets": 11, "tx_packets": 5, "rx_vport_unicast_packets": 11})
}

func (e *Env) fullStats() stats.Snapshot {
	e.Helper()
	s, err := e.NIC.Stats(e.Ctx)
	e.Must(err)
	return s
}

// readingDuringClose reads in every way while the NIC is closed. Readers pause, or on one processor the close would
// wait for the end of their time slices at each of its commands.
func readingDuringClose(e *Env) {
	e.Send(Frames(e.NIC.MAC(), 3, 60)...)
	e.Receive(0, 3)
	e.fullStats()
	nic := e.NIC
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for _, read := range []func() stats.Snapshot{
		nic.QuickStats, nic.QuickAllStats, nic.SoftwareStats,
		func() stats.Snapshot {
			s, _ := nic.Stats(e.Ctx) // fails, sooner or later
			return s
		},
	} {
		readers.Go(func() {
			for {
				if n := read().Get("rx_packets"); n != 3 {
					e.Errorf("rx_packets is %d", n)
				}
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Microsecond):
				}
			}
		})
	}
	e.Close()
	close(stop)
	readers.Wait()
	if _, err := nic.Stats(e.Ctx); !errors.Is(err, driver.ErrNICClosed) {
		e.Errorf("stats of a closed NIC: %v", err)
	}
}
