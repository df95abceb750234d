package rxpages

import (
	"slices"
	"time"
)

// E7: what it costs to touch one record of 64 bytes for each page of a packet that is freed (Linux struct page),
// in a table of records that lies on small or on huge pages.

// record is the bytes of a record.
const record = 64

// rounds is how often a row's pages are touched, at other records each time.
const rounds = 15

// touch writes to the records of pages and returns how long that took.
func touch(table []byte, pages []uint32, round int) time.Duration {
	records := uint64(len(table) / record)
	begin := time.Now()
	for _, page := range pages {
		r := (uint64(page) + uint64(round)<<32) * 0x9e3779b97f4a7c15 >> 16 % records
		table[r*record]++
	}
	return time.Since(begin)
}

// touchAll measures rows on both tables in turn and sets their medians.
func touchAll(small, huge []byte, rows []outcome) {
	for i := range rows {
		var times [2][]time.Duration
		for round := range rounds {
			for k, table := range [][]byte{small, huge} {
				if len(table) > 0 {
					times[k] = append(times[k], touch(table, rows[i].touched, round*len(rows)+i)/time.Duration(max(rows[i].packets, 1)))
				}
			}
		}
		for k, into := range []*time.Duration{&rows[i].touchSmall, &rows[i].touchHuge} {
			if slices.Sort(times[k]); len(times[k]) > 0 {
				*into = times[k][len(times[k])/2]
			}
		}
	}
}

// fill makes memory of what was only promised.
func fill(b []byte) {
	for i := 0; i < len(b); i += record {
		b[i] = 1
	}
}
