package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"
)

// Table is rows of figures under named columns.
type Table struct {
	// Columns are names with their unit: "p99 ns".
	Columns []string `json:"columns"`
	// Rows have a string, integer, float64 or time.Duration for each column.
	Rows [][]any `json:"rows"`
}

// Add appends a row. It panics if the row does not fit the columns.
func (t *Table) Add(row ...any) {
	if len(row) != len(t.Columns) {
		panic(fmt.Sprintf("report: %d values for %d columns", len(row), len(t.Columns)))
	}
	t.Rows = append(t.Rows, row)
}

// Float is the value of a column in a row as a number; durations are in nanoseconds. It is 0 for text.
func (t *Table) Float(row int, column string) float64 {
	for i, c := range t.Columns {
		if c == column {
			return number(t.Rows[row][i])
		}
	}
	return 0
}

func number(v any) float64 {
	switch v := v.(type) {
	case int:
		return float64(v)
	case int64:
		return float64(v)
	case uint64:
		return float64(v)
	case float64:
		return v
	case time.Duration:
		return float64(v)
	}
	return 0
}

// text is a value for people.
func text(v any) string {
	switch v := v.(type) {
	case float64:
		return strconv.FormatFloat(v, 'g', 4, 64)
	case time.Duration:
		return round(v).String()
	}
	return fmt.Sprint(v)
}

// round keeps about three digits of a duration.
func round(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d.Abs()/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}

// WriteText prints the table in columns.
func (t Table) WriteText(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, c := range t.Columns {
		fmt.Fprintf(tw, "%s\t", c)
	}
	fmt.Fprintln(tw)
	for _, row := range t.Rows {
		for _, v := range row {
			fmt.Fprintf(tw, "%s\t", text(v))
		}
		fmt.Fprintln(tw)
	}
	return tw.Flush()
}

// WriteCSV writes the table with all digits; durations are in nanoseconds.
func (t Table) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	if err := c.Write(t.Columns); err != nil {
		return err
	}
	for _, row := range t.Rows {
		fields := make([]string, len(row))
		for i, v := range row {
			if d, ok := v.(time.Duration); ok {
				v = int64(d)
			}
			fields[i] = fmt.Sprint(v)
		}
		if err := c.Write(fields); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}
