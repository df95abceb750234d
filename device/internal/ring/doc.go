// Package ring reaches buffers that a host described with a list of page addresses: the rings of EQs,
// CQs, RQs and SQs.
package ring
