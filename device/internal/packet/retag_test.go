package packet

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// FuzzRetag holds Retag against what it does to tags one by one.
func FuzzRetag(f *testing.F) {
	plain := append(make([]byte, 12), 0x88, 0xb5, 1, 2, 3, 4)
	f.Add(plain, uint8(1), uint32(0x81000005))
	f.Add(append(append(make([]byte, 12), 0x81, 0, 0, 7, 0x88, 0xa8, 0, 9), plain[12:]...), uint8(2), uint32(0x88a80001))
	f.Add(append(make([]byte, 12), 0x81, 0, 0, 7), uint8(2), uint32(0))
	f.Fuzz(func(t *testing.T, frame []byte, pops uint8, tag uint32) {
		if len(frame) < EthernetLen {
			return
		}
		want := bytes.Clone(frame)
		for range pops & 3 {
			if kind := binary.BigEndian.Uint16(want[12:]); kind != TypeCVID && kind != TypeSVID || len(want) < EthernetLen+TagLen {
				break
			}
			want = append(want[:12:12], want[16:]...)
		}
		if got := Retag(nil, frame, int(pops&3), nil); !bytes.Equal(got, want) {
			t.Errorf("%d pops of %x:\n got %x\nwant %x", pops&3, frame, got, want)
		}
		// What is pushed comes off again.
		tag = TypeCVID<<16 | tag&0xffff
		tagged := Retag(nil, frame, 0, []uint32{tag, TypeSVID<<16 | 3})
		if got := Retag(nil, tagged, 2, nil); !bytes.Equal(got, frame) {
			t.Errorf("push and pop of %x: %x", frame, got)
		}
		if binary.BigEndian.Uint32(tagged[12:]) != TypeSVID<<16|3 || binary.BigEndian.Uint32(tagged[16:]) != tag {
			t.Errorf("pushed %x", tagged[:20])
		}
	})
}
