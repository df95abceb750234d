package rxpages

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"cxkit/device/wire/capture"
)

// Bounds of what is read of a capture.
const (
	maxFrames = 1 << 16
	maxFrame  = 1522 // with two tags, at MTU 1500
)

// frames reads the frames of a capture that a NIC with MTU 1500 receives.
func frames(name string) (list [][]byte, err error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	r, err := capture.NewReader(name, file)
	if err != nil {
		return nil, err
	}
	for len(list) < maxFrames {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if len(f.Data) >= 14 && len(f.Data) <= maxFrame {
			list = append(list, bytes.Clone(f.Data))
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: no frame", name)
	}
	return list, nil
}
