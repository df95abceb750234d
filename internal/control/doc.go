// Package control is the local control socket of a running card: how another process on the same
// machine asks a card that runs in `cxkit run` for its state, and changes it.
//
// A server listens on a unix socket in a folder of the user's own (Dir), mode 0600, one socket a card,
// named after the process. A client names the socket, or takes the only one (Find). Sockets whose
// process has died are recognised and removed.
//
// The protocol is lines of JSON, one request and one reply each:
//
//	{"v":1,"op":"stats"}
//	{"v":1,"result":{"time":"...","counters":[{"name":"rx_packets","value":3}]}}
//	{"v":1,"error":"no operation \"stat\" in version 1"}
//
// Clients are not trusted: requests and replies are bounded in size, connections in number, and each
// request, each idle connection and each reply that nobody reads has a deadline. A connection is served
// by a goroutine of the server, which Close ends.
package control
