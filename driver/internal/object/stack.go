package object

import (
	"context"
	"errors"
	"fmt"
)

// Stack is a list of undo functions. One goroutine uses it.
type Stack struct{ undos []undo }

type undo struct {
	name string
	f    func(context.Context) error
}

// Add registers how to undo what name names and what has just been done.
func (s *Stack) Add(name string, f func(context.Context) error) {
	s.undos = append(s.undos, undo{name, f})
}

// Len is how many undos are registered.
func (s *Stack) Len() int { return len(s.undos) }

// Unwind runs the undo functions, latest first, and empties the stack. It goes on after errors: each
// undo function decides itself what can still be done on a device that failed or is gone.
func (s *Stack) Unwind(ctx context.Context) error {
	var errs []error
	for len(s.undos) > 0 {
		u := s.undos[len(s.undos)-1]
		s.undos = s.undos[:len(s.undos)-1]
		if err := u.f(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", u.name, err))
		}
	}
	return errors.Join(errs...)
}
