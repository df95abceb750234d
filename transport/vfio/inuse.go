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
// interfaces, or of its virtual functions' and subfunctions', which go with it, or one on top of them (bond,
// bridge, VLAN), has the route to peer (the other end of the user's session, if it is valid) or a default route.
// An empty why means that nobody is cut off.
func NetworkInUse(root, address string, peer netip.Addr) (why string, err error) {
	d, err := ReadDevice(root, address)
	if err != nil {
		return "", err
	}
	mine := stack(root, interfacesOf(root, d))
	for _, r := range routes(root) {
		if slices.Contains(mine, r.device) && r.prefix.Bits() == 0 {
			return fmt.Sprintf("%s has a default route of this machine, by interface %s", address, r.device), nil
		}
	}
	device := peer.Zone() // of a link-local address: the interface itself
	if device == "" {
		r, _ := routeTo(root, peer)
		device = r.device
	}
	if slices.Contains(mine, device) {
		return fmt.Sprintf("%s carries your own connection, from %s by interface %s", address, peer, device), nil
	}
	return "", nil
}

// interfacesOf are all that are gone when the function's driver is: mlx5_core takes its virtual functions and its
// subfunctions, which are on the auxiliary bus, away with it.
func interfacesOf(root string, d Device) []string {
	all := slices.Clone(d.Interfaces)
	for _, address := range d.VFs {
		if vf, err := ReadDevice(root, address); err == nil {
			all = append(all, vf.Interfaces...)
		}
	}
	if subfunctions, err := filepath.Glob(filepath.Join(d.dir, "*.sf.*", "net", "*")); err == nil {
		for _, path := range subfunctions {
			all = append(all, filepath.Base(path))
		}
	}
	return all
}

// TakenVF is a virtual function of address that a user-space driver has, this one or a virtual machine's: it is
// gone when the physical function's driver is. "" is none.
func TakenVF(root, address string) (string, error) {
	d, err := ReadDevice(root, address)
	if err != nil {
		return "", err
	}
	for _, name := range d.VFs {
		if vf, err := ReadDevice(root, name); err == nil && strings.Contains(vf.Driver, "vfio") {
			return name, nil
		}
	}
	return "", nil
}

const sessionVariable = "SSH_CONNECTION"

// SessionPeer is the other end of the session that this process was started in, as sshd tells it; invalid if
// there is none. sudo keeps the variable from its command, so the processes above this one are asked too; root is
// where /proc starts.
func SessionPeer(root string, environ func(string) string) netip.Addr {
	if a := peerOf(environ(sessionVariable)); a.IsValid() {
		return a
	}
	pid := "self"
	for range 64 { // a chain of parents has no loop, but it changes while it is read
		parent := parentOf(root, pid)
		if parent == "" || parent == "0" {
			break
		}
		pid = parent
		b, err := os.ReadFile(filepath.Join(root+"/proc", pid, "environ"))
		if err != nil {
			continue // another user's
		}
		for _, v := range strings.Split(string(b), "\x00") {
			if value, ok := strings.CutPrefix(v, sessionVariable+"="); ok && peerOf(value).IsValid() {
				return peerOf(value)
			}
		}
	}
	return netip.Addr{}
}

// parentOf reads the parent's process id, "" if there is none to be read: it is the second field behind the
// process's name, which is in parentheses and may hold any character (proc(5)).
func parentOf(root, pid string) string {
	b, err := os.ReadFile(filepath.Join(root+"/proc", pid, "stat"))
	if err != nil {
		return ""
	}
	f := strings.Fields(string(b[strings.LastIndex(string(b), ")")+1:]))
	if len(f) < 2 {
		return ""
	}
	if _, err := strconv.ParseUint(f[1], 10, 32); err != nil {
		return ""
	}
	return f[1]
}

// peerOf reads SSH_CONNECTION: "PEER PORT HERE PORT".
func peerOf(connection string) netip.Addr {
	f := strings.Fields(connection)
	if len(f) == 0 {
		return netip.Addr{}
	}
	a, err := netip.ParseAddr(f[0])
	if err != nil {
		return netip.Addr{}
	}
	return a.Unmap()
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

// routeTo is the most specific route to an address without a zone.
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
