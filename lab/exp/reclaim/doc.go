// Package reclaim is the experiment on bounded reclaim of firmware pages (E1): firmware that has been lent
// millions of pages offers all of them back, and the driver takes them, with and without a limit to what
// one command takes (Linux 501c3005f031), and with a mailbox pool that searches a list or finds blocks in
// constant time (Linux before and since v6.4).
//
// Measure runs one setting and counts: the mailboxes of a command, the rounds, the time of each free, the
// whole time, and how long the page worker keeps a processor that is not preempted from another task.
// Check holds a result against what the kernel thread says.
//
// Counts are exact; times are this machine's, and only their ratios mean something.
package reclaim
