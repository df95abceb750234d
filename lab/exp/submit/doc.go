// Package submit is experiment E3: who hands a firmware command to the card, an ordered queue per function
// or the caller. Loops refresh statistics, 12 commands a time as ethtool -S does, over several functions
// at once; the queues of all functions share one lock, as Linux's ordered workqueues share a pool's.
package submit
