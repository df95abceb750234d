package stats

import "strconv"

// RxQueue, TxQueue and Channel are the names of one queue's counters: RxQueue(0, "packets") is
// "rx0_packets". Transmit queue i and receive queue i belong to channel i.
func RxQueue(i int, what string) string { return "rx" + strconv.Itoa(i) + "_" + what }
func TxQueue(i int, what string) string { return "tx" + strconv.Itoa(i) + "_" + what }
func Channel(i int, what string) string { return "ch" + strconv.Itoa(i) + "_" + what }

// RxPriority and TxPriority are the names of the port's counters of one priority, 0 to 7:
// RxPriority(0, "bytes") is "rx_prio0_bytes".
func RxPriority(p int, what string) string { return "rx_prio" + strconv.Itoa(p) + "_" + what }
func TxPriority(p int, what string) string { return "tx_prio" + strconv.Itoa(p) + "_" + what }
