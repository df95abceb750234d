package main

import (
	"encoding/hex"
	"strings"
	"testing"
)

// frame makes a frame of hexadecimal text: the header behind two addresses, and zeros up to 60 bytes.
func frame(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString("020000000001" + "020000000002" + strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return append(b, make([]byte, max(60-len(b), 0))...)
}

func TestFramesAreToldApart(t *testing.T) {
	const (
		ip4 = "4500 0028 0000 0000 40 %% 0000 0a000001 0a000002"
		ip6 = "60000000 0014 %% 40 00000000000000000000000000000001 00000000000000000000000000000002"
	)
	for _, c := range []struct {
		text  string
		proto protocol
		says  string
	}{
		{"0806 0001 0800 06 04 0001 020000000002 0a000001 000000000000 0a000002", protoARP, "ARP who has 10.0.0.2? tell 10.0.0.1"},
		{"0806 0001 0800 06 04 0002 020000000002 0a000001 000000000000 0a000002", protoARP, "ARP 10.0.0.1 is at 02:00:00:00:00:02"},
		{"0800" + strings.Replace(ip4, "%%", "06", 1) + "0050 1234 00000000 00000000 5012", protoTCP4, "TCP over IPv4, 10.0.0.1:80 > 10.0.0.2:4660, SYN ACK"},
		{"0800" + strings.Replace(ip4, "%%", "11", 1) + "0035 1234", protoUDP4, "UDP over IPv4, 10.0.0.1:53 > 10.0.0.2:4660"},
		{"0800" + strings.Replace(ip4, "%%", "01", 1) + "0800", protoICMP4, "ICMP, 10.0.0.1 > 10.0.0.2, type 8 code 0"},
		{"0800" + strings.Replace(ip4, "%%", "2f", 1), protoOther4, "other IPv4, 10.0.0.1 > 10.0.0.2, protocol 47"},
		{"0800" + strings.Replace(strings.Replace(ip4, "%%", "11", 1), "0000 0000 40", "0000 00b9 40", 1), protoUDP4, "UDP over IPv4, 10.0.0.1 > 10.0.0.2, later fragment"},
		{"0800 3500", protoOther4, "other IPv4, 0.0.0.0 > 0.0.0.0, protocol 0"},
		{"8100 0064 0800" + strings.Replace(ip4, "%%", "11", 1) + "0035 1234", protoUDP4, "VLAN 100 UDP over IPv4, 10.0.0.1:53 > 10.0.0.2:4660"},
		{"88a8 00c8 8100 012c 86dd" + strings.Replace(ip6, "%%", "3a", 1) + "8000", protoICMP6, "VLAN 200 VLAN 300 ICMPv6, ::1 > ::2, type 128 code 0"},
		{"86dd" + strings.Replace(ip6, "%%", "06", 1) + "0050 1234", protoTCP6, "TCP over IPv6, [::1]:80 > [::2]:4660"},
		{"86dd" + strings.Replace(ip6, "%%", "00", 1) + "11 00 000000000000 0035 1234", protoUDP6, "UDP over IPv6, [::1]:53 > [::2]:4660"},
		{"86dd" + strings.Replace(ip6, "%%", "2c", 1) + "11 00 00b8 00000000 0035 1234", protoUDP6, "UDP over IPv6, ::1 > ::2, later fragment"},
		{"86dd" + strings.Replace(ip6, "%%", "3b", 1), protoOther6, "other IPv6, ::1 > ::2, protocol 59"},
		{"88cc", protoLLDP, "LLDP 02:00:00:00:00:02 > 02:00:00:00:00:01"},
		{"0026 4242", protoLength, "IEEE 802.3 02:00:00:00:00:02 > 02:00:00:00:00:01"},
		{"88b5", protoOther, "0x88b5 02:00:00:00:00:02 > 02:00:00:00:00:01"},
	} {
		f := frame(t, c.text)
		if got := parse(f).proto; got != c.proto {
			t.Errorf("%s: %v, want %v", c.text, got, c.proto)
		}
		if got := describe(f); got != c.says {
			t.Errorf("%s: %q, want %q", c.text, got, c.says)
		}
	}
	if got := parse(make([]byte, 13)).proto; got != protoShort {
		t.Errorf("13 bytes are %v", got)
	}
}

func TestParsingAllocatesNothing(t *testing.T) {
	f := frame(t, "8100 0064 0800 4500 0028 0000 0000 40 06 0000 0a000001 0a000002 0050 1234")
	if n := testing.AllocsPerRun(1000, func() { parse(f) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestNumbersAreGrouped(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", 1<<64 - 1: "18,446,744,073,709,551,615"} {
		if got := grouped(n); got != want {
			t.Errorf("grouped(%d) = %s, want %s", n, got, want)
		}
	}
}

func FuzzDescribe(f *testing.F) {
	f.Add(frame(f, "8100 0064 0800 4500 0028 0000 0000 40 06 0000 0a000001 0a000002 0050 1234"))
	f.Add(frame(f, "86dd 60000000 0014 00 40 00000000000000000000000000000001 00000000000000000000000000000002 11 00"))
	f.Add(frame(f, "0806 0001 0800 06 04 0001"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h := parse(b)
		if h.l3 > len(b) || h.l4 > len(b) || h.l4 < h.l3 && h.proto != protoShort {
			t.Errorf("headers at %d and %d of %d bytes", h.l3, h.l4, len(b))
		}
		if s := describe(b); len(b) > 0 && s == "" || strings.Contains(s, "\n") {
			t.Errorf("described as %q", s)
		}
	})
}
