package driver_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cxkit/driver"
	"cxkit/driver/internal/fwtest"
	"cxkit/prm"
)

// tape is the fuzzer's bytes, read by whoever needs some. At its end everything is zero, which means: the
// card behaves.
type tape struct {
	mu   sync.Mutex
	data []byte
}

func (t *tape) next() byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.data) == 0 {
		return 0
	}
	b := t.data[0]
	t.data = t.data[1:]
	return b
}

func (t *tape) word() uint32 {
	return uint32(t.next())<<24 | uint32(t.next())<<16 | uint32(t.next())<<8 | uint32(t.next())
}

func (t *tape) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = t.next()
	}
	return b
}

// wild answers a command as the tape says.
func (t *tape) wild(c *fwtest.Call) {
	switch t.next() % 24 {
	case 1:
		c.Refuse(prm.Status(t.next()), t.word())
	case 2: // never
	case 3:
		c.Token = t.next()
		c.Finish()
	case 4:
		c.Length = t.word()
		c.Finish()
	case 5:
		c.Delivery = prm.DeliveryStatus(t.next() & 0x7F)
		c.Finish()
	case 6:
		k, b := int(t.next()%9), t.next()
		at := int(t.next()) + 0x140
		c.Block = func(i int, m *prm.Mailbox) {
			if i == k {
				m[at%len(m)] = b
			}
		}
		c.Default()
	case 7: // a few bytes of the output differ
		t.mutate(c, 1+int(t.next()%4))
	case 8: // numbers differ
		for i := 8; i < min(16, len(c.Out)); i++ {
			c.Out[i] = t.next()
		}
		c.Finish()
	case 9:
		for i := 4; i < len(c.Out); i++ {
			c.Out[i] = t.next()
		}
		c.Finish()
	case 10:
		c.KeepOwn = true
		c.Default()
	case 11:
		c.NoEvent = true
		c.Default()
	case 12:
		t.event(c.Card)
		c.Default()
	case 13:
		c.Card.RequestPages(int32(t.word()))
		c.Default()
	case 14:
		c.Card.Announce(t.word())
		c.Default()
	case 15:
		c.Card.SetRegister(uint64(t.word()%0x2000)&^3, t.word())
		c.Default()
	case 16:
		c.Card.Vanish()
	case 17:
		time.Sleep(time.Duration(t.next()) * 10 * time.Millisecond) // late, perhaps too late
		c.Default()
	default:
		c.Default()
	}
}

// mutate lets the card answer well and then changes n bytes. All capabilities, lengths and numbers pass
// here.
func (t *tape) mutate(c *fwtest.Call, n int) {
	type change struct {
		at int
		b  byte
	}
	var changes []change
	for range n {
		changes = append(changes, change{int(t.next())<<8 | int(t.next()), t.next()})
	}
	c.Edit = func(out []byte) {
		for _, x := range changes {
			if len(out) > 4 {
				out[4+x.at%(len(out)-4)] = x.b
			}
		}
	}
	c.Default()
}

func (t *tape) event(card *fwtest.Card) {
	var e prm.EQE
	copy(e[:], t.bytes(prm.EQEOwnOff))
	card.PostTo(t.next()%12+0x40, &e)
}

// FuzzDriver: bytes become what the device answers, writes and announces, from Open to Close. Whatever it
// does, calls return in bounded time, nothing panics, and all memory is free at the end.
func FuzzDriver(f *testing.F) {
	f.Add([]byte{})
	for i := range byte(24) {
		f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, i, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, i, 1, 2, 3, 4})
	}
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := make([]byte, 600)
		for i := range b {
			if r.IntN(6) == 0 { // mostly well-behaved, so that some get far
				b[i] = byte(r.Uint32())
			}
		}
		f.Add(b)
		f.Add(append(make([]byte, 200), b...)) // behaves until the NIC is open
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		synctest.Test(t, func(t *testing.T) { drive(t, &tape{data: data}) })
	})
}

// drive is one life of a NIC on a wild card.
func drive(t *testing.T, tape *tape) {
	card := fwtest.New()
	card.LimitPages(1 << 14)
	card.SetPages(int32(tape.next()), int32(tape.next()))
	for op := range prm.Opcode(0xFFF) {
		card.Handle(op, tape.wild)
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	nic, err := driver.Open(ctx, card, driver.Config{
		Queues: 2, RxRing: 8, TxRing: 8, Buffers: 48, CommandTimeout: time.Second, VLANFilter: true,
	})
	if err == nil {
		err = errors.Join(use(ctx, nic, card, tape), nic.Close(ctx))
		if b := nic.Books(); b.FirmwarePages != 0 || len(b.Objects) != 0 || b.CommandSlots != 0 || b.Mailboxes != 0 {
			t.Errorf("books after close: %+v", b)
		}
	}
	if err != nil && err.Error() == "" {
		t.Error("an error without words")
	}
	card.Close()
	if n := card.Arenas(); n != 0 {
		t.Errorf("%d pieces of memory are left", n)
	}
	if d := time.Since(begin); d > 15*time.Minute {
		t.Errorf("took %v", d)
	}
}

// use does what a program does with a NIC, while the card writes into its memory.
func use(ctx context.Context, nic *driver.NIC, card *fwtest.Card, tape *tape) error {
	var errs []error
	pkts := make([]driver.Packet, 16)
	for i := range 12 {
		switch tape.next() % 8 {
		case 1:
			errs = append(errs, nic.SetPromiscuous(ctx, tape.next()&1 != 0))
		case 2:
			errs = append(errs, nic.AddMAC(ctx, driver.MAC{2, 0, 0, 0, 0, tape.next()}))
		case 3:
			errs = append(errs, nic.AddVLAN(ctx, uint16(tape.next())))
		case 4:
			errs = append(errs, nic.SetMTU(ctx, 68+int(tape.next())*4))
		case 5:
			_, err := nic.Stats(ctx)
			errs = append(errs, err)
		case 6:
			tape.event(card)
		case 7:
			card.RequestPages(int32(tape.word()))
		}
		synctest.Wait()
		for range tape.next() % 4 {
			card.Poke(int(tape.next()), int(tape.next())<<8|int(tape.next())&0xFC, tape.bytes(64))
		}
		card.Raise()
		synctest.Wait()
		rx, tx := nic.RxQueue(i%2), nic.TxQueue(i%2)
		n := rx.Poll(pkts)
		rx.Release(pkts[:n])
		short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		_ = rx.Wait(short)
		_ = tx.Wait(short)
		cancel()
		n = tx.Get(pkts[:4])
		sent := tx.Send(pkts[:n])
		tx.Release(pkts[sent:n])
		tx.Reap()
		if tape.next()%4 == 1 {
			errs = append(errs, nic.Recover(ctx))
		}
	}
	return errors.Join(errs...)
}
