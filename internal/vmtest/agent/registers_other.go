//go:build !linux

package main

import "errors"

func registers(string) error { return errors.New("registers: only Linux has BARs as files") }
