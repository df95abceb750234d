// Package stats is experiment E2: how many firmware commands readers of interfaces' counters cost. A reader in
// the style of /proc/net/dev goes round a card's physical function, its virtual functions and, in switchdev
// mode, their representors, so many times a second. Before, each reading asked for a refresh; after, refreshes
// are at least an interval apart.
package stats
