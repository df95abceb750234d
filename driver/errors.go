package driver

import (
	"cxkit/driver/internal/cmdif"
	"cxkit/driver/internal/hca"
)

// Errors of commands. Every error of a method that talks to firmware wraps one of these or a
// *prm.CommandError, which is a command that firmware executed and refused: errors.Is(err,
// prm.StatusBadResource) asks for a status.
type (
	// DeliveryError: the device could not read a command, and did not execute it.
	DeliveryError = cmdif.DeliveryError
	// ProtocolError: the device's answer breaks the rules of the command interface.
	ProtocolError = cmdif.ProtocolError
	// NoAnswerError: a command ended without an answer; its Cause says why.
	NoAnswerError = cmdif.NoAnswerError
	// Cause is why a command has no answer.
	Cause = cmdif.Cause
	// LeftoverError names what the device did not give back at Close.
	LeftoverError = hca.LeftoverError
	// HealthError is a failure that firmware reported.
	HealthError = hca.HealthError
	// OpenError is why Open failed, with what its firmware commands have done.
	OpenError = hca.BringUpError
	// BootError: firmware did not finish booting.
	BootError = hca.BootError
)

// Causes of a NoAnswerError.
const (
	NeverIssued    = cmdif.NeverIssued
	FirmwareSilent = cmdif.FirmwareSilent
	DeviceGone     = cmdif.DeviceGone
	Flushed        = cmdif.Flushed
	InterfaceError = cmdif.InterfaceError
)

var (
	// ErrTimeout: a command's deadline has passed.
	ErrTimeout = cmdif.ErrTimeout
	// ErrStuck: every command slot is held by a command that firmware never completed.
	ErrStuck = cmdif.ErrStuck
	// ErrDown: the command interface has been given up; the error says why, too.
	ErrDown = cmdif.ErrDown
	// ErrSignature: an answer's signature is wrong.
	ErrSignature = cmdif.ErrSignature
	// ErrGone: the device does not answer any more.
	ErrGone = hca.ErrGone
	// ErrDisabled: firmware has taken the interface away.
	ErrDisabled = hca.ErrDisabled
)
