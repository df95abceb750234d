// Package object keeps the numbered objects of a function: tables that find a stale number, and counts
// of who uses what, so that an object in use can't be destroyed.
//
// Nothing here locks: the engine owns all objects.
package object
