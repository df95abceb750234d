package main

import (
	"context"
	"log/slog"
	"time"

	"cxkit/pci"
	"cxkit/transport/vfio"
	"cxkit/transport/vfiouser/client"
)

// servedTimeout is how long a card of another process may take to answer a message: as long as firmware may.
const servedTimeout = time.Minute

// openOutside opens a card that is not the model in this process.
func openOutside(ctx context.Context, t target, log *slog.Logger) (pci.Function, error) {
	if t.kind == kindVFIOUser {
		f, err := client.Dial(ctx, t.name, client.Config{Timeout: servedTimeout})
		if err != nil {
			return nil, err // not a nil pointer in an interface
		}
		return f, nil
	}
	f, err := vfio.Open(ctx, t.name, vfio.Config{
		NoIOMMU: t.kind == kindUnsafe, Log: log, Recalled: recallOf(ctx),
		// The firmware revision at the start of BAR 0 never reads as ones.
		Probe: vfio.Probe{BAR: 0, Off: 0, Size: 4},
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}
