package wire

// Large is what a Port also is when its far side takes and gives frames that stand for several: a TCP
// segment or UDP datagram of up to 64 KiB with one header, which somebody will cut, and checksums that
// somebody will fill in. They save a network stack on the far side most of its work per frame.
//
// A port gives out plain frames until Offload(true), and takes plain frames always.
type Large interface {
	Port
	// Offload says whether the card takes large frames and such with unfinished checksums from now on. It
	// reports whether the far side takes them, too. Frames of before may still come as they were. It
	// belongs to the card's engine.
	Offload(on bool) bool
	// ReceiveLarge is Receive with what is known of each frame. The card may change the frames in place.
	ReceiveLarge(frames []Frame) int
	// TransmitLarge is Transmit with what is to be known of each frame.
	TransmitLarge(frames []Frame) int
}

// Frame is a frame and what is known of it.
type Frame struct {
	Data []byte
	Meta
}

// Meta is what is known of a frame; the zero value says that it is as it was on a wire.
type Meta struct {
	// Segment is how many bytes of payload each frame has that this one stands for; 0: it stands for
	// itself. Its lengths and checksums are then those of the whole, or unfinished.
	Segment uint16
	// Unfinished: the TCP or UDP checksum field holds the sum of the pseudo header.
	Unfinished bool
}
