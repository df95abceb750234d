package trace

import (
	"bytes"
	"testing"

	"cxkit/prm"
	"cxkit/prm/prmtext"
)

func TestCommandDumpsReadAsAKernelLog(t *testing.T) {
	records := session(0x1_0000_0000, 3)
	var b bytes.Buffer
	if err := WriteText(&b, records); err != nil {
		t.Fatal(err)
	}
	dumps, err := prmtext.Parse(&b)
	if err != nil {
		t.Fatal(err)
	}
	if len(dumps) != 3 {
		t.Fatalf("%d dumps, want the three commands", len(dumps))
	}
	for i, d := range dumps {
		rec := records[i]
		if d.Op != prm.Opcode(rec.Opcode) || d.Output != (rec.Kind == CommandOut) || d.Slot != rec.Slot {
			t.Errorf("dump %d is %v of slot %d, output %v; recorded was %v", i, d.Op, d.Slot, d.Output, rec)
		}
		if got := d.Message()[:len(rec.Data)]; !bytes.Equal(got, rec.Data) {
			t.Errorf("dump %d holds % x, want % x", i, got, rec.Data)
		}
	}
}
