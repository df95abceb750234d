package cmdif_test

import (
	"context"
	"fmt"
	"testing"

	"cxkit/driver/internal/cmdif"
	"cxkit/prm"
)

// What failed is told apart from what firmware said: the number is Linux's for the same end. R17.
func TestErrnoOfEachEnd(t *testing.T) {
	silent := func(c cmdif.Cause, why error) error { return &cmdif.NoAnswerError{Cause: c, Err: why} }
	for _, x := range []struct {
		err    error
		want   string
		issued bool
	}{
		{nil, "OK", false},
		{&prm.CommandError{Status: prm.StatusBadParameter}, "EINVAL", false},
		{&prm.CommandError{Status: prm.StatusNoResources}, "EAGAIN", false},
		{&cmdif.DeliveryError{Delivery: prm.DeliveryTokenError}, "EIO", false},
		{&cmdif.ProtocolError{What: "x"}, "EIO", true},
		{&cmdif.ProtocolError{What: "x", Err: cmdif.ErrSignature}, "EHWPOISON", true},
		{silent(cmdif.FirmwareSilent, cmdif.ErrTimeout), "ETIMEDOUT", true},
		{silent(cmdif.DeviceGone, cmdif.ErrTimeout), "ETIMEDOUT", true},
		{silent(cmdif.FirmwareSilent, context.Canceled), "EINTR", true},
		{silent(cmdif.Flushed, cmdif.ErrDown), "ENXIO", true},
		{silent(cmdif.NeverIssued, cmdif.ErrDown), "ENXIO", false},
		{silent(cmdif.NeverIssued, cmdif.ErrNotAllowed), "ENXIO", false},
		{silent(cmdif.NeverIssued, cmdif.ErrTimeout), "ECANCELED", false},
		{silent(cmdif.NeverIssued, cmdif.ErrStuck), "EAGAIN", false},
		{silent(cmdif.NeverIssued, cmdif.ErrBusy), "EBUSY", false},
		{silent(cmdif.NeverIssued, cmdif.ErrNoCallback), "EINVAL", false},
		{cmdif.ErrNoMailbox, "ENOMEM", false},
	} {
		if got := cmdif.Errno(x.err); got != x.want {
			t.Errorf("%v: %s, want %s", x.err, got, x.want)
		}
		if x.err == nil {
			continue
		}
		wrapped := fmt.Errorf("create CQ: %w", x.err)
		if got := cmdif.Errno(wrapped); got != x.want || cmdif.Issued(wrapped) != x.issued {
			t.Errorf("%v, wrapped: %s, issued %v", x.err, got, cmdif.Issued(wrapped))
		}
	}
}
