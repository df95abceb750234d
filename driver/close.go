package driver

import (
	"context"
	"errors"
	"fmt"
)

// Close stops the queues, takes everything back from the card, in reverse order of Open, and frees the
// NIC's memory. The owners of queues have stopped using them before. Calls on the NIC that wait, return.
//
// Close is bounded: ctx limits it, and even without a deadline the first command that gets no answer
// within Config.CommandTimeout ends the talk with the card. What the card did not give back is named by a
// *LeftoverError; buffers that the application did not give back by a *BuffersOutError each. The
// function stays open and can be opened again.
//
// Any goroutine may call Close, and more than once: all calls return the same, when it is done.
func (n *NIC) Close(ctx context.Context) error {
	if n.closing.CompareAndSwap(false, true) {
		close(n.shutdown)
		n.watch.Wait()
		n.stopPlane()
		err := n.hca.Down(ctx)
		var left *LeftoverError
		safe := !errors.As(err, &left) || left.Memory == nil
		if err := errors.Join(err, n.finishPlane(safe)); err != nil {
			n.downErr = fmt.Errorf("close %s: %w", n.hca.Address(), err)
		}
		close(n.down)
	}
	<-n.down
	return n.downErr
}
