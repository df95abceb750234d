// Package spec holds the tables of all structures of the wire language: one row a field, as the PRM prints them. They
// are the single source of package prm, which prm/gen renders from Files; nothing else imports them at run time.
//
// A row gives the Go name, the name in the PRM and in linux/mlx5_ifc.h, the byte offset of the big-endian dword, the
// high and the low bit (31 is the first bit on the wire), and a remark. A field of 64 bits gives the offset of its first
// byte and bits 63 to 0. What is not named is reserved.
//
// Sources: NVIDIA Adapters Programmer's Reference Manual; linux include/linux/mlx5/mlx5_ifc.h 6.12 for commands,
// contexts, capabilities and registers; device.h, qp.h, driver.h, cq.h for what lives in shared memory.
package spec
