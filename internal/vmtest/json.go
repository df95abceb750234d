package vmtest

import "encoding/json"

// quoteJSON quotes a string for JSON.
func quoteJSON(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // no string is refused
	}
	return string(b)
}
