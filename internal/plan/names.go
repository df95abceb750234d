package plan

import (
	"fmt"
	"slices"
	"strings"

	"cxkit/prm"
)

// number is what selectors are made of.
type number interface {
	~int | ~uint8 | ~uint16 | ~uint32
}

// one converts a value given by name or number; below bounds numbers. Nothing is 0.
func one[T number](key string, value any, named func(string) (T, bool), below int64) (T, error) {
	if value == nil {
		return 0, nil
	}
	switch v := value.(type) {
	case int64:
		if v < 0 || v >= below {
			return 0, fmt.Errorf("%s %d: want 0 to %d", key, v, below-1)
		}
		return T(v), nil
	case string:
		if named != nil {
			if n, ok := named(v); ok {
				return n, nil
			}
			return 0, fmt.Errorf("%s %q: no such name: want %s, or a number", key, v, sample(key))
		}
	}
	return 0, fmt.Errorf("%s %v: want a number", key, value)
}

// sample is names that a key takes.
func sample(key string) string {
	switch key {
	case "opcode":
		return "a command's name as CREATE_CQ"
	case "event":
		return "command, completion, or a name as PAGE_REQUEST"
	case "status":
		return fmt.Sprintf("a name as %q", prm.StatusNoResources)
	case "delivery":
		return fmt.Sprintf("a name as %q", prm.DeliveryTokenError)
	case "module_status":
		return fmt.Sprintf("%v, %v, %v or %v", prm.ModulePlugged, prm.ModuleUnplugged, prm.ModuleError, prm.ModuleDisabled)
	case "module_error":
		return "one of " + strings.Join(moduleErrors(), ", ")
	}
	return "a name"
}

// list converts one value or a list of them.
func list[T number](key string, value any, named func(string) (T, bool), below int64) (all []T, err error) {
	if value == nil {
		return nil, nil
	}
	values, ok := value.([]any)
	if !ok {
		values = []any{value}
	}
	for _, v := range values {
		n, err := one(key, v, named, below)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// plain makes names comparable: case, blanks and what stands in parentheses do not matter.
func plain(name string) string {
	name, _, _ = strings.Cut(name, "(")
	return strings.Map(func(r rune) rune {
		if r == ' ' || r == '-' {
			return '_'
		}
		return r
	}, strings.ToLower(strings.TrimSpace(name)))
}

// named finds the value below n whose text is name.
func named[T interface {
	number
	fmt.Stringer
}](name string, n int) (T, bool) {
	want := plain(name)
	for v := range n {
		if plain(T(v).String()) == want {
			return T(v), true
		}
	}
	return 0, false
}

// opcodeNamed finds a command by its name in the PRM or in mlx5_core's messages.
func opcodeNamed(name string) (prm.Opcode, bool) {
	op, ok := named[prm.Opcode](name, 1<<16)
	return op, ok && !strings.EqualFold(name, "opcode")
}

func eventNamed(name string) (prm.EventType, bool) {
	switch plain(name) {
	case "command":
		return prm.EventCommandCompletion, true
	case "completion":
		return prm.EventCompletion, true
	}
	t, ok := named[prm.EventType](name, 1<<8)
	return t, ok && plain(name) != "eventtype"
}

func statusNamed(name string) (prm.Status, bool) {
	s, ok := named[prm.Status](name, 1<<8)
	return s, ok && plain(name) != "status"
}

func deliveryNamed(name string) (prm.DeliveryStatus, bool) {
	s, ok := named[prm.DeliveryStatus](name, 1<<7)
	return s, ok && plain(name) != "deliverystatus"
}

func moduleStatusNamed(name string) (prm.ModuleStatus, bool) {
	s, ok := named[prm.ModuleStatus](name, 16)
	return s, ok && plain(name) != "modulestatus"
}

// moduleErrors are the texts of error_type of a port module event (Linux events.c).
func moduleErrors() []string {
	return []string{
		"power budget exceeded", "long range for non mlnx cable", "bus stuck", "no eeprom", "enforce part number list",
		"unknown identifier", "high temperature", "bad cable",
	}
}

func moduleErrorNamed(name string) (uint8, bool) {
	i := slices.IndexFunc(moduleErrors(), func(s string) bool { return plain(s) == plain(name) })
	return uint8(max(i, 0)), i >= 0
}
