package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// streams is what iperf3 says of a test at its end (iperf3 -J), as far as it matters here.
type streams struct {
	Error string `json:"error"`
	Start struct {
		Test struct {
			Streams int `json:"num_streams"`
			Bidir   int `json:"bidir"`
		} `json:"test_start"`
	} `json:"start"`
	Intervals []struct {
		Sum     moved `json:"sum"`
		Reverse moved `json:"sum_bidir_reverse"`
	} `json:"intervals"`
	End struct {
		Streams []struct {
			Receiver moved `json:"receiver"`
		} `json:"streams"`
	} `json:"end"`
}

// moved is how much went one way, and whether it is the client that sends.
type moved struct {
	Bytes  int64 `json:"bytes"`
	Sender bool  `json:"sender"`
}

// iperf judges what iperf3 -J of a test in both directions has left in a file; settled says that nothing kept streams from
// going on meanwhile.
func iperf(path string, settled bool) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var s streams
	if err := json.NewDecoder(io.LimitReader(f, 16<<20)).Decode(&s); err != nil {
		return fmt.Errorf("iperf3's report: %w", err)
	}
	if err := s.judge(); err != nil {
		return err
	}
	if settled {
		if err := s.flowed(); err != nil {
			return err
		}
	}
	out, in := s.arrived()
	fmt.Printf("iperf3: %d streams each way, %.1f MB out, %.1f MB in, %d s\n",
		s.Start.Test.Streams, float64(out)/1e6, float64(in)/1e6, len(s.Intervals))
	return nil
}

// arrived is how much the receivers got, away from the client and to it.
func (s *streams) arrived() (out, in int64) {
	for _, e := range s.End.Streams {
		if e.Receiver.Sender {
			out += e.Receiver.Bytes
		} else {
			in += e.Receiver.Bytes
		}
	}
	return out, in
}

// judge is an error unless the test came to its end with all its streams, and bytes arrived both ways. How far a single
// stream comes is TCP's: one that lost much waits for seconds before it tries again.
func (s *streams) judge() error {
	if s.Error != "" {
		return errors.New("iperf3: " + s.Error)
	}
	n := s.Start.Test.Streams
	if n < 1 || s.Start.Test.Bidir == 0 {
		return fmt.Errorf("iperf3 had %d streams, both ways %d", n, s.Start.Test.Bidir)
	}
	ways := make(map[bool]int)
	for _, e := range s.End.Streams {
		ways[e.Receiver.Sender]++
	}
	if ways[true] != n || ways[false] != n {
		return fmt.Errorf("iperf3: %d streams out and %d in, want %d", ways[true], ways[false], n)
	}
	if out, in := s.arrived(); out <= 0 || in <= 0 {
		return fmt.Errorf("iperf3: %d bytes arrived out and %d in", out, in)
	}
	return nil
}

// flowed is an error unless every stream's receiver got something, and something moved both ways in the test's second
// half: no queue and no direction stands still.
func (s *streams) flowed() error {
	for i, e := range s.End.Streams {
		if e.Receiver.Bytes <= 0 {
			return fmt.Errorf("iperf3: nothing of stream %d has arrived", i)
		}
	}
	var out, in int64
	late := s.Intervals[len(s.Intervals)/2:]
	for _, i := range late {
		out, in = out+i.Sum.Bytes, in+i.Reverse.Bytes
	}
	if out <= 0 || in <= 0 {
		return fmt.Errorf("iperf3: %d bytes out and %d in during the last %d of %d intervals", out, in, len(late), len(s.Intervals))
	}
	return nil
}
