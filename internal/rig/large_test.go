package rig_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"cxkit/dma"
	"cxkit/driver"
	"cxkit/drivertest"
)

// What the driver makes of a large receive is a packet to whoever else reads packets: lengths and checksums of all
// headers are right.
func TestLargeReceivesAreRightToGopacket(t *testing.T) {
	drivertest.RunOne(t, inprocess(dma.Heap), drivertest.Test{
		Config: driver.Config{RxRing: 64, TxRing: 64, Buffers: 512, Offloads: driver.Offloads{Striding: true, LargeReceive: true}},
		Run: func(e *drivertest.Env) {
			for _, v6 := range []bool{false, true} {
				flow := drivertest.Flow{Dst: e.NIC.MAC(), Src: peer(), V6: v6, VLANs: []uint16{7}}
				for merged := 0; merged == 0; { // until some come at once
					e.Send(flow.Segments(flow.Packet(40_001, 1), 1000)...)
					for n := 0; n < 41; {
						e.ReceiveEach(0, 1, func(p *driver.Packet) {
							n += p.Segments()
							if p.Segments() > 1 {
								merged++
								rightToGopacket(e, bytes.Join(slices.Collect(p.Fragments()), nil), v6)
							}
						})
					}
				}
			}
		},
	})
}

func rightToGopacket(e *drivertest.Env, data []byte, v6 bool) {
	p := gopacket.NewPacket(data, layers.LayerTypeEthernet, gopacket.Default)
	tcp, ok := p.TransportLayer().(*layers.TCP)
	if p.ErrorLayer() != nil || !ok || p.Metadata().Truncated {
		e.Fatalf("gopacket says: %v", p)
	}
	mismatches := func(l gopacket.LayerWithChecksum) {
		if err, sum := l.VerifyChecksum(); err != nil || !sum.Valid {
			e.Errorf("%T: %v, checksum %#x, right is %#x", l, err, sum.Actual, sum.Correct)
		}
	}
	if err := tcp.SetNetworkLayerForChecksum(p.NetworkLayer()); err != nil {
		e.Fatalf("%v", err)
	}
	mismatches(tcp)
	if !v6 {
		mismatches(p.NetworkLayer().(*layers.IPv4))
	}
	if len(p.NetworkLayer().LayerPayload()) != len(tcp.Contents)+len(tcp.Payload) || 18+len(p.NetworkLayer().LayerContents())+len(p.NetworkLayer().LayerPayload()) != len(data) {
		e.Errorf("lengths: %d bytes, %v", len(data), p)
	}
}
