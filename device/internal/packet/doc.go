// Package packet reads and completes frames for the card: one bounded pass over the headers, the
// checksums of receive and transmit, and the hashes of receive side scaling.
//
// Parse fills a Headers, which is both what a completion needs and the key that flow tables match on, in
// the layout of fte_match_param (reference 01a): a group's mask is applied to it word by word. The zero
// Headers may be filled again and again; nothing here allocates, and nothing reads outside the frame.
//
// A Headers and the frame it was filled from belong to the card's engine.
package packet
