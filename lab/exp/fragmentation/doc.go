// Package fragmentation compares layouts of receive buffers in memory of which a share of the large blocks
// is gone (reports R47: "anything relying on order-3 pages being available is a lie").
package fragmentation
