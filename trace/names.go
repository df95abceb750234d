package trace

import (
	"strings"

	"cxkit/prm"
)

// opcodeName names a command as Linux does.
func opcodeName(op uint16) string {
	return known(prm.Opcode(op).String(), "unknown command opcode")
}

// eventName names an event type.
func eventName(t uint8) string { return known(prm.EventType(t).String(), "unknown") }

// known replaces a text that repeats the number, which follows in parentheses anyway.
func known(name, unknown string) string {
	if strings.Contains(name, "(") {
		return unknown
	}
	return name
}
