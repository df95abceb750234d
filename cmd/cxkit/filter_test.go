package main

import (
	"encoding/hex"
	"strings"
	"testing"
)

// frames of the filter's tests, by name.
func filterFrames(t testing.TB) map[string][]byte {
	t.Helper()
	const (
		macs = "0c42a1c00000" + "020000000009"
		v4   = "0800" + "450000280001000040060000" + "0a000001" + "c0a80102" // TCP 10.0.0.1 > 192.168.1.2
		v6   = "86dd" + "6000000000081140" + "20010db8000000000000000000000001" + "20010db8000000000000000000000002"
	)
	frames := map[string]string{
		"tcp":       macs + v4 + "01bb1f90" + strings.Repeat("00", 16),
		"udp6":      macs + v6 + "00351000" + "00080000",
		"vlan tcp":  macs + "81000064" + v4 + "00501f90" + strings.Repeat("00", 16),
		"arp":       "ffffffffffff" + "020000000009" + "0806" + "00010800060400010200000000090a000001" + "000000000000" + "0a000002",
		"fragment":  macs + "0800" + "450000280001000140060000" + "0a000001" + "c0a80102" + "01bb1f90",
		"multicast": "01005e000001" + "020000000009" + "88b5" + strings.Repeat("00", 46),
		"short":     "0c42a1",
	}
	all := map[string][]byte{}
	for name, text := range frames {
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = b
	}
	return all
}

func TestFiltersTakeWhatTcpdumpWould(t *testing.T) {
	frames := filterFrames(t)
	for text, want := range map[string]string{
		"":                                     "arp fragment multicast short tcp udp6 vlan tcp",
		"tcp":                                  "fragment tcp vlan tcp",
		"ip6":                                  "udp6",
		"udp port 53":                          "udp6",
		"port 443 or 53":                       "tcp udp6",
		"tcp dst port 8080":                    "tcp vlan tcp",
		"tcp src port 8080":                    "",
		"portrange 50-100":                     "udp6 vlan tcp",
		"host 10.0.0.1":                        "arp fragment tcp vlan tcp",
		"src host 10.0.0.2":                    "",
		"dst 10.0.0.2":                         "arp",
		"net 192.168.0.0/16 and tcp port 443":  "tcp",
		"ip6 net 2001:db8::/32":                "udp6",
		"src 2001:db8::1":                      "udp6",
		"vlan":                                 "vlan tcp",
		"vlan 100 and tcp":                     "vlan tcp",
		"vlan 101":                             "",
		"arp":                                  "arp",
		"broadcast":                            "arp",
		"multicast and not broadcast":          "multicast",
		"ether broadcast":                      "arp",
		"ether multicast or ip6":               "arp multicast udp6",
		"ether proto 0x88b5":                   "multicast",
		"ether src 02:00:00:00:00:09":          "arp fragment multicast tcp udp6 vlan tcp",
		"ether dst ff:ff:ff:ff:ff:ff":          "arp",
		"less 20":                              "short",
		"greater 58":                           "multicast udp6 vlan tcp",
		"not (tcp or udp or arp) and less 100": "multicast short",
		"!tcp && !udp && greater 14":           "arp multicast",
	} {
		f, err := parseFilter(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		var got []string
		for _, name := range []string{"arp", "fragment", "multicast", "short", "tcp", "udp6", "vlan tcp"} {
			if f.match(frames[name]) {
				got = append(got, name)
			}
		}
		if g := strings.Join(got, " "); g != want {
			t.Errorf("%q takes %q, want %q", text, g, want)
		}
	}
}

func TestFiltersThatMakeNoSenseAreRefused(t *testing.T) {
	for _, text := range []string{
		"tcp and", "and", "(tcp", "tcp)", "port", "port http", "port 70000", "portrange 5", "port 1-2", "portrange 9-3", "host", "host ten",
		"net 10.0.0.1/99", "host 10.0.0.0/8", "ether src 10.0.0.1", "ether src broadcast", "ether", "less many", "frob", "tcp tcp", "not", "10.0.0.1", strings.Repeat("not ", 2000) + "tcp",
	} {
		if _, err := parseFilter(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

func TestFiltersAllocateNothing(t *testing.T) {
	f, err := parseFilter("tcp port 443 and host 10.0.0.1 and not vlan")
	if err != nil {
		t.Fatal(err)
	}
	frame := filterFrames(t)["tcp"]
	if n := testing.AllocsPerRun(100, func() { f.match(frame) }); n != 0 {
		t.Errorf("%v allocations a frame", n)
	}
}

func FuzzFilter(f *testing.F) {
	f.Add("tcp port 80 or not (vlan 5 and host ::1)", []byte{1, 2, 3})
	for _, frame := range filterFrames(f) {
		f.Add("net 10.0.0.0/8 and portrange 1-9", frame)
	}
	f.Fuzz(func(t *testing.T, text string, frame []byte) {
		e, err := parseFilter(text)
		if err == nil {
			e.match(frame)
		}
	})
}
