// Package mkey resolves memory keys: it turns what a work queue entry says (key, address, length) into
// views of the host's memory, after checking the key's variant, protection domain, rights and bounds
// (reference 03 §8, 01a MKC).
package mkey
