// Package gro merges received TCP and UDP segments of a flow, by the rules of Linux's generic receive
// offload (net/core/gro.c, net/ipv4/tcp_offload.c, net/ipv4/udp_offload.c, include/net/gro.h of 6.12).
//
// A Merger decides; its caller keeps the frames. For each frame, in order of arrival, Add says whether a
// flow that is held must be delivered before it, and whether the frame is delivered alone or joins a flow.
// The first frame of a flow gives the merged packet its headers; of the others the payload is used. Finish
// then completes the headers: lengths, the IPv4 checksum, and as TCP or UDP checksum the sum over the
// pseudo-header, not inverted, as Linux leaves it (CHECKSUM_PARTIAL): every segment's own was right.
//
// What is different from Linux: a packet has at most MaxSegments segments, where TCP packets of Linux are
// bounded by 64 KiB alone and UDP packets by 64; IPv6 extension headers are not looked through.
package gro
