package device

// portSpeed is what a port's PHY can do (reference 01c, PTYS speed bits; legacy ones only, as a
// ConnectX-5 reports them).
type portSpeed struct {
	supported uint32 // one bit a mode
	lanes     uint8
	connector uint8
}

// linkMode is a bit of PTYS and its rate in 100 Mbit/s.
type linkMode struct {
	bit  uint8
	rate uint16
}

// connector types of PTYS.
const connectorDirectAttach = 7

// speed100G is a four-lane PHY for 1 to 100 Gbit/s with a copper cable.
var speed100G = portSpeed{
	supported: 1<<1 | 1<<4 | 1<<6 | 1<<7 | 1<<12 | 1<<13 | 1<<14 | 1<<15 | 1<<18 | 1<<20 | 1<<21 | 1<<22 | 1<<23 |
		1<<27 | 1<<28 | 1<<29 | 1<<30 | 1<<31,
	lanes: 4, connector: connectorDirectAttach,
}

// speed25G is a one-lane PHY for 1 to 25 Gbit/s with a copper cable.
var speed25G = portSpeed{
	supported: 1<<1 | 1<<4 | 1<<12 | 1<<13 | 1<<14 | 1<<27 | 1<<28 | 1<<29, lanes: 1, connector: connectorDirectAttach,
}

// best is the fastest mode of a set, copper before others; none of a set without known modes.
func (s *portSpeed) best(set uint32) linkMode {
	for _, m := range []linkMode{
		{20, 1000}, {22, 1000}, {21, 1000}, {23, 1000}, {30, 500}, {31, 500}, {18, 500}, {6, 400}, {7, 400}, {15, 400},
		{27, 250}, {28, 250}, {29, 250}, {12, 100}, {4, 100}, {13, 100}, {14, 100}, {1, 10},
	} {
		if set&s.supported>>m.bit&1 != 0 {
			return m
		}
	}
	return linkMode{}
}
