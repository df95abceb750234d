package rig_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"cxkit/device/wire/capture"
	"cxkit/driver"
)

// readCapture returns the frames of a capture file.
func readCapture(t *testing.T, path string) [][]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := capture.NewReader(path, f)
	if err != nil {
		t.Fatal(err)
	}
	var all [][]byte
	for {
		frame, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, bytes.Clone(frame.Data))
	}
}

// TestCapturesArriveByteForByte plays every committed capture, the traffic of real programs, through the
// card to the driver.
func TestCapturesArriveByteForByte(t *testing.T) {
	files, err := filepath.Glob("../../testdata/captures/*.pcap*")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d captures, %v", len(files), err)
	}
	for _, path := range files {
		given := readCapture(t, path)
		var want [][]byte
		var wire, bytes uint64
		for i, f := range given {
			fate, w := judge(f)
			if fate != arrives {
				t.Fatalf("%s, frame %d can't arrive", path, i)
			}
			want = append(want, w)
			bytes += uint64(len(w))
			wire += uint64(len(w)) + 4
		}
		for _, queues := range []int{1, 4} {
			t.Run(fmt.Sprintf("%s/queues=%d", filepath.Base(path), queues), func(t *testing.T) {
				player, err := capture.Open(path, capture.Options{})
				if err != nil {
					t.Fatal(err)
				}
				p := play(t, player, driver.Config{Queues: queues, RxRing: 256, TxRing: 64, Promiscuous: true, CheckBuffers: true}, len(want), nil)
				if queues == 1 {
					sameFrames(t, "all", p.frames[0], want)
				} else {
					p.sameFlows(t, want)
				}
				n := uint64(len(want))
				p.counters(t, n, map[string]uint64{
					"rx_packets": n, "rx_bytes": bytes, "rx_packets_phy": n, "rx_bytes_phy": wire,
					"rx_undersize_pkts_phy": 0, "rx_oversize_pkts_phy": 0, "rx_out_of_buffer": 0,
					"rx_discards_phy": 0, "rx_steer_missed_packets": 0, "rx_wqe_err": 0,
				})
				p.soundTransports(t)
			})
		}
	}
}

// soundTransports checks that the card found the checksums of all TCP and UDP frames right: the committed
// captures have no others.
func (p *played) soundTransports(t *testing.T) {
	t.Helper()
	for q, frames := range p.frames {
		for i, f := range frames {
			if hasPorts(f) && !p.flags[q][i].ChecksumOK() {
				t.Fatalf("queue %d, frame %d: flags %#x for\n%s", q, i, p.flags[q][i], hex.Dump(f))
			}
		}
	}
}
