package steer

import (
	"cmp"
	"slices"
)

// MAC is an Ethernet address.
type MAC [6]byte

// Broadcast is the address of all.
func Broadcast() MAC { return MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff} }

// Rules is which frames are wanted.
type Rules struct {
	// Promiscuous wants all frames: nothing else counts.
	Promiscuous bool
	// AllMulticast wants all multicast frames.
	AllMulticast bool
	// Addresses are the destination addresses wanted: own, further, multicast, broadcast.
	Addresses []MAC
	// VLANFilter wants untagged frames and those of VLANs only.
	VLANFilter bool
	VLANs      []uint16
}

// rule is one entry of a table.
type rule struct {
	kind kind
	mac  MAC
	vid  uint16
}

type kind uint8

// Kinds of rules, in the order in which they are added: tables nearer to the TIRs first.
const (
	anyType     kind = iota // TTC
	l2Address               // L2
	l2Multicast             // L2: any multicast address
	l2Any                   // L2: any address
	untagged                // VLAN
	vlanID                  // VLAN
	anyCTag                 // VLAN: any customer tag
	anySTag                 // VLAN: any service tag
)

// set is the entries that the rules need.
func (r *Rules) set() map[rule]bool {
	s := map[rule]bool{{kind: untagged}: true}
	for _, mac := range r.Addresses {
		s[rule{kind: l2Address, mac: mac}] = true
	}
	if r.AllMulticast {
		s[rule{kind: l2Multicast}] = true
	}
	if r.Promiscuous {
		s[rule{kind: l2Any}] = true
	}
	if r.Promiscuous || !r.VLANFilter {
		s[rule{kind: anyCTag}] = true
		s[rule{kind: anySTag}] = true
	}
	if r.VLANFilter {
		for _, vid := range r.VLANs {
			s[rule{kind: vlanID, vid: vid}] = true
		}
	}
	return s
}

// sorted lists rules in a fixed order, so that runs repeat.
func sorted(s map[rule]bool) []rule {
	list := make([]rule, 0, len(s))
	for r := range s {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b rule) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), slices.Compare(a.mac[:], b.mac[:]), cmp.Compare(a.vid, b.vid))
	})
	return list
}
