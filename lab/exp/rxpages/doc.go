// Package rxpages is experiment E5, with E7: on how many pages a merged packet lies, how many pages a ring
// keeps, and what it costs to free a packet, by the layout of receive buffers on pages.
package rxpages
