package cmdif_test

import (
	"context"
	"encoding/hex"
	"log/slog"
	"testing"

	"cxkit/dma"
	"cxkit/driver/internal/cmdif"
	"cxkit/mmio"
	"cxkit/prm"
)

// instant is a device that completes each command within its doorbell, without allocating: the driver's
// side alone.
type instant struct {
	c      *cmdif.Interface
	queue  *dma.Arena
	events bool
	last   prm.CmdEntry // as it was at the latest doorbell
}

func (d *instant) Load(off uint64, size int) uint64 {
	if off == prm.InitSegCmdQOff {
		return uint64(prm.InitSegCmdQDword(0, 0, 5, 6))
	}
	return 0
}

func (d *instant) Store(off uint64, size int, v uint64) {
	if off != prm.InitSegCommandDoorbellVectorOff {
		return
	}
	for slot := range 32 {
		if v>>slot&1 == 0 {
			continue
		}
		e := d.queue.Bytes()[slot*prm.CmdEntrySize:]
		copy(d.last[:], e)
		control := prm.CmdEntryStatus(dma.LoadBE32(e, prm.CmdEntryStatusOff))
		dma.StoreBE32(e, prm.CmdEntryStatusOff, prm.CmdEntryStatusDword(control.Token(), 0, 0, false))
	}
	if d.events {
		d.c.Complete(uint32(v))
	}
}

func openInstant(tb testing.TB, events bool, edits ...func(*cmdif.Config)) (*cmdif.Interface, *instant) {
	tb.Helper()
	d := &instant{events: events}
	arena := func(size int, kind dma.Kind) (*dma.Arena, error) {
		a, err := dma.New(size, dma.Heap)
		if err == nil {
			a.Place(1<<32, nil)
			if d.queue == nil {
				d.queue = a
			}
		}
		return a, err
	}
	config := cmdif.Config{Window: mmio.NewTrapped(d, 1<<16), NewArena: arena, Log: slog.New(slog.DiscardHandler)}
	for _, edit := range edits {
		edit(&config)
	}
	c, err := cmdif.Open(config)
	if err != nil {
		tb.Fatal(err)
	}
	d.c = c
	if events {
		c.UseEvents(func() int { return 0 })
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c, d
}

func TestCommandsOfOneMailboxAllocateNothing(t *testing.T) {
	for _, events := range []bool{false, true} {
		c, _ := openInstant(t, events)
		for name, run := range map[string]struct {
			in  cmdif.In
			out cmdif.Out
		}{
			"no mailbox":      {&prm.NopIn{}, &prm.NopOut{}},
			"one in":          {&prm.CreateCQIn{PAS: make([]uint64, 8)}, &prm.CreateCQOut{}},
			"one out":         {&prm.QueryCQIn{}, &prm.QueryCQOut{}},
			"one each":        {&prm.QueryRQIn{}, &prm.QueryRQOut{}},
			"nine, for scale": {&prm.QueryHCACapIn{}, &prm.QueryHCACapOut{}},
		} {
			ctx := context.Background()
			if n := testing.AllocsPerRun(200, func() {
				if err := c.Exec(ctx, run.in, run.out); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("%s, events %v: %v allocations a command", name, events, n)
			}
		}
	}
}

// The entry of a real teardown, as Linux sent it (reference reports.md, R09), signature included.
func TestEntryIsTheOneLinuxSends(t *testing.T) {
	c, d := openInstant(t, false)
	for range 0x3e {
		if err := nop(c, t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	in := prm.TeardownHCAIn{Profile: prm.TeardownForce}
	if err := c.Exec(t.Context(), &in, &prm.TeardownHCAOut{}); err != nil {
		t.Fatal(err)
	}
	want := "" +
		"07000000" + "00000010" + "00000000" + "00000000" +
		"01030000" + "00000000" + "00000001" + "00000000" +
		"00000000" + "00000000" + "00000000" + "00000000" +
		"00000000" + "00000000" + "00000010" + "3fc50001"
	if got := hex.EncodeToString(d.last[:]); got != want {
		t.Errorf("entry\n%s, want\n%s", got, want)
	}
}

func BenchmarkCommand(b *testing.B) {
	for name, run := range map[string]struct {
		in  cmdif.In
		out cmdif.Out
	}{
		"inline":  {&prm.NopIn{}, &prm.NopOut{}},
		"mailbox": {&prm.CreateCQIn{PAS: make([]uint64, 8)}, &prm.CreateCQOut{}},
		"caps":    {&prm.QueryHCACapIn{}, &prm.QueryHCACapOut{}},
	} {
		b.Run(name, func(b *testing.B) {
			c, _ := openInstant(b, true)
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				if err := c.Exec(ctx, run.in, run.out); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
