package metrics

import (
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Samples are made in the form that is printed, and in memory that is used again: a card of 128 queues has 4,000.

// family is the metrics of one name.
type family struct {
	name, help string
	kind       dto.MetricType
	desc       *prometheus.Desc
	labels     []string // names
}

func newFamily(kind dto.MetricType, name, help string, labels []string) *family {
	return &family{name: name, help: help, kind: kind, labels: labels, desc: prometheus.NewDesc(name, help, labels, nil)}
}

// point is a metric: a family and the values of its labels.
type point struct {
	family *family
	labels []*dto.LabelPair // by name; shared by all samples
	scale  float64          // of counters
}

// point makes a metric of a family. What is no UTF-8 in a value is replaced.
func (f *family) point(values ...string) *point {
	p := &point{family: f}
	for i, name := range f.labels {
		p.labels = append(p.labels, &dto.LabelPair{Name: new(name), Value: new(strings.ToValidUTF8(values[i], "\ufffd"))})
	}
	slices.SortFunc(p.labels, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
	return p
}

// sample is a metric's value: a prometheus.Metric.
type sample struct {
	family  *family
	metric  dto.Metric
	counter dto.Counter
	gauge   dto.Gauge
	value   float64
}

// Desc describes the metric.
func (s *sample) Desc() *prometheus.Desc { return s.family.desc }

// Write fills in m.
func (s *sample) Write(m *dto.Metric) error {
	m.Label, m.Counter, m.Gauge, m.Histogram = s.metric.Label, s.metric.Counter, s.metric.Gauge, s.metric.Histogram
	return nil
}

// histogram is counts of values up to bounds.
type histogram struct {
	dto     dto.Histogram
	count   uint64
	sum     float64
	buckets []bucket
}

type bucket struct {
	bound float64
	count uint64
}

func (h *histogram) add(bound float64, count uint64) {
	h.buckets = append(h.buckets, bucket{bound, count})
}

// batch is the memory of a scrape's samples. The zero value is empty.
type batch struct {
	parts    [][]sample // all of the same size, but empty ones
	used     int
	families map[string]*dto.MetricFamily // of gathered
}

const batchPart = 512

// next is a sample of a metric without a value.
func (b *batch) next(p *point) *sample {
	if b.used == len(b.parts)*batchPart {
		b.parts = append(b.parts, make([]sample, batchPart))
	}
	s := &b.parts[b.used/batchPart][b.used%batchPart]
	b.used++
	s.family, s.metric.Label = p.family, p.labels
	s.metric.Counter, s.metric.Gauge, s.metric.Histogram = nil, nil, nil
	return s
}

// number is a sample of a counter or a gauge.
func (b *batch) number(p *point, v float64) *sample {
	s := b.next(p)
	s.value = v
	if p.family.kind == dto.MetricType_COUNTER {
		s.counter.Value = &s.value
		s.metric.Counter = &s.counter
	} else {
		s.gauge.Value = &s.value
		s.metric.Gauge = &s.gauge
	}
	return s
}

// histogram is a sample of a histogram.
func (b *batch) histogram(p *point, h *histogram) *sample {
	s := b.next(p)
	h.dto.SampleCount, h.dto.SampleSum = &h.count, &h.sum
	for i := range h.buckets {
		h.dto.Bucket = append(h.dto.Bucket, &dto.Bucket{UpperBound: &h.buckets[i].bound, CumulativeCount: &h.buckets[i].count})
	}
	s.metric.Histogram = &h.dto
	return s
}

// gatherer hands a collector's samples to who prints them, without the registry, which would copy, check and
// sort them at each scrape. What it checks tests check.
type gatherer struct {
	c    *Collector
	free chan *batch
}

// Gather returns all families in order of their names; done gives their memory back.
func (g *gatherer) Gather() (all []*dto.MetricFamily, done func(), err error) {
	var b *batch
	select {
	case b = <-g.free:
	default:
		b = &batch{families: make(map[string]*dto.MetricFamily)}
	}
	b.used = 0
	for _, f := range b.families {
		f.Metric = f.Metric[:0]
	}
	g.c.gather(b, func(s *sample) {
		f := b.families[s.family.name]
		if f == nil {
			f = &dto.MetricFamily{Name: &s.family.name, Help: &s.family.help, Type: &s.family.kind}
			b.families[s.family.name] = f
		}
		f.Metric = append(f.Metric, &s.metric)
	})
	for _, name := range slices.Sorted(maps.Keys(b.families)) {
		if f := b.families[name]; len(f.Metric) > 0 {
			all = append(all, f)
		}
	}
	return all, func() {
		select {
		case g.free <- b:
		default:
		}
	}, nil
}
