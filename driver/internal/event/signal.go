package event

// Signal is a flag that a goroutine can wait for: raises coalesce until it is taken.
type Signal struct{ c chan struct{} }

// NewSignal makes a signal that is down.
func NewSignal() *Signal { return &Signal{c: make(chan struct{}, 1)} }

// Raise sets the signal. It never blocks; it is made to be an event handler.
func (s *Signal) Raise() {
	select {
	case s.c <- struct{}{}:
	default:
	}
}

// C delivers one value for one or more raises since the last.
func (s *Signal) C() <-chan struct{} { return s.c }

// Lower takes a raise that nobody has received, if there is one.
func (s *Signal) Lower() {
	select {
	case <-s.c:
	default:
	}
}
