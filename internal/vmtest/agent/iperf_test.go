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
	if err := iperf(path); err != nil {
		t.Error(err)
	}
}

func TestStreamsThatStoppedAreNoticed(t *testing.T) {
	for name, change := range map[string]struct{ from, to, want string }{
		"an error":              {`{`, `{"error": "control socket has closed unexpectedly",`, "control socket"},
		"a stream that starved": {`"receiver": {"bytes": 204`, `"receiver": {"bytes": 0`, "stream 3"},
		"a stream too few":      {`"num_streams": 2`, `"num_streams": 3`, "2 streams out and 2 in, want 3"},
		"one way only":          {`"bidir": 1`, `"bidir": 0`, "both ways 0"},
		"no end":                {`"end"`, `"ended"`, "0 streams out"},
		"silence out":           {`"bytes": 7,`, `"bytes": 0,`, "0 bytes out and 9 in during the last 2 of 4"},
		"silence in":            {`"bytes": 9,`, `"bytes": 0,`, "7 bytes out and 0 in"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(report, change.from, change.to, 1)
			if text == report {
				t.Fatalf("no %s in the report", change.from)
			}
			var s streams
			if err := json.Unmarshal([]byte(text), &s); err != nil {
				t.Fatal(err)
			}
			if err := s.judge(); err == nil || !strings.Contains(err.Error(), change.want) {
				t.Errorf("%v, want %q", err, change.want)
			}
		})
	}
	if err := iperf(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a report that is not there is fine")
	}
}
