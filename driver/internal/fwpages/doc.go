// Package fwpages lends memory to firmware and takes it back.
//
// Firmware borrows host memory in pages of 4096 bytes, whatever the host's page size: at boot, at
// initialization, and whenever it asks by a page-request event. It gives pages back on request
// (MANAGE_PAGES). A ledger per function knows each page that is out; it holds bits, not pointers.
//
// Requests that arrive as events are served by a worker of their own, whose commands have a slot of their
// own: a command that holds a general slot until firmware has been given pages can't block them.
//
// A page leaves the ledger's "given" side only when firmware returned its address, refused it, or was
// never told of it. A page whose command got no answer stays given for good: firmware may write it.
// Facts: Linux pagealloc.c; the limit of 50,000 pages a command: 501c3005f031.
package fwpages
