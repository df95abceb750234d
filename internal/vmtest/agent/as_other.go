//go:build !linux

package main

import "errors"

func as(string, []string) error { return errors.ErrUnsupported }
