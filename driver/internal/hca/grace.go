package hca

import (
	"context"
	"time"
)

// graceTime is how long a command that is under way may still take when a bring-up is to end.
const graceTime = time.Second

// Grace is a context that ends graceTime after ctx, with ctx's error. Commands of a bring-up run under it: one
// that is given up at once, as it will be answered in a moment, leaves an object behind whose number nobody
// knows, and costs a reset. stop ends it, and has to be called.
func Grace(ctx context.Context) (later context.Context, stop func()) {
	soft, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() { time.AfterFunc(graceTime, cancel) })
	return grace{soft, ctx}, func() { unhook(); cancel() }
}

type grace struct {
	context.Context // what ends
	of              context.Context
}

func (g grace) Err() error {
	if g.Context.Err() == nil {
		return nil
	}
	if err := g.of.Err(); err != nil {
		return err
	}
	return context.Canceled // stop was called
}
