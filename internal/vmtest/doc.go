// Package vmtest boots Linux guests on cards of this process: QEMU with vfio-user-pci, a kernel with the
// unmodified mlx5 driver, and an initramfs that runs a shell text and reports. `cxkit vm` and tests are
// built on it.
//
// Three parts, each usable alone:
//
//	Cache     what was fetched from Debian into the user's cache folder: QEMU, kernels, a guest's programs.
//	          Nothing is installed and nobody needs to be root. apt resolves, downloads and verifies.
//	Initramfs a kernel's modules with what they depend on, busybox, programs, and an init that runs a
//	          shell text (cpio.go, modules.go, programs.go, initramfs.go).
//	Guest     a QEMU process with a hard time limit. Its kernel's console and its command's output are two
//	          channels. QEMU's exit status is no evidence of anything: only the report that init writes
//	          when the command ended is (guest.go, report.go).
//
// Cards holds the host's side of a guest: cards, a switch between them, and their vfio-user sockets.
package vmtest
