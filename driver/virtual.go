package driver

import (
	"errors"
	"strings"
	"sync"

	"cxkit/driver/internal/hca"
	"cxkit/prm"
)

// refusals are what firmware refused a virtual function while it was opened: settings of the port, which are
// its physical function's. The NIC works without them.
type refusals struct {
	mu   sync.Mutex // guards list
	list []string
}

// forgive takes note of a refusal that a virtual function can live with; other errors it returns.
func (n *NIC) forgive(what string, err error) error {
	var refused *prm.CommandError
	if err == nil || !hca.Virtual(n.base.info.DeviceID) || !errors.As(err, &refused) {
		return err
	}
	r := &n.refused
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, what)
	return nil
}

// reportRefusals says once what a virtual function may not do.
func (n *NIC) reportRefusals() {
	r := &n.refused
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.list) > 0 {
		n.log.Warn("virtual function: settings of the port are left to its physical function", "refused", strings.Join(r.list, ", "))
	}
}
