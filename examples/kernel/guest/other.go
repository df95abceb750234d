//go:build !linux

package main

func main() { panic("guest runs in a Linux guest") }
