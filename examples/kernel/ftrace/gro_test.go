package ftrace

import (
	"slices"
	"strings"
	"testing"
)

// groTrace is a packet of three segments on two pages, between whose segments another one did not join.
const groTrace = `# tracer: nop
#
# entries-in-buffer/entries-written: 8/8   #P:1
#
          <idle>-0       [000] ..s2.    50.1: gro_in: (skb_gro_receive+0x0/0x3d0) p=0xffff888004f6b700 head=0xffff888006a2c800 rest=0
          <idle>-0       [000] ..s2.    50.2: gro_out: (tcp_gro_receive+0x1ea/0x350 <- skb_gro_receive) ret=0
          <idle>-0       [000] ..s2.    50.3: gro_in: (skb_gro_receive+0x0/0x3d0) p=0xffff888004f6b700 head=0xffff888006a2f000 rest=0
          <idle>-0       [000] ..s2.    50.4: gro_out: (tcp_gro_receive+0x1ea/0x350 <- skb_gro_receive) ret=-7
          <idle>-0       [000] ..s2.    50.5: gro_in: (skb_gro_receive+0x0/0x3d0) p=0xffff888004f6b700 head=0xffff888006a2d000 rest=0
          <idle>-0       [000] ..s2.    50.6: gro_out: (tcp_gro_receive+0x1ea/0x350 <- skb_gro_receive) ret=0
          <idle>-0       [000] ..s2.    50.7: gro_done: (inet_gro_complete+0x0/0x110) p=0xffff888004f6b700 head=0xffff888006a2c000
          <idle>-0       [000] ..s2.    50.8: gro_done: (inet_gro_complete+0x0/0x110) p=0xffff888004f6b700 head=0xffff888006a2e000
`

func TestPagesOfMergedPacketsAreCounted(t *testing.T) {
	var got []Merged
	if err := GRO(strings.NewReader(groTrace), func(m Merged) error { got = append(got, m); return nil }); err != nil {
		t.Fatal(err)
	}
	// The second has the first's place in memory, and nothing of its segments.
	if want := []Merged{{Segments: 3, Pages: 2}, {Segments: 1, Pages: 1}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTracesOfGROThatCannotBeCountedAreErrors(t *testing.T) {
	for name, change := range map[string][2]string{
		"lost events":        {"8/8", "8/9"},
		"several pieces":     {"rest=0", "rest=1448"},
		"no buffer":          {" head=0xffff888006a2c800", ""},
		"no number":          {"head=0xffff888006a2c800", "head=x"},
		"no begin":           {"gro_in:", "#"},
		"another's event":    {"gro_out:", "other:"},
		"a begin in another": {"gro_out:", "gro_in:"},
	} {
		bad := strings.Replace(groTrace, change[0], change[1], 1)
		if err := GRO(strings.NewReader(bad), func(Merged) error { return nil }); err == nil || bad == groTrace {
			t.Errorf("%s: no error", name)
		}
	}
}
