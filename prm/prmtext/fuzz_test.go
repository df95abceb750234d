package prmtext

import (
	"bytes"
	"testing"

	"cxkit/prm"
)

func FuzzParse(f *testing.F) {
	f.Add([]byte(r09Input))
	f.Add([]byte(createCQ().Text(Modern)))
	f.Add([]byte("[1.0] cmd[0]: dump command data X(0x107) INPUT\n000: 00000000 00000000 00000000 00000000\n"))
	f.Fuzz(func(t *testing.T, log []byte) {
		dumps, err := Parse(bytes.NewReader(log))
		for _, d := range dumps {
			msg := d.Message()
			if len(msg) > len(log) && err == nil {
				t.Fatalf("message of %d bytes in a log of %d", len(msg), len(log))
			}
			d.Cut()
			d.Text(Old)
			if err != nil {
				continue
			}
			if r, err := d.Decode(nil); err == nil && !bytes.Equal(r.Encode(), msg) {
				t.Fatalf("encodes to %x, want %x", r.Encode(), msg)
			}
			again, err := Parse(bytes.NewReader([]byte(d.Text(Modern))))
			if err != nil || len(again) != 1 || !bytes.Equal(again[0].Raw, d.Raw) || again[0].Entry != d.Entry {
				t.Fatalf("printed dump does not parse: %v\n%s", err, d.Text(Modern))
			}
		}
		ParseHex(bytes.NewReader(log))
	})
}

func FuzzDecode(f *testing.F) {
	f.Add(uint16(0), encode(&prm.CreateCQIn{PAS: []uint64{1}}), []byte{})
	f.Add(uint16(1), encode(&prm.QueryHCACapIn{OpMod: 1}), encode(&prm.QueryHCACapOut{}))
	f.Add(uint16(2), encode(&prm.AccessRegIn{RegisterID: prm.RegIDMCQI, RegisterData: make([]byte, 200)}), encode(&prm.AccessRegOut{RegisterData: make([]byte, 250)}))
	f.Fuzz(func(t *testing.T, n uint16, a, b []byte) {
		if len(a) > 1<<14 || len(b) > 1<<14 {
			return
		}
		names := prm.LayoutNames()
		decoded := func(what string, r *Record, err error, want []byte) {
			if err == nil && !bytes.Equal(r.Encode(), want) {
				t.Fatalf("%s: encodes to %x, want %x", what, r.Encode(), want)
			}
			if err == nil {
				r.Text(Options{All: true})
			}
		}
		r, err := DecodeInput(a)
		decoded("input", r, err, a)
		r, err = DecodeOutput(a, b)
		decoded("output", r, err, b)
		r, err = DecodeStruct(names[int(n)%len(names)], a)
		decoded("structure", r, err, a)
		r, err = DecodeEQE(b)
		decoded("EQE", r, err, b)
		r, err = DecodeCQE(b)
		decoded("CQE", r, err, b)
		r, err = DecodeSendWQE(b)
		decoded("WQE", r, err, b)
		r, err = DecodeReceiveWQE(b, n&1 != 0)
		decoded("receive WQE", r, err, b)
	})
}
