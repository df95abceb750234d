package trace

// Log records for one side of one function. All methods may be called from any goroutine and on nil,
// where they do nothing. Byte slices are copied before a method returns; strings are kept, so a caller
// that would have to format one asks On first.
type Log struct {
	r        *Recorder
	kinds    Kinds
	side     Side
	function string
}

// On tells whether anything is recorded: ask it before formatting a text.
func (l *Log) On() bool { return l != nil }

// Has tells whether records of kind k are kept.
func (l *Log) Has(k Kind) bool { return l != nil && l.kinds.Has(k) }

// CommandIn records a command as it is issued: in is the whole input.
func (l *Log) CommandIn(slot int, opcode uint16, in []byte, why string) {
	if l != nil {
		l.commandIn(slot, opcode, in, why)
	}
}

func (l *Log) commandIn(slot int, opcode uint16, in []byte, why string) {
	if l.kinds.Has(CommandIn) {
		rec := l.record(CommandIn)
		rec.Slot, rec.Opcode, rec.Text = slot, opcode, why
		l.r.add(&rec, in)
	}
}

// CommandOut records a command's end: out is the whole output, whose first bytes hold status and
// syndrome; delivery is the slot's delivery status; why says what a failure's reason was, if known.
func (l *Log) CommandOut(slot int, opcode uint16, out []byte, delivery uint8, why string) {
	if l != nil {
		l.commandOut(slot, opcode, out, delivery, why)
	}
}

func (l *Log) commandOut(slot int, opcode uint16, out []byte, delivery uint8, why string) {
	if l.kinds.Has(CommandOut) {
		rec := l.record(CommandOut)
		rec.Slot, rec.Opcode, rec.Delivery, rec.Text = slot, opcode, delivery, why
		l.r.add(&rec, out)
	}
}

// Event records an event queue entry, written (card) or taken (driver). eqe is the whole 64 bytes.
func (l *Log) Event(eqn uint32, eqe []byte, why string) {
	if l != nil {
		l.event(eqn, eqe, why)
	}
}

func (l *Log) event(eqn uint32, eqe []byte, why string) {
	if l.kinds.Has(Event) {
		rec := l.record(Event)
		rec.Number, rec.Text = eqn, why
		l.r.add(&rec, eqe)
	}
}

// Doorbell records a counter or mask handed over; number is the queue's, 0 for BellCommand.
func (l *Log) Doorbell(bell Bell, number, value uint32) {
	if l != nil && l.kinds.Has(Doorbell) {
		l.doorbell(bell, number, value)
	}
}

func (l *Log) doorbell(bell Bell, number, value uint32) {
	rec := l.record(Doorbell)
	rec.Bell, rec.Number, rec.Value = bell, number, uint64(value)
	l.r.add(&rec, nil)
}

// RegisterWrite records a write of size bytes to a BAR.
func (l *Log) RegisterWrite(bar int, off uint64, size int, v uint64) {
	if l != nil {
		l.registerWrite(bar, off, size, v)
	}
}

func (l *Log) registerWrite(bar int, off uint64, size int, v uint64) {
	if l.kinds.Has(Register) {
		rec := l.record(Register)
		rec.Number, rec.Offset, rec.Size, rec.Value = uint32(bar), off, size, v
		l.r.add(&rec, nil)
	}
}

// Note records a remark.
func (l *Log) Note(text string) {
	if l != nil {
		l.note(text)
	}
}

func (l *Log) note(text string) {
	if l.kinds.Has(Note) {
		rec := l.record(Note)
		rec.Text = text
		l.r.add(&rec, nil)
	}
}

func (l *Log) record(k Kind) Record {
	return Record{Side: l.side, Function: l.function, Kind: k}
}
