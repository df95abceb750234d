package study

import (
	"errors"
	"io"
	"os"
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

// Report writes a report into the file out, or to standard output if out is empty.
func Report(out string, write func(io.Writer) error) (err error) {
	if out == "" {
		return write(os.Stdout)
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return write(f)
}
