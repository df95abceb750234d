// Package irq is an interrupt vector as an eventfd: how transports whose card is outside of this process
// hear of interrupts.
package irq
