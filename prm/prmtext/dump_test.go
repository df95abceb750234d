package prmtext

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"cxkit/prm"
)

// The entry of the public report R09, a forced TEARDOWN_HCA, before and after.
const (
	r09Input = `000: 07000000 00000010 00000000 00000000
010: 01030000 00000000 00000001 00000000
020: 00000000 00000000 00000000 00000000
030: 00000000 00000000 00000010 3fc50001
`
	r09Output = `000: 07000000 00000010 00000000 00000000
010: 01030000 00000000 00000001 00000000
020: 00000000 00000000 00000000 00000001
030: 00000000 00000000 00000010 3fc50000
`
)

func parseOne(t *testing.T, text string) *Dump {
	t.Helper()
	dumps, err := Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(dumps) != 1 {
		t.Fatalf("%d dumps, want 1", len(dumps))
	}
	return dumps[0]
}

func TestReportR09ForcedTeardown(t *testing.T) {
	for _, c := range []struct {
		text   string
		output bool
		path   string
		want   uint64
	}{
		{r09Input, false, "profile", 1},
		{r09Output, true, "state", 1},
	} {
		d := parseOne(t, c.text)
		if d.Op != prm.OpTeardownHCA || d.Output != c.output {
			t.Fatalf("got %s, output %v", d.Op, d.Output)
		}
		entry := (*prm.CmdEntry)(&d.Entry)
		if entry.Token() != 0x3f || entry.Signature() != 0xc5 || entry.Status() != prm.DeliveryOK || entry.Own() == c.output {
			t.Errorf("entry: token %#x, signature %#x, status %v, own %v", entry.Token(), entry.Signature(), entry.Status(), entry.Own())
		}
		r, err := d.Decode(nil)
		if err != nil {
			t.Fatal(err)
		}
		if v, ok := r.Lookup(c.path); !ok || v != c.want {
			t.Errorf("%s is %d, %v in\n%s", c.path, v, ok, r.Text(Options{}))
		}
		if got := r.Encode(); !bytes.Equal(got, d.Message()) {
			t.Errorf("encodes to %x, want %x", got, d.Message())
		}
		if !strings.Contains(d.Text(Old), c.text) {
			t.Errorf("prints\n%s", d.Text(Old))
		}
	}
}

// createCQ is a CREATE_CQ with one page, as an entry and a block.
func createCQ() *Dump {
	in := prm.CreateCQIn{Context: prm.CQContext{LogCQSize: 10, UARPage: 8, EQN: 3, DBRAddr: 0x123456780}, PAS: []uint64{0x7a7c60000}}
	msg := make([]byte, in.Len())
	in.Put(msg)
	d := &Dump{Op: prm.OpCreateCQ, Slot: 2, Blocks: make([][prm.MailboxSize]byte, prm.MailboxBlocks(len(msg)))}
	entry := (*prm.CmdEntry)(&d.Entry)
	entry.SetType(prm.CmdTypePCI)
	entry.SetInputLength(uint32(len(msg)))
	entry.SetOutputLength(16)
	if err := d.SetMessage(msg); err != nil {
		panic(err)
	}
	return d
}

func TestDumpsOfNewKernelsMayInterleave(t *testing.T) {
	a, b := createCQ(), createCQ()
	b.Slot = 31
	b.Output = true
	left := strings.Split(a.Text(Modern), "\n")
	right := strings.Split(b.Text(Modern), "\n")
	var log strings.Builder
	for i := range left {
		log.WriteString("[  257.111349] mlx5_core 0000:08:00.0: dump_command:1003:(pid 87): " + left[i] + "\n")
		log.WriteString("Oct  3 10:00:00 host kernel: [1537.020001] " + right[i] + "\n")
		log.WriteString("[1.0] mlx5_core 0000:08:00.0: cmd_work_handler:1080:(pid 87): writing 0x1 to command doorbell\n")
	}
	dumps, err := Parse(strings.NewReader(log.String()))
	if err != nil {
		t.Fatal(err)
	}
	if len(dumps) != 2 || dumps[0].Slot != 2 || dumps[1].Slot != 31 || dumps[0].Output || !dumps[1].Output {
		t.Fatalf("got %d dumps: %+v", len(dumps), dumps)
	}
	for i, want := range []string{a.Text(Modern), b.Text(Modern)} {
		if got := dumps[i].Text(Modern); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

func TestDataDumpHasTheMessageAlone(t *testing.T) {
	const log = `[1.0] cmd[0]: dump command data QUERY_PAGES(0x107) INPUT
[1.0] cmd[0]: 000: 01070000 00000002 00000000 00000000

[1.0] cmd[0]: dump command data QUERY_PAGES(0x107) OUTPUT
[1.0] cmd[0]: 000: 00000000 00000000 00000000 00003244
`
	dumps, err := Parse(strings.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	if len(dumps) != 2 {
		t.Fatalf("%d dumps, want 2", len(dumps))
	}
	r, err := dumps[1].Decode(dumps[0])
	if err != nil {
		t.Fatal(err)
	}
	if v, _ := r.Lookup("num_pages"); v != 0x3244 {
		t.Errorf("num_pages is %#x", v)
	}
	if want := "cmd[0]: dump command data QUERY_PAGES(0x107) OUTPUT\ncmd[0]: 000: 00000000 00000000 00000000 00003244\n"; !strings.Contains(dumps[1].Text(Modern), want) {
		t.Errorf("prints\n%s", dumps[1].Text(Modern))
	}
}

func TestMistakesInLogsAreReportedWithTheirLine(t *testing.T) {
	cut := strings.Join(strings.Split(createCQ().Text(Old), "\n")[:20], "\n")
	for name, c := range map[string]struct {
		log  string
		line int
	}{
		"offset jumps":         {"x\n000: 00000000 00000000 00000000 00000000\n020: 00000000 00000000 00000000 00000000\n", 3},
		"offset without dump":  {"040: 00000000 00000000 00000000 00000000\n", 1},
		"entry is cut":         {"\n\n000: 00000000 00000000 00000000 00000000\n", 3},
		"block is cut":         {cut, 1},
		"head without opcode":  {"dump command CREATE_CQ INPUT\n", 1},
		"head with bad opcode": {"dump command CREATE_CQ(0xzz) INPUT\n", 1},
		"head with no side":    {"\ndump command CREATE_CQ(0x400) BOTH\n", 2},
		"line too long":        {strings.Repeat("x", maxLine+10), 1},
	} {
		_, err := Parse(strings.NewReader(c.log))
		var pe *ParseError
		if !errors.As(err, &pe) {
			t.Errorf("%s: got %v", name, err)
			continue
		}
		if pe.Line != c.line {
			t.Errorf("%s: line %d, want %d: %v", name, pe.Line, c.line, err)
		}
	}
}

func TestLinesThatOnlyLookLikeHexAreIgnored(t *testing.T) {
	dumps, err := Parse(strings.NewReader("00000000: 00 00 00 00 00 00 00 00\n0000:08:00.0: 00000000 00000000 00000000 0000000g\nMemory: 1234 5678\n12: 1 2 3 4\n"))
	if err != nil || len(dumps) != 0 {
		t.Errorf("got %v, %v", dumps, err)
	}
}

func TestParseHexTakesWhatLogsPrint(t *testing.T) {
	for text, want := range map[string]string{
		"00000000: 00 11 22 33\n00000010: 44 55": "\x00\x11\x22\x33\x44\x55",
		"[12.5] 010: 00112233 44":                "\x00\x11\x22\x33\x44",
		"0x0011 2233":                            "\x00\x11\x22\x33",
		"":                                       "",
	} {
		got, err := ParseHex(strings.NewReader(text))
		if err != nil || string(got) != want {
			t.Errorf("%q: got %x, %v", text, got, err)
		}
	}
	var pe *ParseError
	if _, err := ParseHex(strings.NewReader("00\nfoo bar")); !errors.As(err, &pe) || pe.Line != 2 {
		t.Errorf("got %v", err)
	}
}
