// Package sock carries vfio-user messages over a Unix stream socket: many messages a system call, file
// descriptors with the message they belong to, and no allocation for messages without them.
package sock
