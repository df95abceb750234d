package packet

import "testing"

func BenchmarkParse(b *testing.B) {
	for name, f := range map[string]frame{"udp4": {proto: 17, payload: 18}, "tcp6": {v6: true, proto: 6}} {
		b.Run(name, func(b *testing.B) {
			p, h := f.build(), new(Headers)
			for b.Loop() {
				Parse(p, h)
			}
		})
	}
}

func BenchmarkCheck(b *testing.B) {
	for name, f := range map[string]frame{"64": {proto: 17, payload: 18}, "1514": {proto: 6, payload: 1460}} {
		b.Run(name, func(b *testing.B) {
			p, h := f.build(), new(Headers)
			Parse(p, h)
			for b.Loop() {
				h.Check(p, EthernetLen)
			}
		})
	}
}

func BenchmarkHash(b *testing.B) {
	for name, f := range map[string]frame{"tcp4": {proto: 6}, "tcp6": {v6: true, proto: 6}} {
		b.Run(name, func(b *testing.B) {
			h := parse(f.build())
			var key [KeyLen]byte
			s := Hash{Fields: 15, Symmetric: true, Toeplitz: NewToeplitz(&key)}
			for b.Loop() {
				s.Sum(h)
			}
		})
	}
}
