package plan

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cxkit/device/fault"
)

// FromArguments makes the text of a plan with one fault: its kind, and KEY=VALUE for each key of a fault.
// A comma makes a list: opcode=CREATE_CQ,CREATE_SQ. The keys of a health buffer are given as they are:
// synd=0x8 severity=1.
func FromArguments(kind string, arguments []string) (string, error) {
	if _, ok := kindNamed(kind); !ok {
		return "", fmt.Errorf("kind %q: want one of %s", kind, kinds())
	}
	var fields, health strings.Builder
	fmt.Fprintf(&fields, "[[fault]]\nkind = %q\n", kind)
	for _, arg := range arguments {
		key, value, ok := strings.Cut(arg, "=")
		if !ok || key == "" || !bare(key) {
			return "", fmt.Errorf("%q: want KEY=VALUE", arg)
		}
		to := &fields
		if slices.Contains(healthKeys(), key) {
			to = &health
		}
		fmt.Fprintf(to, "%s = %s\n", key, literal(key, value))
	}
	if health.Len() > 0 {
		fields.WriteString("[fault.health]\n" + health.String())
	}
	text := fields.String()
	if _, err := Parse("", []byte(text), 0); err != nil {
		return "", unplaced(kind, err)
	}
	return text, nil
}

// unplaced is a mistake in a plan that was made of arguments, without its place in the plan.
func unplaced(kind string, err error) error {
	place := regexp.MustCompile(`^(:[0-9]+)+: (fault 1: |toml: )?|fault\.(health\.)?`)
	var all []string
	for line := range strings.Lines(err.Error()) {
		line = place.ReplaceAllString(strings.TrimSpace(line), "")
		if !strings.HasPrefix(line, kind+": ") {
			line = kind + ": " + line
		}
		all = append(all, line)
	}
	return errors.New(strings.Join(all, "; "))
}

// bare reports whether key needs no quotes.
func bare(key string) bool {
	return !strings.ContainsFunc(key, func(r rune) bool {
		return (r < 'a' || r > 'z') && r != '_'
	})
}

// literal writes a value as TOML.
func literal(key, value string) string {
	if strings.Contains(value, ",") || key == "assert_var" {
		var all []string
		for v := range strings.SplitSeq(value, ",") {
			all = append(all, literal("", strings.TrimSpace(v)))
		}
		return "[" + strings.Join(all, ", ") + "]"
	}
	if value == "true" || value == "false" {
		return value
	}
	if n, err := strconv.ParseInt(value, 0, 64); err == nil {
		return strconv.FormatInt(n, 10)
	}
	if x, err := strconv.ParseFloat(value, 64); err == nil && key == "probability" {
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	return strconv.Quote(value)
}

// healthKeys are the keys of a health buffer.
func healthKeys() []string {
	return []string{
		"assert_var", "assert_exit_ptr", "assert_callra", "time", "fw_ver", "hw_id", "rfr", "severity", "irisc_index", "synd", "ext_synd",
	}
}

func kindNamed(name string) (fault.Kind, bool) {
	k := fault.Kind(name)
	return k, slices.Contains(fault.Kinds(), k)
}

// kinds lists all kinds for an error.
func kinds() string {
	var all []string
	for _, k := range fault.Kinds() {
		all = append(all, string(k))
	}
	return strings.Join(all, ", ")
}
