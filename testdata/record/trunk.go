//go:build ignore

// trunk joins pairs of TAP interfaces over one recorded wire, as two switches with access ports and a
// trunk between them would: frames of a pair carry its VLAN tags on the wire, and none at the interfaces.
//
//	go run testdata/record/trunk.go OUT.pcapng CLIENT-TAP,SERVER-TAP[,TAG...]...
//
// A tag is a VLAN number, or with an s (200s) an 802.1ad one; the outer comes first. It prints "ready"
// when the interfaces exist and records until it is interrupted.
package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"cxkit/device/wire"
	"cxkit/device/wire/capture"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: go run testdata/record/trunk.go OUT.pcapng CLIENT-TAP,SERVER-TAP[,TAG...]...")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// access is one direction of a pair.
type access struct {
	from, to *wire.TAP
	tags     []byte
}

func run(out string, pairs []string) (err error) {
	rec, err := capture.Create(out, "trunk")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rec.Close()) }()
	wake := make(chan struct{}, 1)
	var all []access
	for _, pair := range pairs {
		names := strings.Split(pair, ",")
		if len(names) < 2 {
			return fmt.Errorf("pair %q: want two interfaces", pair)
		}
		tags, err := parseTags(names[2:])
		if err != nil {
			return err
		}
		var ends [2]*wire.TAP
		for i := range ends {
			if ends[i], err = wire.OpenTAP(names[i], 0); err != nil {
				return err
			}
			defer ends[i].Close()
			ends[i].Attach(func() {
				select {
				case wake <- struct{}{}:
				default:
				}
			})
		}
		all = append(all, access{ends[0], ends[1], tags}, access{ends[1], ends[0], tags})
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	fmt.Println("ready")
	for {
		busy := false
		for _, a := range all {
			moved, err := a.move(rec)
			if err != nil {
				return err
			}
			busy = busy || moved
		}
		if busy {
			continue
		}
		select {
		case <-wake:
		case <-stop:
			return nil
		}
	}
}

func parseTags(words []string) ([]byte, error) {
	var tags []byte
	for _, w := range words {
		kind := uint16(0x8100)
		if digits, service := strings.CutSuffix(w, "s"); service {
			kind, w = 0x88a8, digits
		}
		id, err := strconv.ParseUint(w, 10, 12)
		if err != nil {
			return nil, fmt.Errorf("tag %q: %w", w, err)
		}
		tags = binary.BigEndian.AppendUint16(tags, kind)
		tags = binary.BigEndian.AppendUint16(tags, uint16(id))
	}
	return tags, nil
}

// move passes a burst and records it with its tags.
func (a access) move(rec *capture.Recorder) (bool, error) {
	var burst [32][]byte
	frames := burst[:a.from.Receive(burst[:])]
	now := time.Now()
	for _, f := range frames {
		tagged := append(append(append([]byte(nil), f[:12]...), a.tags...), f[12:]...)
		if err := rec.Write(0, tagged, now); err != nil {
			return false, err
		}
	}
	for sent := 0; sent < len(frames); {
		n := a.to.Transmit(frames[sent:])
		if sent += n; n == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	return len(frames) > 0, nil
}
