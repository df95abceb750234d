package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// report is what iperf3 3.18 leaves of two streams each way in four intervals, less what nobody reads.
const report = `{
	"start": {"test_start": {"protocol": "TCP", "num_streams": 2, "bidir": 1}},
	"intervals": [
		{"sum": {"bytes": 100, "sender": true}, "sum_bidir_reverse": {"bytes": 200, "sender": false}},
		{"sum": {"bytes": 100, "sender": true}, "sum_bidir_reverse": {"bytes": 200, "sender": false}},
		{"sum": {"bytes": 0, "sender": true}, "sum_bidir_reverse": {"bytes": 0, "sender": false}},
		{"sum": {"bytes": 7, "sender": true}, "sum_bidir_reverse": {"bytes": 9, "sender": false}}
	],
	"end": {"streams": [
		{"sender": {"bytes": 104, "sender": true}, "receiver": {"bytes": 103, "sender": true}},
		{"sender": {"bytes": 103, "sender": true}, "receiver": {"bytes": 103, "sender": true}},
		{"sender": {"bytes": 210, "sender": false}, "receiver": {"bytes": 205, "sender": false}},
		{"sender": {"bytes": 210, "sender": false}, "receiver": {"bytes": 204, "sender": false}}
	]}
}`

func TestStreamsThatWentOnToTheirEndAreFine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	if err := os.WriteFile(path, []byte(report), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, settled := range []bool{false, true} {
		if err := iperf(path, settled); err != nil {
			t.Error(err)
		}
	}
}

func TestStreamsThatStoppedAreNoticed(t *testing.T) {
	for name, change := range map[string]struct {
		from, to, want string
		settled        bool // it is a failure only then
	}{
		"an error":              {from: `{`, to: `{"error": "control socket has closed unexpectedly",`, want: "control socket"},
		"a stream too few":      {from: `"num_streams": 2`, to: `"num_streams": 3`, want: "2 streams out and 2 in, want 3"},
		"one way only":          {from: `"bidir": 1`, to: `"bidir": 0`, want: "both ways 0"},
		"no end":                {from: `"end"`, to: `"ended"`, want: "0 streams out"},
		"nothing arrives out":   {from: `"receiver": {"bytes": 103,`, to: `"receiver": {"bytes": 0,`, want: "0 bytes arrived out and 409 in"},
		"nothing arrives in":    {from: `"receiver": {"bytes": 20`, to: `"receiver": {"bytes": -20`, want: "in"},
		"a stream that starved": {from: `"receiver": {"bytes": 204`, to: `"receiver": {"bytes": 0`, want: "stream 3", settled: true},
		"silence out":           {from: `"bytes": 7,`, to: `"bytes": 0,`, want: "0 bytes out and 9 in during the last 2 of 4", settled: true},
		"silence in":            {from: `"bytes": 9,`, to: `"bytes": 0,`, want: "7 bytes out and 0 in", settled: true},
	} {
		t.Run(name, func(t *testing.T) {
			n := -1
			if name == "an error" {
				n = 1
			}
			text := strings.Replace(report, change.from, change.to, n)
			if text == report {
				t.Fatalf("no %s in the report", change.from)
			}
			var s streams
			if err := json.Unmarshal([]byte(text), &s); err != nil {
				t.Fatal(err)
			}
			err := s.judge()
			if change.settled {
				if err != nil {
					t.Errorf("while settings change: %v", err)
				}
				err = s.flowed()
			}
			if err == nil || !strings.Contains(err.Error(), change.want) {
				t.Errorf("%v, want %q", err, change.want)
			}
		})
	}
	if err := iperf(filepath.Join(t.TempDir(), "none"), false); err == nil {
		t.Error("a report that is not there is fine")
	}
}
