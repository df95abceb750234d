// Package report prints tables, as text and as CSV, and draws plots as SVG.
//
// The plots are a page of code rather than a plotting library: groups of bars on a logarithmic scale are
// all that experiments need, and a library brings fonts, rasterisers and a dozen modules for it.
package report
