package vfiouser

import (
	"encoding/binary"
	"fmt"
)

// Command says what a message is about.
type Command uint16

// Commands. All go from the client to the server but DMARead and DMAWrite.
const (
	Version            Command = 1
	DMAMap             Command = 2
	DMAUnmap           Command = 3
	DeviceGetInfo      Command = 4
	DeviceGetRegion    Command = 5
	DeviceGetIOFDs     Command = 6
	DeviceGetIRQ       Command = 7
	DeviceSetIRQs      Command = 8
	RegionRead         Command = 9
	RegionWrite        Command = 10
	DMARead            Command = 11
	DMAWrite           Command = 12
	DeviceReset        Command = 13
	DirtyPages         Command = 14 // removed from the specification
	RegionWriteMulti   Command = 15
	DeviceFeature      Command = 16
	MigrationDataRead  Command = 17
	MigrationDataWrite Command = 18
)

var commandNames = [...]string{
	Version: "VERSION", DMAMap: "DMA_MAP", DMAUnmap: "DMA_UNMAP", DeviceGetInfo: "DEVICE_GET_INFO",
	DeviceGetRegion: "DEVICE_GET_REGION_INFO", DeviceGetIOFDs: "DEVICE_GET_REGION_IO_FDS",
	DeviceGetIRQ: "DEVICE_GET_IRQ_INFO", DeviceSetIRQs: "DEVICE_SET_IRQS", RegionRead: "REGION_READ",
	RegionWrite: "REGION_WRITE", DMARead: "DMA_READ", DMAWrite: "DMA_WRITE", DeviceReset: "DEVICE_RESET",
	DirtyPages: "DIRTY_PAGES", RegionWriteMulti: "REGION_WRITE_MULTI", DeviceFeature: "DEVICE_FEATURE",
	MigrationDataRead: "MIG_DATA_READ", MigrationDataWrite: "MIG_DATA_WRITE",
}

func (c Command) String() string {
	if int(c) < len(commandNames) && commandNames[c] != "" {
		return commandNames[c]
	}
	return fmt.Sprintf("command %d", uint16(c))
}

// HeaderSize is the length of a header.
const HeaderSize = 16

// Limits of both ends here. Peers announce theirs with Version.
const (
	// MaxFDs is how many file descriptors one message carries at most: what QEMU accepts.
	MaxFDs = 16
	// MaxData is how many bytes of register or DMA data one message carries at most.
	MaxData = 1 << 20
	// MaxMessage bounds a message with its header and whatever precedes the data.
	MaxMessage = MaxData + 256
)

// Flags of a header.
const (
	FlagReply   uint32 = 1 << 0 // else a request
	FlagNoReply uint32 = 1 << 4 // the sender of a request wants no reply, not even an error
	FlagError   uint32 = 1 << 5 // the reply is an error: Errno says which

	flagType uint32 = 0xf
)

// Header begins every message.
type Header struct {
	// ID is chosen by the sender of a request and repeated in the reply.
	ID      uint16
	Command Command
	// Size is the whole message's, header included.
	Size  uint32
	Flags uint32
	// Errno is a positive Linux error number in replies with FlagError, else 0.
	Errno uint32
}

// Put encodes h into the first HeaderSize bytes of b.
func (h *Header) Put(b []byte) {
	_ = b[15]
	binary.NativeEndian.PutUint16(b[0:], h.ID)
	binary.NativeEndian.PutUint16(b[2:], uint16(h.Command))
	binary.NativeEndian.PutUint32(b[4:], h.Size)
	binary.NativeEndian.PutUint32(b[8:], h.Flags)
	binary.NativeEndian.PutUint32(b[12:], h.Errno)
}

// Append appends h to b.
func (h *Header) Append(b []byte) []byte {
	b = append(b, make([]byte, HeaderSize)...)
	h.Put(b[len(b)-HeaderSize:])
	return b
}

// Parse decodes the first HeaderSize bytes of b. A size or type that no message can have is an error,
// after which the stream can't be understood any more.
func (h *Header) Parse(b []byte) error {
	_ = b[15]
	h.ID = binary.NativeEndian.Uint16(b[0:])
	h.Command = Command(binary.NativeEndian.Uint16(b[2:]))
	h.Size = binary.NativeEndian.Uint32(b[4:])
	h.Flags = binary.NativeEndian.Uint32(b[8:])
	h.Errno = binary.NativeEndian.Uint32(b[12:])
	if h.Size < HeaderSize || h.Size > MaxMessage {
		return fmt.Errorf("%v with id %d: a message of %d bytes", h.Command, h.ID, h.Size)
	}
	if t := h.Flags & flagType; t > 1 {
		return fmt.Errorf("%v with id %d: message type %d", h.Command, h.ID, t)
	}
	return nil
}

// Reply reports whether the message is a reply.
func (h *Header) Reply() bool { return h.Flags&flagType == FlagReply }

// Wanted reports whether the sender of a request wants a reply.
func (h *Header) Wanted() bool { return h.Flags&FlagNoReply == 0 }

// short is the error of a payload that lacks bytes.
func short(what string, n, want int) error {
	return fmt.Errorf("%s of %d bytes, want %d", what, n, want)
}

func u32(b []byte, at int) uint32 { return binary.NativeEndian.Uint32(b[at:]) }
func u64(b []byte, at int) uint64 { return binary.NativeEndian.Uint64(b[at:]) }

func append32(b []byte, v ...uint32) []byte {
	for _, v := range v {
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	return b
}

func append64(b []byte, v ...uint64) []byte {
	for _, v := range v {
		b = binary.NativeEndian.AppendUint64(b, v)
	}
	return b
}
