// Package scrape is an experiment on what a monitoring system gets of a card with many queues: how many samples
// a scrape has, how long it takes and how many firmware commands it waits for, with the counters of single
// queues and without.
package scrape
