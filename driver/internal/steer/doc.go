// Package steer decides which frames reach the receive queues, with the tables that mlx5e uses (reference
// 03 §9; Linux en_fs.c, fs_ttc.c):
//
//	root ─> VLAN ── untagged, VLANs wanted, or any ──> L2 ── addresses wanted, or any ──> TTC ── by IP version
//	                                                                                      and protocol ──> TIRs
//
// Flows, once there are some, come before VLAN: a table for each priority in use, each leading to the next.
//
// What no entry matches is dropped by the card, which counts it (rx_steer_missed_packets).
//
// Changes add entries before they remove any, so that frames wanted before and after a change are never
// lost. A Steering has one user at a time.
package steer
