package steer

import (
	"cxkit/device/internal/object"
	"cxkit/device/internal/packet"
	"cxkit/device/internal/queue"
	"cxkit/prm"
)

// RQT is a table of receive queues. TIRs that use it hold it; it holds its queues.
type RQT struct {
	object.Refs
	Number uint32
	// Max is rqt_max_size; RQs are rqt_actual_size queues, a power of two, at least one.
	Max int
	RQs []*queue.RQ
}

// Set replaces the queues.
func (t *RQT) Set(rqs []*queue.RQ) {
	for _, q := range rqs {
		q.Hold()
	}
	t.Release()
	t.RQs = rqs
}

// Release lets go of the queues.
func (t *RQT) Release() {
	for _, q := range t.RQs {
		q.Drop()
	}
	t.RQs = nil
}

// TIR is a transport interface receive: how a frame finds its queue. Flow entries that forward to it
// hold it.
type TIR struct {
	object.Refs
	Number uint32
	// Direct is the queue of a direct TIR; Table that of an indirect one, with Hash choosing in it.
	Direct *queue.RQ
	Table  *RQT
	Hash   packet.Hash
	// Tunnelled: frames in tunnels are hashed by InnerHash, and completed by their inner headers. With no
	// inner fields they are hashed by Hash: Linux's TIRs for outer UDP, where VXLAN comes, have none.
	Tunnelled bool
	InnerHash packet.Hash
	// Key is the Toeplitz key that Hash uses.
	Key [packet.KeyLen]byte
	// LoopbackUnicast and LoopbackMulticast let frames of this function's own queues in: the bits of
	// self_lb_block, which name the opposite (reference 01a, 03 §4.1).
	LoopbackUnicast, LoopbackMulticast bool
	// Merge says whose segments may be put together for striding queues: bit 0 IPv4's, bit 1 IPv6's.
	// MaxMerge is the longest IP payload that results, in bytes.
	Merge    uint8
	MaxMerge int
	// Context is the TIR context as created and modified, for QUERY_TIR.
	Context prm.TIRContext
}

// Queue chooses the queue for a frame, and says what to report of the hash.
func (t *TIR) Queue(h *packet.Headers) (q *queue.RQ, hash uint32, kind uint8) {
	if t.Table == nil {
		return t.Direct, 0, 0
	}
	if in := t.Inside(h); in != nil && t.InnerHash.Fields != 0 {
		hash, kind = t.InnerHash.Sum(in)
	} else {
		hash, kind = t.Hash.Sum(h)
	}
	return t.Table.RQs[hash&uint32(len(t.Table.RQs)-1)], hash, kind
}

// Inside are the headers of what is in a frame's tunnel, if the TIR looks at those; else nil.
func (t *TIR) Inside(h *packet.Headers) *packet.Headers {
	if !t.Tunnelled {
		return nil
	}
	in, _ := h.Inner()
	return in
}

// AdmitsOwn reports whether the TIR takes a frame that its own function has sent.
func (t *TIR) AdmitsOwn(h *packet.Headers) bool {
	if h.Multicast() {
		return t.LoopbackMulticast
	}
	return t.LoopbackUnicast
}
