package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"
)

// A datagram's first byte says whether the server sends it back.
const (
	wantsEcho = 1
	noEcho    = 2
)

// echo measures round trips. Lost datagrams are sent again and counted.
func echo(address string, count, size int) error {
	c, err := net.Dial("udp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	out, in := make([]byte, max(size, 2)), make([]byte, 64<<10)
	out[0] = wantsEcho
	times := make([]time.Duration, 0, count)
	lost := 0
	for len(times) < count {
		out[1]++
		began := time.Now()
		if _, err := c.Write(out); err != nil {
			return err
		}
		c.SetReadDeadline(began.Add(time.Second))
		for {
			n, err := c.Read(in)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				if lost++; lost > 10 {
					return fmt.Errorf("%d of %d datagrams lost", lost, len(times)+lost)
				}
				break
			}
			if err != nil {
				return err
			}
			if n == len(out) && in[1] == out[1] {
				times = append(times, time.Since(began))
				break
			}
		}
	}
	slices.Sort(times)
	result("udp-round-trip", times[len(times)/2].Seconds()*1e6, "us")
	result("udp-lost", float64(lost), "datagrams")
	return nil
}

// blast sends datagrams one way and counts what the system took. It calls the system itself: in an emulated guest what
// package net does for each write takes about as long as the driver.
func blast(address string, d time.Duration, size int) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if !to.Addr().Is4() {
		return fmt.Errorf("address %v: want IPv4", to)
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	if err := syscall.Connect(fd, &syscall.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
		return err
	}
	out := make([]byte, max(size, 1))
	out[0] = noEcho
	began := time.Now()
	sent := 0
	for time.Since(began) < d {
		for range 32 {
			if _, err := syscall.Write(fd, out); err == nil {
				sent++
			}
		}
	}
	result("udp-sends", float64(sent)/time.Since(began).Seconds()/1e3, "kpps")
	return nil
}
