package driver

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"cxkit/dma"
	"cxkit/driver/internal/layout"
	"cxkit/driver/internal/rxpool"
	qstats "cxkit/driver/internal/stats"
	"cxkit/prm"
)

// NIC is an open ConnectX function: its port, its queues and its buffers. Open makes one, Close ends it.
// Its methods may be called from any goroutine; queues have one owner each.
type NIC struct {
	control // bring-up, watch and teardown (open.go, close.go)

	config Config
	log    *slog.Logger
	base   base // what bring-up made; does not change while the NIC is open

	pool   *rxpool.Pool
	pages  []*layout.Queue // of the receive queues; nil with RxStack
	memory *RxMemory       // what pages come from

	channels atomic.Pointer[channels] // in use; changed by who has the turn to make changes
	slots    []slot                   // all that there may be; used by who has that turn, and at the end

	headers prm.InlineMode // what every send WQE holds of its frame
	tis     uint32

	counterSet uint8 // queue counters of the receive queues, 0 if the card has none
	maxFrame   atomic.Int32

	link  linkState
	addrs addresses
	esw   *vswitch // nil: the function manages no e-switch
	ways  ways     // nil: what is sent needs no rule to get out
	flows flows

	source *qstats.Source // all counters

	refused refusals

	kept []*dma.Arena // that the card may still use, from teardown to finishPlane

	// releasing is read-locked by ReleaseAll while it moves buffers: stopPlane waits for those that are at it.
	releasing sync.RWMutex
	closed    chan struct{} // closed by stopPlane
	closeOnce sync.Once
}

// RxQueue returns receive queue i, 0 <= i < Queues. It panics on another i.
func (n *NIC) RxQueue(i int) *RxQueue { return n.queues().rx[i] }

// TxQueue returns transmit queue i, 0 <= i < Queues. It panics on another i.
func (n *NIC) TxQueue(i int) *TxQueue { return n.queues().tx[i] }

// Queues is the number of receive and of transmit queues: Config.Queues, until SetChannels changes it.
func (n *NIC) Queues() int { return len(n.queues().rx) }

// Config returns the configuration in force, with what was left zero filled in.
func (n *NIC) Config() Config {
	n.addrs.mu.Lock()
	defer n.addrs.mu.Unlock()
	c := n.config
	c.Queues = n.Queues()
	return c
}

// Recover brings every queue that is in error back to work: see RxQueue.Recover and TxQueue.Recover. No
// owner may use a queue meanwhile.
func (n *NIC) Recover(ctx context.Context) error {
	var errs []error
	for _, q := range n.queues().rx {
		errs = append(errs, q.Recover(ctx))
	}
	for _, q := range n.queues().sends() {
		errs = append(errs, q.Recover(ctx))
	}
	return errors.Join(errs...)
}
