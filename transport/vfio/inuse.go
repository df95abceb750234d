package vfio

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// NetworkInUse tells why taking a function from its driver would cut this machine's network: one of its
// interfaces, or one on top of it (bond, bridge, VLAN), has the route to peer (the other end of the user's
// session, if it is valid) or a default route. The error names it; nil means that nobody is cut off.
func NetworkInUse(root, address string, peer netip.Addr) error {
	d, err := ReadDevice(root, address)
	if err != nil {
		return err
	}
	mine := stack(root, d.Interfaces)
	for _, r := range routes(root) {
		if !slices.Contains(mine, r.device) {
			continue
		}
		if r.prefix.Bits() == 0 {
			return fmt.Errorf("%s has a default route of this machine, by interface %s", address, r.device)
		}
	}
	if r, ok := routeTo(root, peer); ok && slices.Contains(mine, r.device) {
		return fmt.Errorf("%s carries your own connection, from %s by interface %s", address, peer, r.device)
	}
	return nil
}

// SessionPeer is the other end of the session that this process was started in, as sshd tells it; invalid if
// there is none.
func SessionPeer(environ func(string) string) netip.Addr {
	f := strings.Fields(environ("SSH_CONNECTION"))
	if len(f) == 0 {
		return netip.Addr{}
	}
	a, err := netip.ParseAddr(f[0])
	if err != nil {
		return netip.Addr{}
	}
	return a.Unmap().WithZone("")
}

// stack adds to interfaces those that lie on top of them.
func stack(root string, interfaces []string) []string {
	all := slices.Clone(interfaces)
	for i := 0; i < len(all) && i < 4096; i++ {
		uppers, err := filepath.Glob(filepath.Join(root+"/sys/class/net", all[i], "upper_*"))
		if err != nil {
			continue
		}
		for _, u := range uppers {
			name := strings.TrimPrefix(filepath.Base(u), "upper_")
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// route is a row of the kernel's routing tables.
type route struct {
	device string
	prefix netip.Prefix
}

// routeTo is the most specific route to an address.
func routeTo(root string, a netip.Addr) (best route, ok bool) {
	if !a.IsValid() {
		return route{}, false
	}
	for _, r := range routes(root) {
		if r.prefix.Contains(a) && (!ok || r.prefix.Bits() > best.prefix.Bits()) {
			best, ok = r, true
		}
	}
	return best, ok
}

// routes reads /proc/net/route and ipv6_route; rows that make no sense are left out.
func routes(root string) []route {
	var all []route
	if b, err := os.ReadFile(root + "/proc/net/route"); err == nil {
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) < 8 {
				continue
			}
			dst, ok := hexIPv4(f[1])
			mask, okMask := hexIPv4(f[7])
			if !ok || !okMask {
				continue
			}
			bits := 0
			for m := binary.BigEndian.Uint32(mask[:]); m&(1<<31) != 0; m <<= 1 {
				bits++
			}
			all = append(all, route{f[0], netip.PrefixFrom(netip.AddrFrom4(dst), bits)})
		}
	}
	if b, err := os.ReadFile(root + "/proc/net/ipv6_route"); err == nil {
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) < 10 {
				continue
			}
			dst, err := hex.DecodeString(f[0])
			bits, errBits := strconv.ParseUint(f[1], 16, 8)
			device := f[len(f)-1]
			if err != nil || errBits != nil || len(dst) != 16 || bits > 128 || device == "lo" {
				continue
			}
			all = append(all, route{device, netip.PrefixFrom(netip.AddrFrom16([16]byte(dst)), int(bits))})
		}
	}
	return all
}

// hexIPv4 reads an address as /proc/net/route prints it: a number in the host's order, which is little endian.
func hexIPv4(s string) (a [4]byte, ok bool) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != 4 {
		return a, false
	}
	slices.Reverse(b)
	return [4]byte(b), true
}
