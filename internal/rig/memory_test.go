//go:build !race

package rig_test

import (
	"testing"

	"cxkit/dma"
	"cxkit/drivertest"
)

// The suite on memory that the race detector does not see. The two kinds differ in how they are mapped.
func TestNICOnSharedMemory(t *testing.T)  { drivertest.Run(t, inprocess(dma.Shared)) }
func TestNICOnPrivateMemory(t *testing.T) { drivertest.Run(t, inprocess(dma.Private)) }
