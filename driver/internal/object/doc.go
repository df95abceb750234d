// Package object creates and destroys what lives in firmware, and keeps the books of what is out.
//
// A Book issues the create command, notes the number firmware gave, and later issues the matching
// destroy command. What is still out at teardown is destroyed in reverse order of creation, and what
// firmware will not take back is named, never forgotten.
//
// A Stack holds undo functions next to what they undo: bring-up pushes, teardown pops.
package object
