// Package event is the event queues of a function and who is told what.
//
// One goroutine per MSI-X vector waits for interrupts, drains the event queues of that vector and calls
// handlers. Handlers run on that goroutine: they never block and never execute commands. Serving a
// firmware page request needs a command whose completion arrives on the same vector, so a handler that
// waits for a command waits for itself. Handlers set a Signal, store a value, or hand work to a worker.
//
// Vector 0 serves the command, asynchronous and page-request queues, vectors 1.. one completion queue
// each (reference: Linux eq.c). A drain takes at most 128 entries and then arms: the device interrupts
// again at once when entries are left.
//
// Entries are copied before they are looked at. Types, numbers and owners that make no sense are counted
// and skipped: the device is not trusted.
package event
