package stats

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cxkit/prm"
	"cxkit/stats"
)

// source makes a source of a card whose worker runs until the test's end, in a bubble of virtual time.
func source(t *testing.T, c *card, interval time.Duration, change func(*SourceConfig)) *Source {
	t.Helper()
	config := SourceConfig{
		Card: NewCard(everything(c)), Interval: interval,
		Totals: func(s *stats.Snapshot) { s.Add("rx_packets", 1) },
		Queues: func(s *stats.Snapshot) { s.Add("rx0_packets", 1) },
	}
	if change != nil {
		change(&config)
	}
	s := NewSource(config)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { s.Work(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

// link is how many commands a refresh of the link groups takes, all how many one of all groups does.
const link, all = 3, 19

func TestFirstQuickReadHasNothingAndAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &card{base: 1000}
		s := source(t, c, DefaultInterval, nil)
		first := s.Quick()
		if v, there := first.Lookup("rx_packets_phy"); !there || v != 0 || !first.Groups[0].Read.IsZero() {
			t.Errorf("the first reading has rx_packets_phy %d, there %v, read %v", v, there, first.Groups[0].Read)
		}
		synctest.Wait()
		if n := c.count.Load(); n != link {
			t.Errorf("%d commands, want %d", n, link)
		}
		second := s.Quick()
		if second.Get("rx_packets_phy") == 0 || second.Age(time.Now()) != 0 {
			t.Errorf("then %d, age %v", second.Get("rx_packets_phy"), second.Age(time.Now()))
		}
	})
}

// Two refreshes that readers ask for are at least an interval apart, and data is at most an interval and
// the time between two reads old.
func TestQuickReadsKeepTheInterval(t *testing.T) {
	for _, x := range []struct {
		every, interval time.Duration
		rounds          int64 // in 13 s
	}{
		{time.Second / 37, DefaultInterval, 61}, // every eighth read: 216 ms
		{time.Second / 5, DefaultInterval, 65},
		{time.Second / 200, DefaultInterval, 65},
		{time.Second / 37, 0, 482},
		{time.Second / 5, 0, 65},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := &card{}
			s := source(t, c, x.interval, nil)
			var oldest time.Duration
			for begin := time.Now(); time.Since(begin) < 13*time.Second; time.Sleep(x.every) {
				if got := s.Quick(); !got.Groups[0].Read.IsZero() {
					oldest = max(oldest, got.Age(time.Now()))
				}
				synctest.Wait()
			}
			if rounds := c.count.Load() / link; rounds != x.rounds || c.count.Load()%link != 0 {
				t.Errorf("a read every %v, interval %v: %d commands, %d rounds, want %d", x.every, x.interval, c.count.Load(), rounds, x.rounds)
			}
			if limit := max(x.interval, DefaultInterval) + x.every; oldest > limit {
				t.Errorf("a read every %v, interval %v: data %v old, want at most %v", x.every, x.interval, oldest, limit)
			}
		})
	}
}

// A thousand readers ask for one refresh, whatever the interval.
func TestParallelReadersAddNoCommand(t *testing.T) {
	for _, interval := range []time.Duration{DefaultInterval, 0} {
		synctest.Test(t, func(t *testing.T) {
			c := &card{at: make(chan chan struct{})}
			s := source(t, c, interval, nil)
			s.Quick()
			first := <-c.at // the refresh has begun
			for range 1000 {
				go s.Quick()
			}
			synctest.Wait()
			close(first)
			for range link - 1 {
				close(<-c.at)
			}
			synctest.Wait()
			want := int64(link) // with an interval what has begun is enough
			if interval == 0 {
				want += link // else they want one that begins after their call
				for range link {
					close(<-c.at)
				}
				synctest.Wait()
			}
			if n := c.count.Load(); n != want {
				t.Errorf("interval %v: %d commands, want %d", interval, n, want)
			}
		})
	}
}

func TestFullReadsShareWhatBeganAfterTheirCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &card{at: make(chan chan struct{})}
		s := source(t, c, DefaultInterval, nil)
		var wg sync.WaitGroup
		read := func() {
			if _, err := s.Full(t.Context()); err != nil {
				t.Error(err)
			}
		}
		wg.Go(read)
		release := <-c.at
		time.Sleep(time.Millisecond)
		for range 32 {
			wg.Go(read)
		}
		synctest.Wait()
		time.Sleep(time.Millisecond)
		close(release)
		for range 2*all - 1 {
			close(<-c.at)
		}
		wg.Wait()
		if n := c.count.Load(); n != 2*all {
			t.Errorf("%d commands for 33 readers, want two rounds of %d", n, all)
		}
	})
}

// There is one refresh at a time, whoever asks.
func TestNeverTwoRefreshesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &card{at: make(chan chan struct{})}
		s := source(t, c, 0, nil)
		for range 8 {
			go func() { _, _ = s.Full(t.Context()) }()
			s.Quick()
			s.QuickAll()
		}
		synctest.Wait()
		for n := int64(1); ; n++ {
			if got := c.count.Load(); got != n {
				t.Fatalf("%d commands have been issued when %d were let go", got, n-1)
			}
			select {
			case release := <-c.at:
				close(release)
			default:
				t.Fatal("nothing goes on")
			}
			synctest.Wait()
			if c.count.Load() == n {
				break // all done
			}
		}
	})
}

// A difference of two counters that are read one after the other may be too large once. It does not fall.
func TestDifferencesDoNotFall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		values := []uint64{50, 70, 60, 80}
		n := 0
		s := source(t, &card{}, 0, func(config *SourceConfig) {
			config.Totals = func(s *stats.Snapshot) { s.Add("tx_csum_none", values[min(n, 3)]); n++ }
		})
		for _, want := range []uint64{50, 70, 70, 80} {
			if got := s.Quick().Get("tx_csum_none"); got != want {
				t.Errorf("tx_csum_none is %d, want %d", got, want)
			}
			synctest.Wait()
		}
	})
}

func TestFullReadEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &card{at: make(chan chan struct{})}
		s := source(t, c, DefaultInterval, nil)
		s.Quick()
		release := <-c.at // holds the turn
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Full(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a full reading behind a refresh that hangs: %v", err)
		}
		close(release)
		for range link - 1 {
			close(<-c.at)
		}
	})
}

// What is under way when the source is closed ends before its next group, and nothing begins afterwards.
func TestCloseEndsRefreshes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &card{at: make(chan chan struct{})}
		s := source(t, c, DefaultInterval, nil)
		full := make(chan error)
		for range 3 {
			go func() { _, err := s.Full(t.Context()); full <- err }()
		}
		release := <-c.at
		closed := make(chan error)
		go func() { closed <- s.Close(t.Context()) }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("closed while a command is under way")
		default:
		}
		close(release)
		for range 3 {
			if err := <-full; !errors.Is(err, ErrClosed) {
				t.Errorf("a reading ended with %v", err)
			}
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
		s.Quick()
		s.QuickAll()
		s.Notify()
		synctest.Wait()
		if n := c.count.Load(); n != 1 {
			t.Errorf("%d commands, want the one that was under way", n)
		}
		if _, err := s.Full(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("a closed source: %v", err)
		}
	})
}

// Who reads a source that is closed sees what was counted until then, whichever way.
func TestReadsOfAClosedSourceAgree(t *testing.T) {
	var counted uint64
	s := NewSource(SourceConfig{
		Card: NewCard(Config{}), Totals: func(x *stats.Snapshot) { x.Add("tx_packets", counted) }, Queues: func(*stats.Snapshot) {},
	})
	counted = 1
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := s.Quick(); n.Get("tx_packets") != 1 {
		t.Errorf("a quick read of a closed source: %d, want 1", n.Get("tx_packets"))
	}
	counted = 2 // an owner that was late
	if n := s.Last(); n.Get("tx_packets") != 2 || len(n.Stale) != len(n.Groups) {
		t.Errorf("%+v", n)
	}
	if n := s.Quick(); n.Get("tx_packets") != 2 {
		t.Errorf("a quick read after the last one: %d, want 2", n.Get("tx_packets"))
	}
	counted = 3
	if n, err := s.Full(t.Context()); err == nil || n.Get("tx_packets") != 3 || s.Quick().Get("tx_packets") != 3 {
		t.Errorf("a full read of a closed source: %+v, %v", n, err)
	}
}

func TestQuickReadIsFastAndAllocatesNothing(t *testing.T) {
	s := NewSource(SourceConfig{
		Card: NewCard(everything(&card{})), Totals: func(*stats.Snapshot) {}, Queues: func(*stats.Snapshot) {},
	})
	if n := testing.AllocsPerRun(100, func() { s.Quick() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Where firmware says what moves, readers cost no command, and events are asked for once an interval.
func TestMonitoredCountersAreReadByEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &card{}
		arms := 0
		s := source(t, c, DefaultInterval, func(config *SourceConfig) {
			config.Arm = func(context.Context) error { arms++; return nil }
		})
		s.Monitored()
		for range 100 {
			s.Quick()
			time.Sleep(50 * time.Millisecond)
		}
		synctest.Wait()
		if n := c.count.Load(); n != 0 {
			t.Errorf("%d commands without an event", n)
		}
		if now := s.Quick(); time.Since(now.Time) > DefaultInterval+50*time.Millisecond {
			t.Errorf("the driver's own counters are %v old", time.Since(now.Time))
		}
		time.Sleep(time.Second)
		begin := time.Now()
		for time.Since(begin) < time.Second {
			s.Notify() // firmware has something to say all the time
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		if rounds := c.count.Load() / link; arms < 4 || arms > 6 || rounds != int64(arms) {
			t.Errorf("armed %d times, %d rounds in a second", arms, rounds)
		}
	})
}

func TestMonitorThatCannotBeArmedIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &card{}
		s := source(t, c, DefaultInterval, func(config *SourceConfig) {
			config.Arm = func(context.Context) error { return errors.New("refused") }
		})
		s.Monitored()
		s.Notify()
		synctest.Wait()
		before := c.count.Load()
		time.Sleep(time.Second)
		s.Quick()
		synctest.Wait()
		if c.count.Load() != before+link {
			t.Error("readers ask for nothing though firmware says nothing any more")
		}
	})
}

func TestMonitorNamesSevenCounters(t *testing.T) {
	c := &card{ops: map[prm.Opcode]int{}}
	config := everything(c)
	caps := prm.CapGeneral{MaxNumOfMonitorCounters: 7, NumPPCNTMonitorCounters: 6, NumQMonitorCounters: 1}
	m := NewMonitor(config, &caps)
	if m == nil || m.in.NumOfCounters != 7 || m.in.MonitorCounter[6].CounterGroupID != uint32(config.CounterSet) {
		t.Fatalf("monitor: %+v", m)
	}
	for _, f := range []func(context.Context) error{m.Start, m.Arm, m.Stop} {
		if err := f(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if c.ops[prm.OpSetMonitorCounter] != 2 || c.ops[prm.OpArmMonitorCounter] != 1 {
		t.Errorf("commands: %v", c.ops)
	}
	for _, less := range []prm.CapGeneral{
		{MaxNumOfMonitorCounters: 6, NumPPCNTMonitorCounters: 6, NumQMonitorCounters: 1},
		{MaxNumOfMonitorCounters: 7, NumPPCNTMonitorCounters: 5, NumQMonitorCounters: 1},
		{MaxNumOfMonitorCounters: 7, NumPPCNTMonitorCounters: 6},
		{},
	} {
		if NewMonitor(config, &less) != nil {
			t.Errorf("a monitor with %d, %d, %d counters", less.MaxNumOfMonitorCounters, less.NumPPCNTMonitorCounters, less.NumQMonitorCounters)
		}
	}
}

func BenchmarkQuick(b *testing.B) {
	s := NewSource(SourceConfig{
		Card: NewCard(everything(&card{})), Interval: DefaultInterval, Totals: func(*stats.Snapshot) {}, Queues: func(*stats.Snapshot) {},
	})
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() { s.Work(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	for b.Loop() {
		s.Quick()
	}
}
