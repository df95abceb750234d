package object

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"cxkit/driver/internal/cmdif"
)

// Book runs commands and knows which objects they have made that are still out. All methods may be called from any
// goroutine; the object itself is used as its own rules say.
type Book struct {
	exec cmdif.Executor

	mu   sync.Mutex // guards all below
	out  map[Object]uint64
	seq  uint64
	lost []string
}

// NewBook makes an empty book whose commands go to exec.
func NewBook(exec cmdif.Executor) *Book {
	return &Book{exec: exec, out: make(map[Object]uint64)}
}

// ErrUnknown: the object is not in the book (never created, or destroyed already).
var ErrUnknown = errors.New("no such object")

// Exec runs a command like the executor below, and books what it creates or destroys: commands that
// bypass the functions of this package are booked too. What a device that is down did not destroy itself
// stays in the book until Forget, although the command counts as done.
func (b *Book) Exec(ctx context.Context, in cmdif.In, out cmdif.Out) error {
	outcome, err := b.run(ctx, in, out)
	if err != nil {
		if creates(in) && cmdif.Issued(err) {
			// Firmware may have made, or may yet make, an object whose number nobody knows.
			b.mu.Lock()
			b.lost = append(b.lost, fmt.Sprintf("what %v made", in.Opcode()))
			b.mu.Unlock()
		}
		return err
	}
	if outcome == cmdif.Emulated {
		return nil
	}
	if o, ok := destroyed(in); ok {
		b.mu.Lock()
		delete(b.out, o)
		b.mu.Unlock()
		return nil
	}
	o, ok := created(in, out)
	if !ok {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, twice := b.out[o]; twice {
		return &cmdif.ProtocolError{
			Command: cmdif.Command{Op: in.Opcode()}, What: fmt.Sprintf("%v is out already", o),
		}
	}
	b.seq++
	b.out[o] = b.seq
	return nil
}

// run tells who answered, if the executor knows.
func (b *Book) run(ctx context.Context, in cmdif.In, out cmdif.Out) (cmdif.Outcome, error) {
	if r, ok := b.exec.(interface {
		Run(context.Context, cmdif.In, cmdif.Out) (cmdif.Outcome, error)
	}); ok {
		return r.Run(ctx, in, out)
	}
	return cmdif.Answered, b.exec.Exec(ctx, in, out)
}

// Has tells whether the object is in the book: the device has it, or may have it.
func (b *Book) Has(o Object) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.out[o]
	return ok
}

// Destroy ends the object. When firmware refuses, or does not answer, the object stays in the book. So it
// does, without an error, when the device is down: memory that the object can reach is not free as long
// as the book Has it.
func (b *Book) Destroy(ctx context.Context, o Object) error {
	b.mu.Lock()
	_, known := b.out[o]
	b.mu.Unlock()
	if !known {
		return fmt.Errorf("destroy %v: %w", o, ErrUnknown)
	}
	in, out := o.destroy()
	if err := b.Exec(ctx, in, out); err != nil {
		return fmt.Errorf("destroy %v: %w", o, err)
	}
	return nil
}

// DestroyAll ends what is out, latest first. It goes on after a refusal and stops when the command
// interface gives no answers, as every further command would cost its whole deadline too.
func (b *Book) DestroyAll(ctx context.Context) error {
	var errs []error
	for _, o := range slices.Backward(b.Out()) {
		err := b.Destroy(ctx, o)
		if err == nil || errors.Is(err, ErrUnknown) {
			continue
		}
		errs = append(errs, err)
		var silent *cmdif.NoAnswerError
		if errors.As(err, &silent) {
			break
		}
	}
	return errors.Join(errs...)
}

// Out lists the objects that are out in order of creation.
func (b *Book) Out() []Object {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make([]Object, 0, len(b.out))
	for o := range b.out {
		list = append(list, o)
	}
	slices.SortFunc(list, func(x, y Object) int { return cmp.Compare(b.out[x], b.out[y]) })
	return list
}

// Lost lists creations that ended without an answer: firmware may hold an object that has no number here.
func (b *Book) Lost() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.lost)
}

// Forget empties the book: the function was reset, nothing of it lives.
func (b *Book) Forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.out)
	b.lost = nil
}
