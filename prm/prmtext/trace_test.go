package prmtext

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"slices"
	"sort"
	"strings"
	"testing"

	"cxkit/prm"
)

// A public log of Linux starting a ConnectX-4 (snabb, src/apps/mellanox/trace-mlx5_core.txt.gz) is used if SNABB_TRACE
// names it. It is not part of this repository.
func TestPublicTraceRoundTripsByteForByte(t *testing.T) {
	log := publicTrace(t)
	dumps, err := Parse(bytes.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	if len(dumps) != 84 {
		t.Errorf("%d dumps, want 84", len(dumps))
	}
	lines := strings.Split(string(log), "\n")
	commands := map[prm.Opcode]int{}
	seen := map[string]bool{}
	cut := 0 // the log lacks the last blocks of four messages
	for i, d := range dumps {
		if d.Cut() {
			cut++
			t.Logf("line %d: the log has not all of %s", d.Line, d.Op.LinuxString())
		}
		if !d.Output {
			commands[d.Op]++
		}
		r, err := d.Decode(nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Encode(); !bytes.Equal(got, d.Message()) {
			t.Fatalf("line %d: %s encodes to other bytes", d.Line, d.Op)
		}
		again := *d
		again.Blocks = slices.Clone(d.Blocks)
		if err := again.SetMessage(r.Encode()); err != nil {
			t.Fatal(err)
		}
		end := len(lines)
		if i+1 < len(dumps) {
			end = dumps[i+1].Line - 1
		}
		compareText(t, again.Text(Old), lines[d.Line-1:end])
		for _, f := range r.Reserved() {
			seen[unnamedName(d, r, f)] = true
		}
		if !d.Output {
			if off, found := prm.ReservedInput(d.Op, d.Message()); found {
				t.Errorf("line %d: %s: reserved bit in byte %#x", d.Line, d.Op.LinuxString(), off)
			}
		}
	}
	for op, want := range map[prm.Opcode]int{prm.OpCreateEQ: 15, prm.OpQueryHCACap: 12, prm.OpAllocUAR: 4, prm.OpQueryPages: 2, prm.OpManagePages: 2} {
		if commands[op] != want {
			t.Errorf("%s: %d commands, want %d", op, commands[op], want)
		}
	}
	if cut != 4 {
		t.Errorf("%d dumps are cut, want 4", cut)
	}
	checkUnnamed(t, seen)
}

// checkUnnamed compares the unnamed bits that real hardware sets with those known.
func checkUnnamed(t *testing.T, seen map[string]bool) {
	want := []string{
		"GENERAL 0x40[18]", "GENERAL 0x40[17]", "GENERAL 0x44[22]",
		"ETHERNET_OFFLOADS 0x00[22]", "ETHERNET_OFFLOADS 0x00[21]",
		"ROCE 0x00[30]",
		"FLOW_TABLE flow_table_properties_nic_receive 0x00[30]",
		"FLOW_TABLE flow_table_properties_nic_receive_sniffer 0x00[30]",
		"FLOW_TABLE flow_table_properties_nic_transmit_sniffer 0x00[30]",
	}
	var got []string
	for s := range seen {
		if strings.HasPrefix(s, "ATOMIC ") {
			continue // the group has no table
		}
		got = append(got, s)
	}
	sort.Strings(got)
	sort.Strings(want)
	t.Logf("unnamed bits set: %s", strings.Join(got, ", "))
	if !slices.Equal(got, want) {
		t.Errorf("unnamed bits:\ngot  %q\nwant %q", got, want)
	}
}

func unnamedName(d *Dump, r *Record, f Field) string {
	owner := strings.TrimPrefix(strings.TrimSuffix(f.Path, "reserved"), "capability.")
	owner = strings.TrimSuffix(owner, ".")
	if op := d.Opcode(); op == prm.OpQueryHCACap || op == prm.OpSetHCACap {
		var in prm.QueryHCACapIn
		in.Get((*prm.CmdEntry)(&d.Entry).InlineInput()[:])
		group, _ := prm.SplitCapOpMod(in.OpMod)
		if owner != "" && owner != "capability" {
			return fmt.Sprintf("%s %s %s", group, owner, position(&f, f.Rel))
		}
		return fmt.Sprintf("%s %s", group, position(&f, f.Rel))
	}
	return fmt.Sprintf("%s output=%v %s %s", d.Op, d.Output, owner, position(&f, f.Rel))
}

// compareText wants the lines of text to be in the log, in that order, behind whatever dmesg put in front of each.
func compareText(t *testing.T, text string, log []string) {
	at := 0
	for _, want := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if want == "" {
			continue
		}
		for at < len(log) && !strings.HasSuffix(strings.TrimRight(log[at], " \r"), want) {
			at++
		}
		if at == len(log) {
			t.Fatalf("the log does not have %q where it should", want)
		}
		at++
	}
}

func publicTrace(t testing.TB) []byte {
	path := os.Getenv("SNABB_TRACE")
	if path == "" {
		t.Skip("SNABB_TRACE is not set")
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(raw, []byte{0x1f, 0x8b}) {
		return raw
	}
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
