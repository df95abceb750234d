package rig_test

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"cxkit/device/wire/capture"
	"cxkit/driver"
	"cxkit/drivertest"
)

// record is a frame of a capture that a test makes.
type record struct {
	data []byte
	// length is the frame's length on the wire; data was cut short if it is more than its own.
	length int
	at     time.Duration
}

// pcap makes a classic capture with times in ns.
func pcap(records []record) []byte {
	b := make([]byte, 24)
	le := binary.LittleEndian
	le.PutUint32(b, 0xa1b23c4d)
	le.PutUint16(b[4:], 2)
	le.PutUint16(b[6:], 4)
	le.PutUint32(b[16:], 256<<10)
	le.PutUint32(b[20:], 1)
	for _, r := range records {
		b = le.AppendUint32(b, uint32(r.at/time.Second))
		b = le.AppendUint32(b, uint32(r.at%time.Second))
		b = le.AppendUint32(b, uint32(len(r.data)))
		b = le.AppendUint32(b, uint32(max(r.length, len(r.data))))
		b = append(b, r.data...)
	}
	return b
}

// player plays what pcap made.
func player(t *testing.T, records []record, o capture.Options) *capture.Player {
	t.Helper()
	b := pcap(records)
	p, err := capture.NewPlayer("generated", bytes.NewReader(b), int64(len(b)), o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Addresses of the generated captures. The NIC is configured with own.
var (
	own    = driver.MAC{0x02, 0, 0, 0, 0, 0xee}
	other  = driver.MAC{0x02, 0, 0, 0, 0, 0x55}
	joined = driver.MAC{0x01, 0, 0x5e, 0, 0, 0x11}
	group  = driver.MAC{0x01, 0, 0x5e, 0, 0, 0x22}
)

// tagged is a frame of n bytes behind the header and the tags. Tags beyond two are payload to the card.
func tagged(vlans []uint16, n int) []byte {
	return drivertest.Flow{Dst: own, Src: other, UDP: true, SrcPort: 5, DstPort: 6, VLANs: vlans}.Packet(n-28, uint32(n))
}

// oddFrames are frames at and beyond every limit, in an order that mixes what arrives and what does not.
func oddFrames() []record {
	var all []record
	add := func(frames ...[]byte) {
		for _, f := range frames {
			all = append(all, record{data: f})
		}
	}
	to := func(dst driver.MAC, n int) []byte { return drivertest.Frame(dst, n, uint32(len(all)*100+n)) }
	for n := range 14 {
		add(to(own, 14)[:n])
	}
	for n := 14; n <= 64; n++ {
		add(to(own, n))
	}
	add(to(own, 1514), to(own, 1515), to(own, 1518), to(own, 1522), to(own, 9014), to(own, 65535), to(own, 128<<10), to(own, 61))
	for tags := range 4 {
		for n := 1497; n <= 1503; n++ {
			add(tagged([]uint16{100, 200, 300}[:tags], n))
		}
	}
	// A tag that the frame does not hold whole.
	add(append(append(own[:], other[:]...), 0x81, 0, 0), append(append(own[:], other[:]...), 0x81, 0, 0, 5, 0x81))
	for _, dst := range []driver.MAC{other, drivertest.Broadcast(), joined, group, {}, own} {
		add(to(dst, 100))
	}
	for _, udp := range []bool{false, true} {
		for _, v6 := range []bool{false, true} {
			f := drivertest.Flow{Dst: own, Src: other, UDP: udp, V6: v6, SrcPort: 80, DstPort: 90}
			good, bad := f.Packet(200, 1), f.Packet(200, 2)
			bad[len(bad)-1] ^= 1
			add(good, bad)
		}
	}
	// What the capture cut short: in the payload, in a header, to a runt, and a giant of which little is left.
	whole := tagged(nil, 1400)
	all = append(all,
		record{data: whole[:96], length: len(whole)}, record{data: whole[:30], length: len(whole)},
		record{data: whole[:13], length: len(whole)}, record{data: whole[:0], length: len(whole)},
		record{data: whole[:128], length: 64 << 10}, record{data: whole, length: len(whole)},
	)
	return all
}

// TestGeneratedCaptureArrivesOrIsCounted plays frames at every limit: what can be delivered arrives byte
// for byte, the rest is in the counter a ConnectX uses.
func TestGeneratedCaptureArrivesOrIsCounted(t *testing.T) {
	records := oddFrames()
	for _, promiscuous := range []bool{true, false} {
		name := "to us"
		if promiscuous {
			name = "promiscuous"
		}
		t.Run(name, func(t *testing.T) {
			var want [][]byte
			var short, long, passed, unicast, multicast, broadcast, cut uint64
			for _, r := range records {
				if r.length > len(r.data) {
					cut++
				}
				fate, padded := judge(r.data)
				switch fate {
				case tooShort:
					short++
					continue
				case tooLong:
					long++
					continue
				}
				passed++
				dst := driver.MAC(padded[:6])
				if !promiscuous && dst != own && dst != drivertest.Broadcast() && dst != joined {
					continue
				}
				want = append(want, padded)
				switch {
				case dst == drivertest.Broadcast():
					broadcast++
				case dst[0]&1 != 0:
					multicast++
				default:
					unicast++
				}
			}
			p := player(t, records, capture.Options{})
			c := driver.Config{MAC: own, Promiscuous: promiscuous, CheckBuffers: true}
			got := play(t, p, c, len(want), func(nic *driver.NIC) {
				if err := nic.AddMulticast(t.Context(), joined); err != nil {
					t.Fatal(err)
				}
			})
			sameFrames(t, "all", got.frames[0], want)
			got.counters(t, uint64(len(records)), map[string]uint64{
				"rx_undersize_pkts_phy": short, "rx_oversize_pkts_phy": long, "rx_packets_phy": passed,
				"rx_vport_unicast_packets": unicast, "rx_vport_multicast_packets": multicast,
				"rx_vport_broadcast_packets": broadcast, "rx_packets": uint64(len(want)),
				"rx_out_of_buffer": 0, "rx_wqe_err": 0, "rx_steer_missed_packets": 0,
			})
			if at := p.Progress(); at.Cut != cut || at.Frames != uint64(len(records)) {
				t.Errorf("the player says %+v; %d of %d frames were cut short", at, cut, len(records))
			}
			got.badChecksumsAreFlagged(t)
		})
	}
}

// badChecksumsAreFlagged looks at the frames with 200 bytes of payload: of each kind came a sound one and
// a bad one.
func (p *played) badChecksumsAreFlagged(t *testing.T) {
	t.Helper()
	seen := 0
	for i, f := range p.frames[0] {
		if _, _, ports := endpoints(f); ports == nil || binary.BigEndian.Uint16(ports) != 80 {
			continue
		}
		if sound := seen%2 == 0; p.flags[0][i].L4OK() != sound || !p.flags[0][i].L3OK() {
			t.Errorf("frame %d: flags %#x; its checksum is right: %v", i, p.flags[0][i], sound)
		}
		seen++
	}
	if seen != 8 {
		t.Errorf("%d frames with checksums to judge, want 8", seen)
	}
}

// TestCaptureWithoutFramesIsNoError plays a header without packets.
func TestCaptureWithoutFramesIsNoError(t *testing.T) {
	got := play(t, player(t, nil, capture.Options{}), driver.Config{Promiscuous: true}, 0, nil)
	got.counters(t, 0, map[string]uint64{"rx_packets": 0, "rx_packets_phy": 0})
}

// TestFramesBeforeDamageArrive plays a capture that ends in the middle of a record.
func TestFramesBeforeDamageArrive(t *testing.T) {
	var records []record
	var want [][]byte
	for i := range 100 {
		want = append(want, drivertest.Frame(own, 60+i, uint32(i)))
		records = append(records, record{data: want[i]})
	}
	b := pcap(records)
	p, err := capture.NewPlayer("damaged", bytes.NewReader(b[:len(b)-10]), int64(len(b)), capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := play(t, damaged{p}, driver.Config{Promiscuous: true}, 99, nil)
	sameFrames(t, "before the damage", got.frames[0], want[:99])
	got.counters(t, 99, map[string]uint64{"rx_packets": 99})
	if p.Err() == nil {
		t.Error("the damage is not reported")
	}
}

// damaged is a player whose end is an error, which play would report.
type damaged struct{ *capture.Player }

func (damaged) Err() error { return nil }
