package capture

import (
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const captures = "../../../testdata/captures"

// TestCapturesHoldWholePlainFrames reads every committed capture: no frame is longer than Ethernet's 1514
// bytes and its tags, none was cut short, every checksum is right, and the table in README.md says what
// is in it.
func TestCapturesHoldWholePlainFrames(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(captures, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(captures, "*.pcap*"))
	if err != nil || len(files) < 4 {
		t.Fatalf("%d captures, %v", len(files), err)
	}
	var total int64
	for _, path := range files {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
		p, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		var seen census
		for i, f := range playAll(t, p, 32) {
			if err := seen.add(f); err != nil {
				t.Errorf("%s, frame %d: %v", path, i+1, err)
			}
		}
		if at := p.Progress(); p.Err() != nil || at.Cut != 0 {
			t.Errorf("%s: %d frames cut short, %v", path, at.Cut, p.Err())
		}
		p.Close()
		row := seen.row(filepath.Base(path))
		if !strings.Contains(string(readme), row) {
			t.Errorf("README.md lacks this row:\n%s", row)
		}
	}
	if total > 3_000_000 {
		t.Errorf("the captures have %d bytes, more than 3 MB", total)
	}
}

// census counts a capture's frames by kind.
type census struct {
	frames, bytes, shortest, longest int
	kinds                            map[string]int
}

func (c *census) row(name string) string {
	var kinds []string
	for _, k := range slices.Sorted(maps.Keys(c.kinds)) {
		kinds = append(kinds, fmt.Sprintf("%s %d", k, c.kinds[k]))
	}
	return fmt.Sprintf("| %s | %d | %d | %d to %d | %s |", name, c.frames, c.bytes, c.shortest, c.longest, strings.Join(kinds, ", "))
}

func (c *census) count(kind string) { c.kinds[kind]++ }

// add checks a frame and counts it.
func (c *census) add(f []byte) error {
	if c.kinds == nil {
		c.kinds, c.shortest = map[string]int{}, len(f)
	}
	c.frames++
	c.bytes += len(f)
	c.shortest, c.longest = min(c.shortest, len(f)), max(c.longest, len(f))
	limit, at, tags := 1514, 12, 0
	for binary.BigEndian.Uint16(f[at:]) == 0x8100 || binary.BigEndian.Uint16(f[at:]) == 0x88a8 {
		at += 4
		tags++
	}
	if tags > 0 {
		c.count(fmt.Sprintf("VLAN×%d", tags))
	}
	if len(f) > limit+4*min(tags, 1) {
		return fmt.Errorf("%d bytes with %d tags", len(f), tags)
	}
	switch typ := binary.BigEndian.Uint16(f[at:]); typ {
	case 0x0800:
		return c.ipv4(f[at+2:])
	case 0x86dd:
		return c.ipv6(f[at+2:])
	case 0x0806:
		c.count("ARP")
	default:
		return fmt.Errorf("ethertype %#x", typ)
	}
	return nil
}

func (c *census) ipv4(p []byte) error {
	c.count("IPv4")
	head, length := int(p[0]&15)*4, int(binary.BigEndian.Uint16(p[2:]))
	if length > len(p) || head < 20 || head > length {
		return fmt.Errorf("IPv4: header %d, length %d of %d", head, length, len(p))
	}
	if sum := checksum(0, p[:head]); sum != 0 {
		return fmt.Errorf("IPv4 header checksum off by %#x", sum)
	}
	if binary.BigEndian.Uint16(p[6:])&0x3fff != 0 {
		c.count("IPv4 fragment")
		return nil
	}
	return c.transport(p[9], p[12:20], p[head:length])
}

func (c *census) ipv6(p []byte) error {
	c.count("IPv6")
	next, at, end := p[6], 40, 40+int(binary.BigEndian.Uint16(p[4:]))
	if end > len(p) {
		return fmt.Errorf("IPv6: length %d of %d", end, len(p))
	}
	for next == 0 || next == 60 || next == 43 {
		next, at = p[at], at+8+int(p[at+1])*8
	}
	if next == 44 {
		c.count("IPv6 fragment")
		return nil
	}
	return c.transport(next, p[8:40], p[at:end])
}

// transport checks what stands above IP; addresses are those of the pseudo header.
func (c *census) transport(protocol byte, addresses, p []byte) error {
	pseudo := uint32(protocol) + uint32(len(p))
	for i := 0; i < len(addresses); i += 2 {
		pseudo += uint32(binary.BigEndian.Uint16(addresses[i:]))
	}
	names := map[byte]string{1: "ICMP", 2: "IGMP", 6: "TCP", 17: "UDP", 58: "ICMPv6"}
	name, ok := names[protocol]
	if !ok {
		return fmt.Errorf("IP protocol %d", protocol)
	}
	c.count(name)
	if protocol == 1 || protocol == 2 {
		pseudo = 0
	}
	if sum := checksum(pseudo, p); sum != 0 {
		return fmt.Errorf("%s checksum off by %#x", name, sum)
	}
	return nil
}

// checksum is the Internet checksum of b on top of sum: 0 when b holds its own.
func checksum(sum uint32, b []byte) uint16 {
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
