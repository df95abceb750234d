// Package rxorder is experiment E6: the order of receive page allocations over time, while memory is
// fragmented, is not there at all, and is whole again. Time is the experiment's own.
package rxorder
