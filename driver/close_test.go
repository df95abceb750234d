package driver_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cxkit/driver"
	"cxkit/driver/internal/fwtest"
)

// R43: a card ends no sends and hangs, with 1389 frames in a transmit ring (a page pool that waited for such
// frames said only "stalled pool shutdown 1389 inflight", for minutes: fec, 20f797399035). Close is bounded
// by the first command without an answer, and tells who has what: by ring, holder and number where the card
// may still use it, and the application's in any case.
func TestR43CloseOfAHungCard(t *testing.T) {
	const sends, kept, timeout = 1389, 3, 2 * time.Second
	app := driver.BuffersOutError{Queue: 1, Transmit: true, Count: kept}
	rings := []driver.BuffersOutError{
		{Queue: 0, Card: true, Count: 64}, {Queue: 1, Card: true, Count: 64},
		{Queue: 0, Transmit: true, Card: true, Count: sends},
	}
	all := ops(t, true)
	for name, test := range map[string]struct {
		hang  bool
		reset error // what a reset of the card comes to
		want  []driver.BuffersOutError
		words []string
	}{
		"firmware and reset are dead too": {true, errors.New("no reset"), append(slices.Clone(rings), app), []string{
			"1389 buffers are in the ring of tx queue 0, which the card may still use",
			"64 buffers are in the ring of rx queue 1, which the card may still use",
			"3 buffers from tx queue 1 are still with the application",
		}},
		// A reset takes the rings from the card: what is missing is with the application.
		"firmware is dead too": {true, nil, []driver.BuffersOutError{app}, []string{"3 buffers from tx queue 1 are still with the application"}},
		// The rings end by command, and their frames with them.
		"firmware answers": {false, nil, []driver.BuffersOutError{app}, []string{"3 buffers from tx queue 1 are still with the application"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				card := fwtest.New() // its firmware answers; it moves no frame
				defer card.Close()
				card.SetPages(6, 20)
				c := config(t)
				c.CheckBuffers, c.TxRing, c.Buffers, c.CommandTimeout = true, 2048, 8192, timeout
				nic, err := driver.Open(t.Context(), card, c)
				if err != nil {
					t.Fatal(err)
				}
				pkts := make([]driver.Packet, sends)
				if n := nic.TxQueue(0).Get(pkts); n != sends {
					t.Fatalf("%d buffers", n)
				}
				for i := range pkts {
					pkts[i].Data = pkts[i].Data[:64]
				}
				if n := nic.TxQueue(0).Send(pkts); n != sends {
					t.Fatalf("%d sent", n)
				}
				if n := nic.TxQueue(1).Get(make([]driver.Packet, kept)); n != kept {
					t.Fatalf("%d buffers", n)
				}
				if test.hang {
					for _, op := range all {
						card.Handle(op, func(*fwtest.Call) {})
					}
				}
				card.FailReset(test.reset)

				begin := time.Now()
				err = nic.Close(t.Context())
				if d := time.Since(begin); d > timeout+time.Second {
					t.Errorf("close took %v, commands may take %v", d, timeout)
				}
				var got []driver.BuffersOutError
				for _, b := range buffersIn(err) {
					got = append(got, *b)
				}
				if !slices.Equal(got, test.want) {
					t.Errorf("close names %+v, want %+v: %v", got, test.want, err)
				}
				for _, words := range test.words {
					if !strings.Contains(err.Error(), words) {
						t.Errorf("close: %v; want %q", err, words)
					}
				}
				var left *driver.LeftoverError
				if errors.As(err, &left) != test.hang {
					t.Errorf("close: %v; left over by the card: %v", err, test.hang)
				}
				if test.hang && (left.Memory != nil) != (test.reset != nil) {
					t.Errorf("memory kept: %v, after a reset that came to: %v", left.Memory, test.reset)
				}
				if n := card.Arenas(); (n != 0) != (test.reset != nil) {
					t.Errorf("%d pieces of memory are kept", n)
				}
			})
		})
	}
}

// buffersIn lists the BuffersOutErrors of an error, in its order.
func buffersIn(err error) (list []*driver.BuffersOutError) {
	if b, ok := err.(*driver.BuffersOutError); ok {
		return []*driver.BuffersOutError{b}
	}
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			list = append(list, buffersIn(inner)...)
		}
	case interface{ Unwrap() error }:
		return buffersIn(e.Unwrap())
	}
	return list
}
