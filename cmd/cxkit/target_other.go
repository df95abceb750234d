//go:build !linux

package main

import (
	"context"
	"fmt"
	"log/slog"

	"cxkit/pci"
)

func openOutside(_ context.Context, t target, _ *slog.Logger) (pci.Function, error) {
	return nil, fmt.Errorf("--device %s:%s: cards outside of this process need Linux", t.kind, t.name)
}
