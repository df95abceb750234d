package object_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"cxkit/driver/internal/cmdif"
	"cxkit/driver/internal/object"
	"cxkit/prm"
)

// firmware numbers what it creates and remembers what it was told to destroy.
type firmware struct {
	next uint32
	ops  []string
	fail map[prm.Opcode]error
}

func (f *firmware) Exec(_ context.Context, in cmdif.In, out cmdif.Out) error {
	b := make([]byte, in.Len())
	in.Put(b)
	f.ops = append(f.ops, in.Opcode().String())
	if err := f.fail[in.Opcode()]; err != nil {
		return err
	}
	reply := make([]byte, max(out.Len(), 16))
	f.next++
	reply[11] = byte(f.next)
	out.Get(reply)
	return nil
}

// kinds is every command that creates something.
var kinds = []struct {
	in  cmdif.In
	out cmdif.Out
}{
	{&prm.AllocUARIn{}, &prm.AllocUAROut{}},
	{&prm.AllocPDIn{}, &prm.AllocPDOut{}},
	{&prm.AllocTransportDomainIn{}, &prm.AllocTransportDomainOut{}},
	{&prm.CreateMKeyIn{}, &prm.CreateMKeyOut{}},
	{&prm.CreateEQIn{}, &prm.CreateEQOut{}},
	{&prm.CreateCQIn{}, &prm.CreateCQOut{}},
	{&prm.CreateRQIn{}, &prm.CreateRQOut{}},
	{&prm.CreateSQIn{}, &prm.CreateSQOut{}},
	{&prm.CreateTISIn{}, &prm.CreateTISOut{}},
	{&prm.CreateTIRIn{}, &prm.CreateTIROut{}},
	{&prm.CreateRQTIn{}, &prm.CreateRQTOut{}},
	{&prm.AllocQCounterIn{}, &prm.AllocQCounterOut{}},
	{&prm.CreateFlowTableIn{TableType: prm.FlowTableNICRX}, &prm.CreateFlowTableOut{}},
	{&prm.CreateFlowGroupIn{TableID: 3}, &prm.CreateFlowGroupOut{}},
	{&prm.SetFlowTableEntryIn{TableID: 3, FlowIndex: 5}, &prm.SetFlowTableEntryOut{}},
	{&prm.AllocFlowCounterIn{}, &prm.AllocFlowCounterOut{}},
}

func TestEveryKindIsBookedAndDestroyedInReverse(t *testing.T) {
	f := &firmware{}
	b := object.NewBook(f)
	var made []object.Object
	for _, k := range kinds {
		o, err := b.Create(t.Context(), k.in, k.out)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(o.String(), "kind(") {
			t.Errorf("%v has no name", k.in.Opcode())
		}
		made = append(made, o)
	}
	if out := b.Out(); !slices.Equal(out, made) {
		t.Errorf("out: %v\nmade: %v", out, made)
	}
	created := len(f.ops)
	if err := b.DestroyAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(f.ops) != 2*created || len(b.Out()) != 0 {
		t.Fatalf("%d commands, left: %v", len(f.ops), b.Out())
	}
	for i, op := range f.ops[created:] {
		made := f.ops[created-1-i]
		noun := strings.NewReplacer("ALLOC_", "", "CREATE_", "", "SET_", "").Replace(made)
		if !strings.HasSuffix(op, noun) || !strings.HasPrefix(op, "DE") {
			t.Errorf("%s was undone by %s", made, op)
		}
	}
}

func TestCommandsThatBypassCreateAreBooked(t *testing.T) {
	b := object.NewBook(&firmware{})
	out := prm.CreateRQOut{}
	if err := b.Exec(t.Context(), &prm.CreateRQIn{}, &out); err != nil {
		t.Fatal(err)
	}
	if got := b.Out(); len(got) != 1 || got[0] != (object.Object{Kind: object.RQ, Number: out.RQN}) {
		t.Errorf("out: %v", got)
	}
	if err := b.Exec(t.Context(), &prm.ModifyRQIn{RQN: out.RQN}, &prm.ModifyRQOut{}); err != nil {
		t.Fatal(err)
	}
	if err := b.Exec(t.Context(), &prm.SetFlowTableEntryIn{OpMod: 1}, &prm.SetFlowTableEntryOut{}); err != nil {
		t.Fatal(err)
	}
	if err := b.Exec(t.Context(), &prm.DestroyRQIn{RQN: out.RQN}, &prm.DestroyRQOut{}); err != nil {
		t.Fatal(err)
	}
	if got := b.Out(); len(got) != 0 {
		t.Errorf("out: %v", got)
	}
}

func TestNumberGivenTwiceIsAnError(t *testing.T) {
	f := &firmware{}
	b := object.NewBook(f)
	if _, err := b.Create(t.Context(), &prm.CreateCQIn{}, &prm.CreateCQOut{}); err != nil {
		t.Fatal(err)
	}
	f.next = 0
	var bad *cmdif.ProtocolError
	if _, err := b.Create(t.Context(), &prm.CreateCQIn{}, &prm.CreateCQOut{}); !errors.As(err, &bad) {
		t.Errorf("error: %v", err)
	}
	if len(b.Out()) != 1 {
		t.Errorf("out: %v", b.Out())
	}
}

func TestWhatFirmwareKeepsStaysInTheBook(t *testing.T) {
	f := &firmware{fail: map[prm.Opcode]error{}}
	b := object.NewBook(f)
	for range 3 {
		if _, err := b.Create(t.Context(), &prm.CreateCQIn{}, &prm.CreateCQOut{}); err != nil {
			t.Fatal(err)
		}
	}
	f.fail[prm.OpDestroyCQ] = &prm.CommandError{Op: prm.OpDestroyCQ, Status: prm.StatusBadResource}
	err := b.DestroyAll(t.Context())
	if !errors.Is(err, prm.StatusBadResource) || len(b.Out()) != 3 || strings.Count(err.Error(), "destroy CQ") != 3 {
		t.Errorf("error %v, out %v", err, b.Out())
	}
	// Silence ends the attempt at once.
	f.fail[prm.OpDestroyCQ] = &cmdif.NoAnswerError{Cause: cmdif.FirmwareSilent, Err: cmdif.ErrTimeout}
	before := len(f.ops)
	if err := b.DestroyAll(t.Context()); !errors.Is(err, cmdif.ErrTimeout) || len(f.ops) != before+1 {
		t.Errorf("error %v after %d commands", err, len(f.ops)-before)
	}
	b.Forget()
	if len(b.Out()) != 0 {
		t.Error("not forgotten")
	}
	if err := b.Destroy(t.Context(), object.Object{Kind: object.CQ, Number: 1}); !errors.Is(err, object.ErrUnknown) {
		t.Errorf("error: %v", err)
	}
}

func TestCreationsWithoutAnAnswerAreNamed(t *testing.T) {
	for err, lost := range map[error]int{
		&cmdif.NoAnswerError{Cause: cmdif.FirmwareSilent, Err: cmdif.ErrTimeout}: 1,
		&cmdif.NoAnswerError{Cause: cmdif.NeverIssued, Err: cmdif.ErrTimeout}:    0,
		&cmdif.ProtocolError{}:                           1,
		&prm.CommandError{Status: prm.StatusNoResources}: 0,
		errors.New("no mailboxes"):                       0,
	} {
		f := &firmware{fail: map[prm.Opcode]error{}}
		b := object.NewBook(f)
		for _, k := range kinds {
			f.fail[k.in.Opcode()] = err
			if _, got := b.Create(t.Context(), k.in, k.out); !errors.Is(got, err) {
				t.Errorf("error: %v", got)
			}
		}
		f.fail[prm.OpDestroyCQ] = err
		_ = b.Exec(t.Context(), &prm.DestroyCQIn{}, &prm.DestroyCQOut{})
		if n := len(b.Lost()); n != lost*len(kinds) || len(b.Out()) != 0 {
			t.Errorf("%v: %d lost: %v", err, n, b.Lost())
		}
	}
}

func TestStackUnwindsInReverseAndGoesOn(t *testing.T) {
	var s object.Stack
	var order []int
	for i := range 4 {
		s.Add(fmt.Sprint("undo ", i), func(context.Context) error {
			order = append(order, i)
			if i%2 == 1 {
				return errors.New("refused")
			}
			return nil
		})
	}
	err := s.Unwind(t.Context())
	if !slices.Equal(order, []int{3, 2, 1, 0}) || err == nil || err.Error() != "undo 3: refused\nundo 1: refused" {
		t.Errorf("order %v, error %v", order, err)
	}
	if s.Len() != 0 || s.Unwind(t.Context()) != nil {
		t.Error("unwound twice")
	}
}
