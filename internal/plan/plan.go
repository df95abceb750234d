package plan

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"cxkit/device/fault"
	"cxkit/prm"
)

// maxSize bounds a file, in bytes.
const maxSize = 1 << 20

// Load reads the plan in a file. A plan without a seed gets defaultSeed.
func Load(path string, defaultSeed uint64) (fault.Plan, error) {
	text, err := Read(path)
	if err != nil {
		return fault.Plan{}, fmt.Errorf("fault plan: %w", err)
	}
	return Parse(path, text, defaultSeed)
}

// Read returns the text of a plan's file, which is longer than Parse takes at most by a byte.
func Read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxSize+1))
}

// Parse reads a plan; name is what errors call the text.
func Parse(name string, text []byte, defaultSeed uint64) (fault.Plan, error) {
	p := fault.Plan{Seed: defaultSeed}
	if len(text) > maxSize {
		return p, fmt.Errorf("%s: longer than %d bytes", name, maxSize)
	}
	var f file
	d := toml.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		var unit *unitError
		if errors.As(err, &unit) {
			return p, unit.located(name, text)
		}
		return p, located(name, err)
	}
	if f.Seed != nil {
		p.Seed = *f.Seed
	}
	lines := faultLines(text)
	var all []error
	for i := range f.Fault {
		one, err := f.Fault[i].fault()
		if err == nil { // else a value may be missing because it could not be read
			err = one.Check()
		}
		if err != nil {
			line := 0
			if i < len(lines) {
				line = lines[i]
			}
			all = append(all, fmt.Errorf("%s:%d: fault %d: %w", name, line, i+1, oneLine(err)))
		}
		p.Faults = append(p.Faults, one)
	}
	if err := f.latency(&p); err != nil {
		all = append(all, fmt.Errorf("%s: %w", name, err))
	}
	return p, errors.Join(all...)
}

// located names file and line of what the decoder found wrong.
func located(name string, err error) error {
	var unknown *toml.StrictMissingError
	if errors.As(err, &unknown) {
		var all []error
		for _, e := range unknown.Errors {
			line, column := e.Position()
			all = append(all, fmt.Errorf("%s:%d:%d: no key %s", name, line, column, strings.Join(e.Key(), ".")))
		}
		return errors.Join(all...)
	}
	var bad *toml.DecodeError
	if errors.As(err, &bad) {
		line, column := bad.Position()
		return fmt.Errorf("%s:%d:%d: %w", name, line, column, wanted(bad))
	}
	return fmt.Errorf("%s: %w", name, err)
}

// wanted says what a key's value is to be, where the decoder speaks of Go's types.
func wanted(bad *toml.DecodeError) error {
	key := bad.Key()
	if len(key) == 0 {
		return bad
	}
	last := key[len(key)-1]
	for _, of := range []reflect.Type{reflect.TypeFor[entry](), reflect.TypeFor[health](), reflect.TypeFor[file]()} {
		for i := range of.NumField() {
			f := of.Field(i)
			if f.Tag.Get("toml") != last {
				continue
			}
			if want := wants(f.Type); want != "" && !strings.Contains(bad.Error(), "already defined") {
				return fmt.Errorf("%s: want %s", strings.Join(key, "."), want)
			}
		}
	}
	return bad
}

// wants describes the values of a field, "" if there is nothing to say.
func wants(t reflect.Type) string {
	if t == reflect.TypeFor[duration]() {
		return aTime
	}
	switch t.Kind() {
	case reflect.Pointer:
		return wants(t.Elem())
	case reflect.Slice:
		return "a list of numbers"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number from 0 to 1"
	case reflect.String:
		return "a text"
	case reflect.Int:
		return "a number"
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf("a number from 0 to %d", uint64(math.MaxUint64)>>(64-t.Bits()))
	}
	return ""
}

// oneLine is an error whose text is in one line.
func oneLine(err error) error {
	if text := err.Error(); strings.Contains(text, "\n") {
		return errors.New(strings.ReplaceAll(text, "\n", "; "))
	}
	return err
}

// faultLines finds the lines that the faults of a text begin with.
func faultLines(text []byte) (lines []int) {
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		if s := strings.ReplaceAll(line, " ", ""); strings.HasPrefix(s, "[[fault]]") {
			lines = append(lines, n)
		}
	}
	return lines
}

// file is a plan as it is written.
type file struct {
	About   string         `toml:"about"` // for readers
	Seed    *uint64        `toml:"seed"`
	Latency map[string]any `toml:"latency"`
	Fault   []entry        `toml:"fault"`
}

// duration is a time as Go writes it: "1.5ms". It is no number, so that a number without a unit is a mistake.
type duration struct{ time.Duration }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return &unitError{string(text)}
	}
	d.Duration = v
	return nil
}

// unitError is a time that is none. The decoder does not say where it stands.
type unitError struct{ value string }

func (e *unitError) Error() string { return fmt.Sprintf("%q: want %s", e.value, aTime) }

const aTime = `a time, as "1.5ms" or "2s"`

// located finds the key that has the value.
func (e *unitError) located(name string, text []byte) error {
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		key, value, _ := strings.Cut(line, "=")
		value, _, _ = strings.Cut(value, "#")
		key = strings.TrimSpace(key)
		if slices.Contains([]string{"after", "for", "delay"}, key) && strings.Trim(value, " \t\r\n\"'") == e.value {
			return fmt.Errorf("%s:%d: %s %w", name, n, key, e)
		}
	}
	return fmt.Errorf("%s: %w", name, e)
}

// entry is a fault as it is written. The fields of type any take one value or a list, by name or number.
type entry struct {
	Kind        string   `toml:"kind"`
	Name        string   `toml:"name"`
	After       duration `toml:"after"`
	For         duration `toml:"for"`
	Skip        int      `toml:"skip"`
	Times       int      `toml:"times"`
	Probability float64  `toml:"probability"`

	Function  any    `toml:"function"`
	Opcode    any    `toml:"opcode"`
	Slot      any    `toml:"slot"`
	Event     any    `toml:"event"`
	EQ        any    `toml:"eq"`
	Vector    any    `toml:"vector"`
	Queue     any    `toml:"queue"`
	Doorbell  string `toml:"doorbell"`
	Direction string `toml:"direction"`

	Delay        duration `toml:"delay"`
	To           int      `toml:"to"`
	Status       any      `toml:"status"`
	Syndrome     uint32   `toml:"syndrome"`
	Delivery     any      `toml:"delivery"`
	Bytes        int      `toml:"bytes"`
	Health       *health  `toml:"health"`
	NoLink       bool     `toml:"no_link"`
	ModuleStatus any      `toml:"module_status"`
	ModuleError  any      `toml:"module_error"`
	Watts        int      `toml:"watts"`
	Pages        int      `toml:"pages"`
	What         string   `toml:"what"`
	Count        int      `toml:"count"`
}

// fault converts e; everything that is wrong is reported.
func (e *entry) fault() (fault.Fault, error) {
	f := fault.Fault{
		Kind: fault.Kind(e.Kind), Name: e.Name,
		After: e.After.Duration, For: e.For.Duration, Skip: e.Skip, Times: e.Times, Probability: e.Probability,
		Doorbell: fault.Doorbell(e.Doorbell), Direction: fault.Direction(e.Direction),
		Delay: e.Delay.Duration, To: e.To, Syndrome: e.Syndrome, Bytes: e.Bytes, NoLink: e.NoLink, Watts: e.Watts, Pages: e.Pages,
		What: fault.LineError(e.What), Count: e.Count,
	}
	var all [10]error
	f.Functions, all[0] = list[int]("function", e.Function, nil, 1<<16)
	f.Opcodes, all[1] = list("opcode", e.Opcode, opcodeNamed, 1<<16)
	f.Slots, all[2] = list[int]("slot", e.Slot, nil, 32)
	f.Events, all[3] = list("event", e.Event, eventNamed, 1<<8)
	f.EQs, all[4] = list[uint8]("eq", e.EQ, nil, 1<<8)
	f.Vectors, all[5] = list[int]("vector", e.Vector, nil, 1<<11)
	f.Queues, all[6] = list[uint32]("queue", e.Queue, nil, 1<<24)
	f.Status, all[7] = one("status", e.Status, statusNamed, 1<<8)
	f.Delivery, all[8] = one("delivery", e.Delivery, deliveryNamed, 1<<8)
	f.ModuleStatus, all[9] = one("module_status", e.ModuleStatus, moduleStatusNamed, 16)
	err := errors.Join(all[:]...)
	moduleError, e2 := one("module_error", e.ModuleError, moduleErrorNamed, 16)
	f.ModuleError = moduleError
	if e.Health != nil {
		f.Health = e.Health.buffer()
	}
	return f, errors.Join(err, e2)
}

// health is a health buffer as it is written, with the names of Linux's health.c.
type health struct {
	AssertVar     []uint32 `toml:"assert_var"`
	AssertExitPtr uint32   `toml:"assert_exit_ptr"`
	AssertCallra  uint32   `toml:"assert_callra"`
	Time          uint32   `toml:"time"`
	FWVer         uint32   `toml:"fw_ver"`
	HWID          uint32   `toml:"hw_id"`
	RFR           bool     `toml:"rfr"`
	Severity      uint8    `toml:"severity"`
	IRISC         uint8    `toml:"irisc_index"`
	Synd          uint8    `toml:"synd"`
	ExtSynd       uint16   `toml:"ext_synd"`
}

func (h *health) buffer() *fault.HealthBuffer {
	b := &fault.HealthBuffer{
		AssertExit: h.AssertExitPtr, AssertCallra: h.AssertCallra, Time: h.Time, FirmwareVersion: h.FWVer, HardwareID: h.HWID,
		ResetRequest: h.RFR, Severity: h.Severity, IRISC: h.IRISC, Syndrome: h.Synd, ExtSyndrome: h.ExtSynd,
	}
	copy(b.AssertVar[:], h.AssertVar)
	return b
}

// latency converts the table of latencies into p.
func (f *file) latency(p *fault.Plan) error {
	var all []error
	for name, value := range f.Latency {
		l, err := latencyOf(value)
		if err == nil {
			err = l.Check()
		}
		if err != nil {
			all = append(all, fmt.Errorf("latency of %s: %w", name, err))
			continue
		}
		if strings.EqualFold(name, "other") {
			p.Other = &l
			continue
		}
		op, ok := opcodeNamed(name)
		if !ok {
			all = append(all, fmt.Errorf("latency of %s: no such command", name))
			continue
		}
		if p.Latency == nil {
			p.Latency = make(map[prm.Opcode]fault.Latency)
		}
		if _, twice := p.Latency[op]; twice {
			all = append(all, fmt.Errorf("latency of %s is given twice", name))
		}
		p.Latency[op] = l
	}
	return errors.Join(all...)
}

// latencyOf converts one distribution: a duration, or a table of them.
func latencyOf(value any) (l fault.Latency, err error) {
	switch v := value.(type) {
	case string:
		l.Min, err = time.ParseDuration(v)
		return l, err
	case map[string]any:
		fields := map[string]*time.Duration{
			"min": &l.Min, "max": &l.Max, "mean": &l.Mean, "deviation": &l.Deviation, "median": &l.Median, "p99": &l.P99,
		}
		for key, value := range v {
			field, ok := fields[key]
			text, isText := value.(string)
			if !ok || !isText {
				return l, fmt.Errorf("no key %s with a value like %v: want min, max, mean, deviation, median, p99 with a duration like \"1ms\"", key, value)
			}
			if *field, err = time.ParseDuration(text); err != nil {
				return l, fmt.Errorf("%s: %w", key, err)
			}
		}
		return l, nil
	}
	return l, fmt.Errorf("%v: want a duration like \"1ms\", or a table", value)
}
