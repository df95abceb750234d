package study

import (
	"strconv"
	"time"
)

// Grouped writes a number with a comma between thousands.
func Grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Round3 rounds a time to three digits.
func Round3(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 || d/unit <= -1000 {
		unit *= 10
	}
	return d.Round(unit)
}
