//go:build ignore

// topcapng copies a pcap or pcapng capture to a pcapng file with one named interface, frames and times
// unchanged: go run testdata/record/topcapng.go IN OUT NAME
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"cxkit/device/wire/capture"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: go run testdata/record/topcapng.go IN OUT NAME")
		os.Exit(2)
	}
	if err := convert(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func convert(in, out, name string) error {
	f, err := os.Open(in)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := capture.NewReader(in, f)
	if err != nil {
		return err
	}
	w, err := capture.Create(out, name)
	if err != nil {
		return err
	}
	for {
		frame, err := r.Next()
		if err == io.EOF {
			return w.Close()
		}
		if err == nil {
			err = w.Write(0, frame.Data, frame.Time())
		}
		if err != nil {
			return errors.Join(err, w.Close())
		}
	}
}
