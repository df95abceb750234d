// Package flr is the experiment on the pages of functions that are reset: firmware says in one event that
// it has forgotten all of them (Linux c6168161f693), or gives them back page by page, one command for each
// batch. Measure does both with the same functions.
package flr
