package reclaim

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"cxkit/driver"
	"cxkit/lab"
	"cxkit/lab/report"
)

// Columns of the rows.
const (
	colEvent  = "event"
	colPool   = "pool"
	colBlocks = "mailboxes"
	colMemory = "pool KiB"
	colRounds = "rounds"
	colMedian = "median free ns"
	colMean   = "mean free ns"
	colTotal  = "total ns"
	colStall  = "longest stall ns"
	colHosts  = "host pages"
)

// longRounds is how many rounds are enough where each searches a list for 20,000 mailboxes.
const longRounds = 3

// Experiment is E1.
func Experiment() *lab.Experiment {
	return &lab.Experiment{
		Name:   "reclaim",
		About:  "firmware gives millions of pages back, with and without a limit to what one command takes",
		Change: "limit",
		Knobs: []lab.Knob{
			{Name: "limit", Help: "most pages taken with one command", Default: "50k",
				Values: []string{"none", "1k", "50k"}, Before: "none", After: "50k"},
			{Name: "event", Help: "pages that firmware offers back at once", Default: "1300000", Full: "1260000,1300000,3400000,8000000"},
			{Name: "pool", Help: "how mailboxes are found", Default: "both", Values: []string{"linear", "constant", "both"}},
			{Name: "page", Help: "size of the host's pages", Default: "4K", Values: []string{"4K", "64K"}},
		},
		Thread: lab.Thread{
			Source:     "net/mlx5: Reclaim max 50K pages at once (501c3005f031)",
			Conditions: "ConnectX-5, an event of 1.3 million pages, a kernel that is not preempted",
			Figures: map[string]string{
				"mailboxes of a command": "about 20K before, about 800 after",
				"time of a free":         "mostly 16 to 32 us before, 1 to 2 us after",
				"pages asked back":       "about 8 million at worst",
			},
		},
		Incomparable: []string{
			"Times: they are this machine's. Counts are exact; of times only the ratio of a free is claimed, at least 8 on the linear pool and about 1 on the constant one.",
			"The stall is that of a task that shares the page worker's processor, which is played by a lock.",
			"Firmware's latency: the model's takes none.",
		},
		Check:   lab.CheckBy(parse),
		Measure: measureRows,
		Effect:  effect,
		Plot:    plot,
	}
}

// parse makes settings of knobs, a row each.
func parse(s lab.Setting) ([]Setting, error) {
	base := Setting{Limit: map[string]int{"none": 0, "1k": 1000, "50k": threadLimit}[s.Knobs["limit"]], Seed: s.Rand.Uint64()}
	if s.Knobs["page"] == "64K" {
		base.HostPage = 65536
	}
	pools := []driver.MailboxPool{driver.MailboxPoolLinear, driver.MailboxPoolConstant}
	switch s.Knobs["pool"] {
	case "linear":
		pools = pools[:1]
	case "constant":
		pools = pools[1:]
	}
	var list []Setting
	for field := range strings.SplitSeq(s.Knobs["event"], ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 || n > maxEvent {
			return nil, fmt.Errorf("event=%s: want numbers from 1 to %d with commas between them", s.Knobs["event"], maxEvent)
		}
		for _, pool := range pools {
			x := base
			x.Event, x.Pool = n, pool
			if x.Limit == 0 && pool == driver.MailboxPoolLinear {
				x.MaxRounds = longRounds
			}
			list = append(list, x)
		}
	}
	return list, nil
}

// maxEvent is what firmware can be lent beside what it needs.
const maxEvent = 16_000_000

func measureRows(ctx context.Context, s lab.Setting) (lab.Measured, error) {
	m := lab.Measured{Drawn: map[string]int{}, Rows: report.Table{Columns: []string{
		colEvent, colPool, colBlocks, colMemory, colRounds, colMedian, colMean, colTotal, colStall, colHosts,
	}}}
	list, err := parse(s)
	if err != nil {
		return m, err
	}
	for _, x := range list {
		r, err := Measure(ctx, x)
		if err != nil {
			return m, fmt.Errorf("event of %d pages, %v pool: %w", x.Event, x.Pool, err)
		}
		m.Rows.Add(x.Event, x.Pool.String(), r.Blocks, r.Memory>>10, r.Rounds, r.MedianFree(), r.MeanFree(), r.Total, r.Stall, r.Hosts[0])
		m.Agreements = append(m.Agreements, r.agreements()...)
	}
	return m, nil
}

// agreements are what was counted twice.
func (r *Result) agreements() []lab.Agreement {
	name := fmt.Sprintf(", event of %d, %v pool", r.Event, r.Pool)
	rounds, blocks := r.expected()
	all := []lab.Agreement{
		{What: "mailboxes of the first command" + name, First: lab.Count{By: "the pool", Value: uint64(r.Blocks)},
			Second: lab.Count{By: "64 addresses a mailbox", Value: uint64(blocks)}},
		{What: "pages that came back" + name, First: lab.Count{By: "the driver's ledger", Value: uint64(r.Returned)},
			Second: lab.Count{By: "the card's books", Value: uint64(r.CardReturned)}},
	}
	if r.MaxRounds == 0 {
		all = append(all, lab.Agreement{What: "rounds" + name, First: lab.Count{By: "the driver's command table", Value: uint64(r.Rounds)},
			Second: lab.Count{By: "50,000 pages a command at most", Value: uint64(rounds)}})
	}
	return all
}

// effect: a command's answer takes the 782 mailboxes of 50,000 pages.
func effect(m lab.Measured) (shown bool, words string) {
	var list []string
	shown = len(m.Rows.Rows) > 0
	for i := range m.Rows.Rows {
		n := m.Rows.Float(i, colBlocks)
		shown = shown && n == threadBlocks
		list = append(list, fmt.Sprintf("%.0f", n))
	}
	return shown, "mailboxes of a command: " + strings.Join(list, ", ")
}

func plot(before, after lab.Measured) report.Plot {
	p := report.Plot{Title: "Reclaim of firmware pages: a free, and the longest stall", Y: "ns"}
	p.Series = lab.BeforeAndAfter(before, after, colMedian, colStall)
	for i := range after.Rows.Rows {
		pool := driver.MailboxPoolLinear
		if fmt.Sprint(after.Rows.Rows[i][1]) != pool.String() {
			pool = driver.MailboxPoolConstant
		}
		p.Groups = append(p.Groups, fmt.Sprintf("%.2f M, %v", after.Rows.Float(i, colEvent)/1e6, pool))
	}
	return p
}

// idle waits until the driver has no command under way.
func (b *bench) idle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return b.until(ctx, func() (bool, error) {
		return b.nic.CommandStats().InFlight == 0 && b.card.Books().Functions[0].Running == 0, nil
	})
}
