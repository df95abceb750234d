// Package vfiouser is the vfio-user protocol as QEMU 10.1 to 11 speaks it: its messages, without I/O.
//
// vfio-user carries VFIO's requests over a Unix socket, so that a PCI function can live in another process
// than its driver: server serves a pci.Endpoint to QEMU or to any other client, client is a pci.Function
// whose card is at the other end of a socket.
//
// Every message is a Header and a payload; each payload has a type here with Append, which encodes it, and
// Parse, which decodes and checks lengths. File descriptors travel beside the first byte of a message.
// Integers are in the host's byte order. Data of registers is the bytes as they lie in the BAR.
//
// Sources: QEMU docs/interop/vfio-user.rst, hw/vfio-user; libvfio-user include/vfio-user.h; linux/vfio.h.
package vfiouser
