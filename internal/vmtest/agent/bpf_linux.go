//go:build amd64

package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"syscall"
)

// What the agent needs of bpf(2) (include/uapi/linux/bpf.h). Its attributes hold addresses: reflect tells them, and
// what they point to is on Go's heap, which does not move.
const (
	sysBPF           = 321 // amd64
	bpfMapCreate     = 0
	bpfMapUpdate     = 2
	bpfProgLoad      = 5
	bpfLinkCreate    = 28
	bpfMapXSK        = 17
	bpfProgXDP       = 6
	bpfAttachXDP     = 37
	bpfPseudoMapFD   = 1
	bpfRedirectMap   = 51 // a helper function
	xdpFlagsDrv      = 4
	xdpContextQueue  = 16 // offset of rx_queue_index in struct xdp_md
	instructionBytes = 8
)

// Verdicts of an XDP program.
const (
	xdpDrop = 1
	xdpPass = 2
	xdpTX   = 3
)

// addressOf is where b is.
func addressOf(b []byte) uint64 { return uint64(reflect.ValueOf(b).Pointer()) }

// bpf does one command of bpf(2) and returns a file descriptor, if the command makes one.
func bpf(command int, attr []byte) (int, error) {
	fd, _, errno := syscall.Syscall(sysBPF, uintptr(command), uintptr(addressOf(attr)), uintptr(len(attr)))
	runtime.KeepAlive(attr)
	if errno != 0 {
		return -1, fmt.Errorf("bpf command %d: %w", command, errno)
	}
	return int(fd), nil
}

// instruction is one of eBPF.
func instruction(op, registers byte, off int16, imm int32) []byte {
	b := []byte{op, registers}
	b = binary.NativeEndian.AppendUint16(b, uint16(off))
	return binary.NativeEndian.AppendUint32(b, uint32(imm))
}

// always is a program that gives one verdict.
func always(verdict int32) []byte {
	return append(instruction(0xb7, 0, 0, verdict), instruction(0x95, 0, 0, 0)...) // r0 = verdict; exit
}

// toSocket is a program that gives frames to the socket of their queue, and passes what has none.
func toSocket(socketMap int) []byte {
	var p []byte
	p = append(p, instruction(0x61, 0x12, xdpContextQueue, 0)...)                 // r2 = *(u32 *)(r1 + 16)
	p = append(p, instruction(0x18, bpfPseudoMapFD<<4|1, 0, int32(socketMap))...) // r1 = the map
	p = append(p, instruction(0, 0, 0, 0)...)
	p = append(p, instruction(0xb7, 3, 0, xdpPass)...)        // r3 = XDP_PASS
	p = append(p, instruction(0x85, 0, 0, bpfRedirectMap)...) // r0 = bpf_redirect_map(r1, r2, r3)
	return append(p, instruction(0x95, 0, 0, 0)...)
}

// attach loads a program and hangs it into an interface's driver until the file descriptor is closed.
func attach(program []byte, index int) (int, error) {
	license, log := []byte("GPL\x00"), make([]byte, 16<<10)
	attr := make([]byte, 48)
	binary.NativeEndian.PutUint32(attr[0:], bpfProgXDP)
	binary.NativeEndian.PutUint32(attr[4:], uint32(len(program)/instructionBytes))
	binary.NativeEndian.PutUint64(attr[8:], addressOf(program))
	binary.NativeEndian.PutUint64(attr[16:], addressOf(license))
	binary.NativeEndian.PutUint32(attr[24:], 1)
	binary.NativeEndian.PutUint32(attr[28:], uint32(len(log)))
	binary.NativeEndian.PutUint64(attr[32:], addressOf(log))
	fd, err := bpf(bpfProgLoad, attr)
	runtime.KeepAlive(program)
	runtime.KeepAlive(license)
	if err != nil {
		return -1, fmt.Errorf("load program: %w: %s", err, log)
	}
	link := make([]byte, 16)
	binary.NativeEndian.PutUint32(link[0:], uint32(fd))
	binary.NativeEndian.PutUint32(link[4:], uint32(index))
	binary.NativeEndian.PutUint32(link[8:], bpfAttachXDP)
	binary.NativeEndian.PutUint32(link[12:], xdpFlagsDrv)
	return bpf(bpfLinkCreate, link)
}

// xdp gives all frames of an interface one verdict, until the agent is ended.
func xdp(name, verdict string) error {
	index, err := interfaceIndex(name)
	if err != nil {
		return err
	}
	v, ok := map[string]int32{"drop": xdpDrop, "pass": xdpPass, "tx": xdpTX}[verdict]
	if !ok {
		return fmt.Errorf("verdict %q", verdict)
	}
	if _, err := attach(always(v), index); err != nil {
		return err
	}
	fmt.Println("attached")
	_, err = os.Stdin.Read(make([]byte, 1)) // its input is a pipe that ends when the script says so
	if err != nil && err.Error() == "EOF" {
		err = nil
	}
	return err
}
