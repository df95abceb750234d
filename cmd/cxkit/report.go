package main

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"cxkit/device/fault"
)

// result is what a run came to. It is the document that --json prints: fields are added, never changed.
type result struct {
	Device   string `json:"device"`
	Model    string `json:"model"`
	Firmware string `json:"firmware"`
	Address  string `json:"address"`
	Port     string `json:"port"`
	Mode     string `json:"mode"`
	Queues   int    `json:"queues"`
	MTU      int    `json:"mtu"`
	Promisc  bool   `json:"promiscuous"`
	Seed     uint64 `json:"seed"`

	// Played is what came into the card from a capture, nil with --port; PlayedCut are frames of it that
	// the capture cut short.
	Played    *tally `json:"played,omitempty"`
	PlayedCut uint64 `json:"played_cut_short,omitempty"`
	// Received is what the driver received, Sent what it sent.
	Received tally `json:"received"`
	Sent     tally `json:"sent"`
	// NotDelivered says what became of the frames that came into the card and did not reach the driver.
	NotDelivered []lossResult `json:"not_delivered"`
	// Returned is what the second port received and the first one sent, with --mode forward.
	Returned *tally `json:"returned,omitempty"`
	// Rules is what each rule has matched.
	Rules []ruleResult `json:"rules,omitempty"`
	// Recorded is how many frames --record wrote.
	Recorded uint64 `json:"recorded,omitempty"`

	Protocols []protocolResult `json:"protocols"`
	// Tagged are frames with a VLAN tag, BadChecksums those with a wrong IPv4, TCP or UDP checksum.
	Tagged       tally         `json:"vlan_tagged"`
	BadChecksums tally         `json:"wrong_checksum"`
	PerQueue     []queueResult `json:"per_queue"`
	// Counters are the NIC's that are not zero, by ethtool's names.
	Counters counterList `json:"counters"`

	BringUpSeconds float64 `json:"bring_up_seconds"`
	// Seconds is from plugging in to the last frame.
	Seconds    float64 `json:"seconds"`
	NsPerFrame float64 `json:"ns_per_frame"`
	// Cut: the run ended before the capture did.
	Cut   bool   `json:"cut_short,omitempty"`
	Error string `json:"error,omitempty"`
	// Faults are those that the card was given, Diagnosis what the driver made of them.
	Faults    []fault.Report `json:"faults,omitempty"`
	Diagnosis string         `json:"diagnosis,omitempty"`
}

type protocolResult struct {
	Protocol string `json:"protocol"`
	tally
}

// lossResult are frames that were not delivered, and the counter that says so.
type lossResult struct {
	Why     string `json:"why"`
	Frames  uint64 `json:"frames"`
	Counter string `json:"counter"`
}

type queueResult struct {
	Queue    int   `json:"queue"`
	Received tally `json:"received"`
	Sent     tally `json:"sent"`
}

// counterList is a JSON object whose members are in ethtool's order.
type counterList []counterValue

type counterValue struct {
	Name  string
	Value uint64
}

// MarshalJSON writes {"rx_packets":3,...}.
func (l counterList) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, c := range l {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendQuote(b, c.Name) // names are plain words
		b = append(b, ':')
		b = strconv.AppendUint(b, c.Value, 10)
	}
	return append(b, '}'), nil
}

// sum collects what the workers counted. They have ended.
func (s *session) sum() *result {
	r := &result{
		Device: s.c.Device, Port: s.c.portName(), Mode: s.c.Mode, Queues: s.c.Queues, MTU: s.c.MTU,
		Promisc: s.c.Promisc, Seed: s.c.Seed, BringUpSeconds: s.bringUp.Seconds(), Cut: s.cut,
		Protocols: []protocolResult{}, PerQueue: []queueResult{}, NotDelivered: []lossResult{},
	}
	if !s.opened {
		return r
	}
	info := s.nic.Info()
	r.Model, r.Firmware, r.Address = info.Model, info.Firmware.String(), info.Address
	if s.player != nil {
		p := s.player.Progress()
		r.Played, r.PlayedCut = &tally{p.Frames, p.Bytes}, p.Cut
	}
	var byProtocol [protocols]tally
	var last time.Time
	for _, w := range s.workers {
		r.PerQueue = append(r.PerQueue, queueResult{w.index, w.received, w.sent})
		r.Received.join(w.received)
		r.Sent.join(w.sent)
		r.Tagged.join(w.tagged)
		r.BadChecksums.join(w.badSums)
		for p := range byProtocol {
			byProtocol[p].join(w.protocols[p])
		}
		if w.last.After(last) {
			last = w.last
		}
	}
	for p, t := range byProtocol {
		if t.Frames > 0 {
			r.Protocols = append(r.Protocols, protocolResult{protocol(p).String(), t})
		}
	}
	if r.Received.Frames > 0 {
		r.Seconds = last.Sub(s.began).Seconds()
		r.NsPerFrame = r.Seconds * 1e9 / float64(r.Received.Frames)
	}
	r.Returned, r.Rules = s.returned(), s.ruled
	r.NotDelivered = s.losses(r)
	for _, c := range s.counters.NonZero() {
		r.Counters = append(r.Counters, counterValue{c.Name, c.Value})
	}
	return r
}

// losses finds the frames that came in and were not received, by the counters of a ConnectX. What is
// left over when the run was ended early was still in the card.
func (s *session) losses(r *result) []lossResult {
	c := s.counters.Get
	vport := c("rx_vport_unicast_packets") + c("rx_vport_multicast_packets") + c("rx_vport_broadcast_packets")
	all := []lossResult{
		{"shorter than an Ethernet header", c("rx_undersize_pkts_phy"), "rx_undersize_pkts_phy"},
		{"longer than the MTU allows", c("rx_oversize_pkts_phy"), "rx_oversize_pkts_phy"},
		{"addressed to others", c("rx_packets_phy") - min(vport, c("rx_packets_phy")), "rx_packets_phy - rx_vport_*_packets"},
		{"taken by no rule", c("rx_steer_missed_packets"), "rx_steer_missed_packets"},
		{"dropped by rules", s.dropped, "rules"},
		{"no receive buffer", c("rx_out_of_buffer"), "rx_out_of_buffer"},
	}
	if r.Played != nil {
		left := r.Played.Frames - min(r.Received.Frames, r.Played.Frames)
		for _, l := range all {
			left -= min(l.Frames, left)
		}
		why := "unaccounted for"
		if s.complete() || s.cut {
			why = "under way when the run ended"
		}
		all = append(all, lossResult{why, left, ""})
	}
	lost := []lossResult{}
	for _, l := range all {
		if l.Frames > 0 {
			lost = append(lost, l)
		}
	}
	return lost
}

func (t *tally) join(o tally) {
	t.Frames += o.Frames
	t.Bytes += o.Bytes
}

// writeTable prints the result for people.
func (r *result) writeTable(w io.Writer) error {
	t := &table{w: bufio.NewWriter(w)}
	t.begin("protocol", "frames", "bytes")
	for _, x := range r.Protocols {
		t.row(x.Protocol, x.Frames, x.Bytes)
	}
	t.row("total", r.Received.Frames, r.Received.Bytes)
	if r.Tagged.Frames > 0 {
		t.row("with VLAN tag", r.Tagged.Frames, r.Tagged.Bytes)
	}
	if r.BadChecksums.Frames > 0 {
		t.row("wrong checksum", r.BadChecksums.Frames, r.BadChecksums.Bytes)
	}
	if len(r.NotDelivered) > 0 {
		t.begin("not delivered", "frames")
		for _, l := range r.NotDelivered {
			t.row(l.Why, l.Frames)
		}
	}
	if r.Sent.Frames > 0 {
		t.begin("queue", "received", "bytes", "sent", "bytes")
	} else {
		t.begin("queue", "received", "bytes")
	}
	for _, q := range r.PerQueue {
		if r.Sent.Frames > 0 {
			t.row(strconv.Itoa(q.Queue), q.Received.Frames, q.Received.Bytes, q.Sent.Frames, q.Sent.Bytes)
		} else {
			t.row(strconv.Itoa(q.Queue), q.Received.Frames, q.Received.Bytes)
		}
	}
	if len(r.Rules) > 0 {
		t.begin("rule", "frames", "bytes")
		for _, x := range r.Rules {
			t.row(x.Rule, x.Frames, x.Bytes)
		}
	}
	t.begin("counter", "value")
	for _, c := range r.Counters {
		t.row(c.Name, c.Value)
	}
	fmt.Fprintln(t.w, r.summary())
	return t.w.Flush()
}

// table prints columns of numbers behind a name. Names longer than their column push the numbers aside.
type table struct{ w *bufio.Writer } // keeps the first error for Flush

func (t *table) begin(name string, columns ...string) {
	fmt.Fprintf(t.w, "\n%-32s", name)
	for _, c := range columns {
		fmt.Fprintf(t.w, " %16s", c)
	}
	fmt.Fprintln(t.w)
}

func (t *table) row(name string, values ...uint64) {
	fmt.Fprintf(t.w, "%-32s", name)
	for _, v := range values {
		fmt.Fprintf(t.w, " %16s", grouped(v))
	}
	fmt.Fprintln(t.w)
}

// summary is the table's last lines.
func (r *result) summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s: %s, firmware %s, at %s; bring-up %s; seed %d\n", r.Device, r.Model, r.Firmware, r.Address,
		seconds(r.BringUpSeconds), r.Seed)
	fmt.Fprintf(&b, "received %s, %s", counted(r.Received.Frames, "frame"), counted(r.Received.Bytes, "byte"))
	if r.Played != nil {
		fmt.Fprintf(&b, " of %s played", grouped(r.Played.Frames))
		if r.PlayedCut > 0 {
			fmt.Fprintf(&b, " (%s of them cut short by the capture)", grouped(r.PlayedCut))
		}
	}
	if r.Sent.Frames > 0 {
		fmt.Fprintf(&b, "; sent %s", grouped(r.Sent.Frames))
	}
	if r.Returned != nil {
		fmt.Fprintf(&b, "; returned %s", grouped(r.Returned.Frames))
	}
	if r.Recorded > 0 {
		fmt.Fprintf(&b, "; recorded %s", grouped(r.Recorded))
	}
	if r.Received.Frames > 0 {
		fmt.Fprintf(&b, "; in %s, %.0f ns a frame", seconds(r.Seconds), r.NsPerFrame)
	}
	if r.Cut {
		b.WriteString("; ended before the capture did")
	}
	return b.String()
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(10 * time.Microsecond).String()
}

// counted writes 1 as "1 frame" and 2,000 as "2,000 frames".
func counted[T int | int64 | uint64](n T, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return grouped(uint64(n)) + " " + what + "s"
}

// grouped writes 1234567 as 1,234,567.
func grouped(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
