package vfiouser

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
)

// Capabilities is what the sender of a Version message can take.
type Capabilities struct {
	// MaxMsgFDs is how many file descriptors it takes in one message.
	MaxMsgFDs int
	// MaxDataXferSize is how many bytes of data it takes in one message.
	MaxDataXferSize int
	// PageSizes are the page sizes of DMA mappings, or'ed.
	PageSizes uint64
	// MaxDMAMaps is how many DMA mappings it keeps.
	MaxDMAMaps int
	// WriteMultiple: it understands RegionWriteMulti.
	WriteMultiple bool
}

// DefaultCapabilities are those of a peer that announces nothing.
func DefaultCapabilities() Capabilities {
	return Capabilities{MaxMsgFDs: 1, MaxDataXferSize: 1 << 20, PageSizes: 4096, MaxDMAMaps: 65535}
}

// VersionMessage negotiates: the client proposes, the server answers with the same major and a minor that
// is not larger.
type VersionMessage struct {
	Major, Minor uint16
	Capabilities Capabilities
}

// The JSON document. Pointers tell what was absent.
type versionDocument struct {
	Capabilities *capabilityDocument `json:"capabilities,omitempty"`
}

type capabilityDocument struct {
	MaxMsgFDs       *int64  `json:"max_msg_fds,omitempty"`
	MaxDataXferSize *int64  `json:"max_data_xfer_size,omitempty"`
	PageSizes       *uint64 `json:"pgsizes,omitempty"`
	MaxDMAMaps      *int64  `json:"max_dma_maps,omitempty"`
	WriteMultiple   *bool   `json:"write_multiple,omitempty"`
}

// Append appends the payload to b. What the peer would assume anyway (DefaultCapabilities) is left out:
// QEMU has no room for a reply that is longer than its request.
func (v *VersionMessage) Append(b []byte) []byte {
	c, def := v.Capabilities, DefaultCapabilities()
	var doc capabilityDocument
	if n := int64(c.MaxMsgFDs); c.MaxMsgFDs != def.MaxMsgFDs {
		doc.MaxMsgFDs = &n
	}
	if n := int64(c.MaxDataXferSize); c.MaxDataXferSize != def.MaxDataXferSize {
		doc.MaxDataXferSize = &n
	}
	if c.PageSizes != def.PageSizes {
		doc.PageSizes = &c.PageSizes
	}
	if n := int64(c.MaxDMAMaps); c.MaxDMAMaps != def.MaxDMAMaps {
		doc.MaxDMAMaps = &n
	}
	if c.WriteMultiple {
		doc.WriteMultiple = &c.WriteMultiple
	}
	text, err := json.Marshal(versionDocument{&doc})
	if err != nil {
		panic(err) // numbers and a bool
	}
	b = binary.NativeEndian.AppendUint16(b, v.Major)
	b = binary.NativeEndian.AppendUint16(b, v.Minor)
	return append(append(b, text...), 0)
}

var errNoNUL = errors.New("version text does not end in NUL")

// Parse decodes a payload. Unknown names are ignored, wrong types and impossible values are errors.
func (v *VersionMessage) Parse(p []byte) error {
	if len(p) < 4 {
		return short("version", len(p), 4)
	}
	v.Major, v.Minor = binary.NativeEndian.Uint16(p), binary.NativeEndian.Uint16(p[2:])
	v.Capabilities = DefaultCapabilities()
	text := p[4:]
	if len(text) == 0 {
		return nil
	}
	text, found := bytes.CutSuffix(text, []byte{0})
	if !found {
		return errNoNUL
	}
	var doc versionDocument
	if err := json.Unmarshal(text, &doc); err != nil {
		return fmt.Errorf("version text: %w", err)
	}
	if doc.Capabilities == nil {
		return nil
	}
	return v.Capabilities.set(doc.Capabilities)
}

func (c *Capabilities) set(d *capabilityDocument) error {
	for _, n := range []struct {
		name     string
		from     *int64
		to       *int
		min, max int64
	}{
		{"max_msg_fds", d.MaxMsgFDs, &c.MaxMsgFDs, 0, 1 << 16},
		{"max_data_xfer_size", d.MaxDataXferSize, &c.MaxDataXferSize, 1, 1 << 30},
		{"max_dma_maps", d.MaxDMAMaps, &c.MaxDMAMaps, 1, 1 << 30},
	} {
		if n.from == nil {
			continue
		}
		if *n.from < n.min {
			return fmt.Errorf("version: %s is %d", n.name, *n.from)
		}
		*n.to = int(min(*n.from, n.max))
	}
	if d.PageSizes != nil {
		if *d.PageSizes == 0 {
			return errors.New("version: pgsizes is 0")
		}
		c.PageSizes = *d.PageSizes
	}
	if d.WriteMultiple != nil {
		c.WriteMultiple = *d.WriteMultiple
	}
	return nil
}
