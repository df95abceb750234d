// Command agent is what tests run in a guest beside the shell: transfers over TCP that check every byte,
// and measurements. Tests build it without cgo, so that it needs nothing of the guest but its kernel.
//
//	agent serve ADDRESS                  serve transfers and echoes, and say "serving"
//	agent transfer ADDRESS BYTES         send and receive so much, and check it
//	agent stream ADDRESS BYTES           the same without a look at them
//	agent echo ADDRESS COUNT SIZE        round trips of datagrams
//	agent blast ADDRESS DURATION SIZE    datagrams one way, as fast as they go
//	agent iperf FILE [settled]           judge what iperf3 -J of a test in both directions has left
//	agent registers RESOURCE             time accesses to a BAR, given as a file of sysfs
//	agent file PATH COUNT                time reads of a file
//	agent xdp INTERFACE VERDICT          drop, pass or tx of all frames until its input ends; say "attached"
//	agent xsk INTERFACE QUEUE COUNT MODE echo datagrams of a queue by AF_XDP, mode zero or copy; say "attached"
//	agent as UID COMMAND...              run a command as a user without rights
//
// Results are lines of "name value unit".
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("arguments %q: see the source", args)
	}
	address := args[1]
	number := func(i int) (int, error) {
		if i >= len(args) {
			return 0, fmt.Errorf("%s: argument %d is missing", args[0], i)
		}
		return strconv.Atoi(args[i])
	}
	switch args[0] {
	case "serve":
		return serve(address)
	case "transfer", "stream":
		n, err := number(2)
		if err != nil {
			return err
		}
		if args[0] == "stream" {
			return transfer(address, int64(n), serverDiscards, serverFills)
		}
		return transfer(address, int64(n), serverReceives, serverSends)
	case "echo", "blast":
		size, err := number(3)
		if err != nil {
			return err
		}
		if args[0] == "echo" {
			n, err := number(2)
			if err != nil {
				return err
			}
			return echo(address, n, size)
		}
		d, err := time.ParseDuration(args[2])
		if err != nil {
			return err
		}
		return blast(address, d, size)
	case "xdp":
		if len(args) < 3 {
			return fmt.Errorf("xdp: a verdict is missing")
		}
		return xdp(address, args[2])
	case "xsk":
		queue, err := number(2)
		if err != nil {
			return err
		}
		count, err := number(3)
		if err != nil {
			return err
		}
		if len(args) < 5 {
			return fmt.Errorf("xsk: a mode is missing")
		}
		return xsk(address, queue, count, args[4])
	case "as":
		if len(args) < 3 {
			return fmt.Errorf("as: a command is missing")
		}
		return as(address, args[2:])
	case "iperf":
		return iperf(address, len(args) > 2 && args[2] == "settled")
	case "registers":
		return registers(address)
	case "file":
		n, err := number(2)
		if err != nil {
			return err
		}
		return files(address, n)
	}
	return fmt.Errorf("%s: no such task", args[0])
}

// result prints one measurement.
func result(name string, value float64, unit string) { fmt.Printf("%s %.4g %s\n", name, value, unit) }
