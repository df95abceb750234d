// Package config is the PCI configuration space of a function: the fields and capability offsets of a
// real ConnectX-5 (as lspci shows them), which registers can be written, and what writing some of them
// does. The MSI-X table itself belongs to the transport.
package config
