package reclaim

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"cxkit/driver"
	"cxkit/stats"
)

// limitName is a limit as the tables print it.
func limitName(limit int) string {
	if limit == 0 {
		return "none"
	}
	return fmt.Sprint(limit)
}

// WriteTable prints results, a row each.
func WriteTable(w io.Writer, results []Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "event\tlimit\tpool\tpage\tmailboxes\tpool memory\trounds\tns a free\ttotal\tlongest stall\t\n")
	for i := range results {
		r := &results[i]
		page := r.HostPage
		if page == 0 {
			page = 4096
		}
		total := r.Total.Round(100 * time.Microsecond).String()
		if !r.Complete {
			total = fmt.Sprintf("%s for %d rounds", total, r.Rounds)
		}
		fmt.Fprintf(t, "%d\t%s\t%v\t%dK\t%d\t%d KiB\t%d\t%d\t%s\t%v\t\n", r.Event, limitName(r.Limit), r.Pool, page>>10,
			r.Blocks, r.Memory>>10, r.Rounds, r.MeanFree().Nanoseconds(), total, r.Stall.Round(10*time.Microsecond))
	}
	return t.Flush()
}

// WriteHistograms prints the times of the frees of one command without and with the limit, beside the
// thread's.
func WriteHistograms(w io.Writer, without, with *Result) error {
	before, after := Thread()
	first, last := len(before.Bins), 0
	for i := range before.Bins {
		if before.Bins[i]+after.Bins[i]+without.Free.Bins[i]+with.Free.Bins[i] > 0 {
			first, last = min(first, i), max(last, i)
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "ns\tthread before\there, no limit\tthread after\there, limit\t\n")
	for i := first; i <= last; i++ {
		fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%d\t\n", uint64(1)<<i, before.Bins[i], without.Free.Bins[i], after.Bins[i], with.Free.Bins[i])
	}
	count := func(h stats.Histogram) uint64 { return h.Count() }
	fmt.Fprintf(t, "total\t%d\t%d\t%d\t%d\t\n", count(before), count(without.Free), count(after), count(with.Free))
	return t.Flush()
}

// WriteReceiving prints what a storm does to receiving.
func WriteReceiving(w io.Writer, r *Receiving) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "\tp50\tp99\tp99.9\tp99.99\tlongest\t\n")
	for _, row := range []struct {
		name string
		q    Quantiles
	}{{"without a storm", r.Quiet}, {"in a storm", r.Storm}} {
		fmt.Fprintf(t, "%s\t%v\t%v\t%v\t%v\t%v\t\n", row.name, row.q.P50, row.q.P99, row.q.P999, row.q.P9999, row.q.Max)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d frames each, %d storms; p99.99 in a storm is %.2f times that without, the median of %d pairs of rounds\n",
		r.Frames, r.Storms, r.Ratio(), len(r.Ratios))
	return err
}

// Settings are the rows of the experiment; full adds those of 8 million pages.
func Settings(seed uint64, full bool) []Setting {
	const constant, linear = driver.MailboxPoolConstant, driver.MailboxPoolLinear
	list := []Setting{
		{Event: 1_300_000, Limit: 0, Pool: linear, MaxRounds: 3},
		{Event: 1_300_000, Limit: threadLimit, Pool: linear},
		{Event: 1_300_000, Limit: 1000, Pool: linear},
		{Event: 1_300_000, Limit: 0, Pool: constant},
		{Event: 1_300_000, Limit: threadLimit, Pool: constant},
		{Event: 1_300_000, Limit: 1000, Pool: constant},
		{Event: 1_300_000, Limit: threadLimit, Pool: constant, HostPage: 65536},
		{Event: 1_260_000, Limit: threadLimit, Pool: constant},
		{Event: 3_400_000, Limit: threadLimit, Pool: constant},
	}
	if full {
		list = append(list,
			Setting{Event: 8_000_000, Limit: 0, Pool: constant, MaxRounds: 3},
			Setting{Event: 8_000_000, Limit: threadLimit, Pool: constant},
			Setting{Event: 8_000_000, Limit: threadLimit, Pool: linear},
			Setting{Event: 8_000_000, Limit: threadLimit, Pool: constant, HostPage: 65536},
		)
	}
	for i := range list {
		list[i].Seed = seed
	}
	return list
}
