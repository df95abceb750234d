package metrics

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"cxkit/stats"
)

// prefix is that of all metrics.
const prefix = "mlx5_"

// Options choose what a Collector exposes.
type Options struct {
	// Queues exposes the counters of single queues.
	Queues bool
	// Now is the time; time.Now if nil.
	Now func() time.Time
}

// Collector makes metrics of targets. It is a prometheus.Collector whose metrics depend on what the targets
// have, so it describes none beforehand.
type Collector struct {
	options Options
	targets []Target

	mu       sync.Mutex // guards the caches, and keeps scrapes apart
	names    map[string]*known
	families map[string]*family
	fixed    []map[string]*point // by target, of its counters
}

// known is what was found out about a counter's name.
type known struct {
	metric
	family *family
}

// NewCollector makes a collector of targets.
func NewCollector(o Options, targets ...Target) *Collector {
	if o.Now == nil {
		o.Now = time.Now
	}
	c := &Collector{options: o, targets: targets, names: make(map[string]*known), families: make(map[string]*family)}
	for range targets {
		c.fixed = append(c.fixed, make(map[string]*point))
	}
	return c
}

// Describe describes nothing: the collector is an unchecked one.
func (c *Collector) Describe(chan<- *prometheus.Desc) {}

// Collect makes all metrics.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	c.gather(new(batch), func(s *sample) { out <- s })
}

// gather makes all samples, in the memory of b.
func (c *Collector) gather(b *batch, out func(*sample)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.targets {
		t := &c.targets[i]
		g := &gathering{c, t, c.fixed[i], b, out}
		g.gauge("device_info", "What the device is; always 1.", 1, label{"model", t.Model}, label{"firmware", t.Firmware})
		if t.Counters != nil {
			g.counters(t.Counters())
		}
		if t.Commands != nil {
			g.commands(t.Commands())
		}
		if t.Health != nil {
			g.health(t.Health())
		}
		if t.Pages != nil {
			g.pages(t.Pages())
		}
		if t.Buffers != nil {
			for _, b := range t.Buffers() {
				g.gauge("buffers", "Packet buffers by who has them.", float64(b.Count), label{"holder", b.Holder})
			}
		}
	}
}

// gathering is a scrape of one target.
type gathering struct {
	*Collector
	t     *Target
	fixed map[string]*point
	batch *batch
	out   func(*sample)
}

// family finds the family of a name, which has the same kind and labels each time.
func (c *Collector) family(kind dto.MetricType, name, help string, labels ...string) *family {
	f := c.families[name]
	if f == nil {
		f = newFamily(kind, prefix+name, help, append([]string{"device", "port"}, labels...))
		c.families[name] = f
	}
	return f
}

func (g *gathering) emit(kind dto.MetricType, name, help string, v float64, labels []label) {
	g.out(g.batch.number(g.place(kind, name, help, labels), v))
}

// place is where a sample of a name goes that has labels beside those of the target.
func (g *gathering) place(kind dto.MetricType, name, help string, labels []label) *point {
	names, values := make([]string, 0, 2), append(make([]string, 0, 4), g.t.Device, g.t.Port)
	for _, l := range labels {
		names, values = append(names, l.name), append(values, l.value)
	}
	return g.family(kind, name, help, names...).point(values...)
}

type label struct{ name, value string }

func (g *gathering) gauge(name, help string, v float64, labels ...label) {
	g.emit(dto.MetricType_GAUGE, name, help, v, labels)
}

func (g *gathering) counter(name, help string, v float64, labels ...label) {
	g.emit(dto.MetricType_COUNTER, name+"_total", help, v, labels)
}

// lookup finds the metric of a counter, once a name.
func (c *Collector) lookup(name string) *known {
	if k := c.names[name]; k != nil {
		return k
	}
	k := &known{metric: of(name)}
	full, kind, help := k.name+"_total", dto.MetricType_COUNTER, "Counter "+name+" of ethtool -S."
	if k.gauge {
		full, kind, help = k.name, dto.MetricType_GAUGE, "Level "+name+" of ethtool -S."
	}
	if why := dropHelp(name); why != "" {
		help += " Frames lost: " + why + "."
	}
	if k.queue == "" {
		k.family = c.family(kind, full, help)
	} else {
		k.family = c.family(kind, full, "Counter "+k.name[len("queue_"):]+" of a queue, by its number.", "queue")
	}
	c.names[name] = k
	return k
}

// counterAt finds where a counter of the target goes, once a name; nil: nowhere.
func (g *gathering) counterAt(name string) *point {
	p, there := g.fixed[name]
	if there {
		return p
	}
	switch k := g.lookup(name); {
	case k.queue == "":
		p = k.family.point(g.t.Device, g.t.Port)
		p.scale = k.scale
	case g.options.Queues:
		p = k.family.point(g.t.Device, g.t.Port, k.queue)
		p.scale = k.scale
	}
	g.fixed[name] = p
	return p
}

func dropHelp(name string) string {
	for _, d := range stats.Drops() {
		if d.Counter == name {
			return d.Why
		}
	}
	return ""
}

func (g *gathering) counters(s stats.Snapshot) {
	for i := range s.Counters {
		n := &s.Counters[i]
		if p := g.counterAt(n.Name); p != nil {
			g.out(g.batch.number(p, float64(n.Value)*p.scale))
		}
	}
	now := g.options.Now()
	g.gauge("stats_age_seconds", "How old the counters of the interface are.", s.Age(now).Seconds())
	for _, group := range s.Groups {
		if group.Read.IsZero() {
			continue
		}
		g.gauge("stats_group_age_seconds", "How old a group of counters is that is read together.",
			now.Sub(group.Read).Seconds(), label{"group", group.Name})
	}
	g.gauge("stats_groups_stale", "Groups of counters that could not be read the last time.", float64(len(s.Stale)))
}

// Buckets of command latencies: every second power of two of nanoseconds, from about a microsecond to a
// minute.
const firstBucket, lastBucket, bucketStep = 10, 36, 2

func (g *gathering) commands(c stats.Commands) {
	for _, op := range c.Opcodes {
		name := op.Name
		if name == "" {
			name = fmt.Sprintf("%#x", op.Opcode)
		}
		h, below, next := new(histogram), uint64(0), 0
		h.count, h.sum = op.Latency.Count(), op.Total.Seconds()
		for le := firstBucket; le <= lastBucket; le += bucketStep {
			for ; next < le; next++ { // bin i ends at 2^(i+1)
				below += op.Latency.Bins[next]
			}
			h.add(float64(uint64(1)<<le)/1e9, below)
		}
		g.out(g.batch.histogram(g.place(dto.MetricType_HISTOGRAM, "command_latency_seconds",
			"Time from the doorbell of a firmware command to its completion.", []label{{"command", name}}), h))
		if op.Failed > 0 {
			g.counter("command_failures", "Firmware commands that failed.", float64(op.FailedStatus), label{"command", name}, label{"cause", "status"})
			g.counter("command_failures", "Firmware commands that failed.", float64(op.FailedTransport), label{"command", name}, label{"cause", "transport"})
		}
	}
	g.gauge("command_slots", "Entries of the command queue.", float64(c.Slots))
	g.gauge("commands_in_flight", "Command slots in use by a command that has a caller.", float64(c.InFlight))
	g.gauge("command_slots_quarantined", "Command slots whose command was given up and may still be with firmware.", float64(len(c.Stuck)))
	g.counter("commands_issued", "Commands given to firmware.", float64(c.Issued))
	g.counter("commands_unanswered", "Commands that were given up after they were issued.", float64(c.NoAnswer))
	g.counter("command_late_completions", "Commands that completed after they had been given up.", float64(c.LateCompletions))
	g.counter("command_events_lost", "Commands that completed without an event.", float64(c.LostEvents))
	g.gauge("command_mailboxes_out", "Command mailboxes in use.", float64(c.Mailbox.Out))
}

func (g *gathering) health(h stats.Health) {
	ok := 0.
	if h.OK() {
		ok = 1
	}
	g.gauge("health_ok", "1 while no health reporter is in error.", ok)
	g.gauge("health_syndrome", "Syndrome in the health buffer, 0 for none.", float64(h.Syndrome))
	g.gauge("health_missed_beats", "Looks in a row that found firmware's heartbeat standing still.", float64(h.Misses))
	for _, r := range h.Reporters {
		g.counter("health_errors", "Errors of a health reporter.", float64(r.Errors), label{"reporter", r.Name})
		g.counter("health_recoveries", "Recoveries of a health reporter.", float64(r.Recovers), label{"reporter", r.Name})
	}
}

func (g *gathering) pages(all []stats.FunctionPages) {
	for _, f := range all {
		labels := []label{{"function", strconv.Itoa(int(f.Function))}, {"type", f.Type}}
		g.gauge("firmware_pages", "Pages of 4096 bytes that firmware has.", float64(f.Out), labels...)
		g.counter("firmware_pages_given", "Pages given to firmware.", float64(f.Given), labels...)
		g.counter("firmware_pages_returned", "Pages that firmware gave back.", float64(f.Returned), labels...)
		g.counter("firmware_page_failures", "Page commands that failed.", float64(f.GiveFails+f.TakeFails), labels...)
	}
}
