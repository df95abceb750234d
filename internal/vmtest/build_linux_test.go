package vmtest

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// TestEditsThatCanNotBeBuiltAreRefused needs what `cxkit vm --fetch --patch FILE` fetches.
func TestEditsThatCanNotBeBuiltAreRefused(t *testing.T) {
	c, err := DefaultCache()
	if err != nil {
		giveUp(t, err)
	}
	source, err := kernelSource("6.12")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := c.complete(source.sourcesPart()); !ok {
		giveUp(t, fmt.Errorf("source of kernel 6.12: %w", ErrMissing))
	}
	for _, bad := range []struct{ name, edit, want string }{
		{"a.sed", "# edits pagealloc.c\ns/no such text//\n", "changes nothing"},
		{"b.sed", "# edits en.h\ns/MLX5E/MLX6E/\n", "changes drivers/net/ethernet/mellanox/mlx5/core/en.h"},
		{"c.sed", "# edits missing.c\ns/a/b/\n", "missing.c"},
		{"d.diff", "no diff\n", "edit d.diff"},
		{"e.sed", "# edits pagealloc.c\ns/^{/{ syntax/\n", "error"},
	} {
		_, err := c.BuildModule(context.Background(), "6.12", []Edit{{Name: bad.name, Text: []byte(bad.edit)}}, nil)
		if err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s: %v, want an error with %q", bad.name, err, bad.want)
		}
	}
}
