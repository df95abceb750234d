package sim_test

import (
	"bytes"
	"testing"

	"cxkit/driver"
	"cxkit/sim"
)

// TestEcho is the example of the README: a program's own test on a NIC of its own.
func TestEcho(t *testing.T) {
	nic, far := sim.New(t)
	mac := nic.MAC()
	ping := append(append(mac[:], 2, 0, 0, 0, 0, 1, 0x88, 0xb5), bytes.Repeat([]byte("ping"), 16)...)
	if far.Send(ping) != 1 {
		t.Fatal("the wire is full")
	}
	var pkts [8]driver.Packet
	rx, tx := nic.RxQueue(0), nic.TxQueue(0)
	n := rx.Poll(pkts[:])
	for ; n == 0; n = rx.Poll(pkts[:]) {
		if err := rx.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	tx.Send(pkts[:n]) // zero copy: the buffers come back when the card has sent them
	echo, err := far.Recv(t.Context())
	if err != nil || !bytes.Equal(echo, ping) {
		t.Fatalf("got %x, %v", echo, err)
	}
}
