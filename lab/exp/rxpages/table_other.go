//go:build !linux

package rxpages

// hugePage is what sizes are multiples of.
const hugePage = 2 << 20

// newTable is ordinary memory.
func newTable(size int) (table []byte, free func() error, err error) {
	b := make([]byte, size)
	fill(b)
	return b, func() error { return nil }, nil
}

// newHugeTable: no way to ask for huge pages is known here.
func newHugeTable(int) (table []byte, by string, free func() error, err error) {
	return nil, "none", func() error { return nil }, nil
}
