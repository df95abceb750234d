package main

import (
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"text/template"

	"cxkit/examples/kernel/study"
)

// whole is how many segments of 1448 bytes a packet of 64 KiB has.
const whole = 45

// report writes the report, in Markdown.
func report(w io.Writer, releases []string, args string, rows []row, own []pool) error {
	var merged, pools, ours strings.Builder
	for _, v := range rows {
		name := fmt.Sprintf("%s, legacy", v.kernel)
		if v.striding {
			name = fmt.Sprintf("%s, striding", v.kernel)
		}
		if v.probed() {
			packets, segments, pages, _ := v.pages(0)
			full, _, fullPages, most := v.pages(whole)
			fmt.Fprintf(&merged, "| %s | %s | %s | %s | %s | %d | %s | %d |\n", name, study.Grouped(packets), study.Grouped(segments), ratio(segments, packets),
				ratio(pages, packets), full, ratio(fullPages, full), most)
		}
		fmt.Fprintf(&pools, "| %s | %s | %s | %s | %s | %s |\n", name, study.Grouped(v.counters["rx_packets"]), study.Grouped(v.taken), study.Grouped(v.fresh),
			ratio(v.taken, v.counters["rx_packets"]), v.cache())
	}
	for _, p := range own {
		fmt.Fprintf(&ours, "| %s | %s | %s | %s |\n", p.name, short(p.pages), short(p.most), short(p.recycled))
	}
	t, err := template.New("report").Parse(page)
	if err != nil {
		return err
	}
	return t.Execute(w, map[string]any{
		"Merged": strings.TrimSpace(merged.String()), "Pools": strings.TrimSpace(pools.String()), "Ours": strings.TrimSpace(ours.String()),
		"Releases": strings.Join(releases, "; "), "Args": args, "Host": fmt.Sprintf("%d CPUs, %s", runtime.NumCPU(), runtime.Version()),
	})
}

func ratio(a, b int) string {
	if b == 0 {
		return "none"
	}
	return fmt.Sprintf("%.2f", float64(a)/float64(b))
}

// short rounds a number of a table.
func short(text string) string {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return text
	}
	return strconv.FormatFloat(n, 'g', 4, 64)
}

const page = `# On how many pages a received packet lies, in Linux

"mlx4: Better use of order-0 pages in RX path" has two frames share a page of 4 KiB, where a packet of 45 segments lay on
45. mlx5 of today, and cxkit's own driver, receive the same capture: iperf3 over TCP and UDP, both ways, frame by frame.

    go run ./examples/kernel/rxpages {{.Args}}

- kernels: {{.Releases}}
- no edit: Debian's own mlx5_core; MTU 1500, 1024 entries, LRO off, GRO on with packets kept up to 2 ms
  (gro_flush_timeout)
- one emulated processor (QEMU, TCG). This machine: {{.Host}}, shared with other work.

Packets that GRO merged, by probes on skb_gro_receive and inet_gro_complete: each segment's buffer has an address, and
so a page.

| kernel, queue | merged packets | segments | segments a packet | pages a packet | of 45 segments | their pages a packet | most |
|---|---|---|---|---|---|---|---|
{{.Merged}}

| cxkit's layout (` + "`cxkit lab run rxpages`" + `) | pages a packet of 45 segments | most | recycled % |
|---|---|---|---|
{{.Ours}}

Pages that queues took from page_pool, from ifup on, and how many of those were fresh from the kernel (trace event
page_pool_state_hold; the rest were recycled). ` + "`ethtool -S`" + ` counts mlx5's own cache as rx_cache_* in 6.1, and has nothing
of the pool's: Debian's kernels are built without CONFIG_PAGE_POOL_STATS.

| kernel, queue | packets | taken from page_pool | fresh | taken a packet | rx_cache: reused |
|---|---|---|---|---|---|
{{.Pools}}

What it shows: two frames share a page, with striding queues and without, and 45 segments that nothing came between lie
on 23 pages, as half of mlx4's 45 promised and as cxkit's halves have them without foreign frames. In this capture
cxkit merges segments across frames of other flows, which take places on pages, too: about ten packets of 45 segments
each time it is played, where Linux makes one. Nearly all pages come around again, in 6.1 by mlx5's own cache, in
6.12 by the pool.

The run fails if a packet that was played was not received, if a segment lies on more than one buffer, if the trace lost
an event, or if the kernel warned.

What can't be compared: mlx4's own figures, as there is no such card here; PowerPC's pages of 64 KiB; a rate.
Merging follows the polls of an emulated processor, and so does the number of packets with 45 segments. Merged packets
are counted in 6.12 alone: 6.1's probes don't know the kernel's types.
`
