package driver

import (
	"context"
	"errors"
	"fmt"

	"cxkit/prm"
)

// moderation is what completion queues of a direction are made with.
func (n *NIC) moderation(transmit bool) Moderation {
	m := &n.config.RxModeration
	if transmit {
		m = &n.config.TxModeration
	}
	n.addrs.mu.Lock()
	defer n.addrs.mu.Unlock()
	return *m
}

// Moderation is how completion events are held back, receive and transmit.
func (n *NIC) Moderation() (rx, tx Moderation) { return n.moderation(false), n.moderation(true) }

// SetModeration changes how completion events of all queues are held back. Queues may be in use. On error
// some queues may have the new values.
func (n *NIC) SetModeration(ctx context.Context, rx, tx Moderation) error {
	for _, m := range []Moderation{rx, tx} {
		if err := m.check(); err != nil {
			return fmt.Errorf("set %w", err)
		}
	}
	if !n.base.general.CQModeration {
		return n.unsupported("moderation of completion events")
	}
	unlock, err := n.lock(ctx)
	if err != nil {
		return fmt.Errorf("set moderation: %w", err)
	}
	defer unlock()
	n.addrs.mu.Lock()
	n.config.RxModeration, n.config.TxModeration = rx, tx
	n.addrs.mu.Unlock()
	var errs []error
	for _, q := range n.queues().rx {
		errs = append(errs, n.moderate(ctx, q.cqo.Number, rx))
	}
	for _, q := range n.queues().tx {
		errs = append(errs, n.moderate(ctx, q.cqo.Number, tx))
	}
	return errors.Join(errs...)
}

func (n *NIC) moderate(ctx context.Context, cqn uint32, m Moderation) error {
	in := &prm.ModifyCQIn{CQN: cqn, ModifyFieldSelect: prm.ModifyCQPeriod | prm.ModifyCQMaxCount}
	in.Context.CQPeriod, in.Context.CQMaxCount = m.fields()
	if err := n.base.objects.Exec(ctx, in, &prm.ModifyCQOut{}); err != nil {
		return fmt.Errorf("moderation of CQ %#x: %w", cqn, err)
	}
	return nil
}
