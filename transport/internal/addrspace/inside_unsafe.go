package addrspace

import "unsafe"

// inside reports whether host address addr is in b. The addresses are compared as numbers, nothing is
// accessed.
func inside(b []byte, addr uintptr) bool {
	return addr-uintptr(unsafe.Pointer(unsafe.SliceData(b))) < uintptr(len(b))
}
