// Package pci is the one cut of cxkit: the PCI function.
//
// A driver uses a Function and knows nothing else of the card; a card implements an Endpoint and knows
// nothing else of the driver. Transports connect the two: in one process (transport/inproc), between
// processes and for QEMU guests (transport/vfiouser), or with a real card through Linux VFIO
// (transport/vfio). The MSI-X table and its masking belong to the transport.
//
//	driver ──uses──> pci.Function <──implements── transports
//	device ──implements──> pci.Endpoint <──plugged in by── transports, which hand it a pci.Host
package pci
