// Package memory is firmware's book of the host pages it works in: which it has been given, how many it
// wants, and which it gives back. A card needs none of them, but a driver is only right if it keeps the
// same book.
//
// A page costs 8 bytes in a stack, and a share of an entry of a hash table that finds addresses given
// twice: half a byte where the host gives pages that follow each other, 32 bytes where no two of them lie
// within 256 KiB.
package memory
