package device

import (
	"fmt"
	"time"

	"cxkit/prm"
	"cxkit/stats"
)

// Health is what function i, from 0, shows of its health in its registers, as a driver sees them: one
// reporter, named as devlink names what such a buffer is reported to.
func (c *Card) Health(i int) stats.Health {
	f, p := c.functions[i], c.profile
	read := f.face().readRegister
	at := func(off uint64) uint32 { return read(regHealth + off) }
	flags := prm.HealthBufferRFRSeverity(at(prm.HealthBufferRFRSeverityOff))
	synd := prm.HealthBufferSyndrome(at(prm.HealthBufferSyndromeOff))
	s := stats.Health{Time: time.Now(), Counter: read(regHealthCounter), Syndrome: uint8(synd.Synd())}
	r := stats.Reporter{Name: "fw", State: "healthy"}
	if synd.Synd() != prm.HealthOK {
		r.State, r.Errors, r.Message, r.Cause = "error", 1, "FW syndrome reported", synd.Synd().String()
		if flags.RFR() {
			r.Name, r.Message = "fw_fatal", "FW fatal error reported"
		}
		b := &stats.HealthBuffer{
			AssertExitPtr: at(prm.HealthBufferAssertExitPtrOff), AssertCallRA: at(prm.HealthBufferAssertCallRAOff),
			Time: at(prm.HealthBufferTimeOff), RawFWVer: at(prm.HealthBufferFWVerOff), HardwareID: at(prm.HealthBufferHWIDOff),
			FirmwareVer: fmt.Sprintf("%d.%d.%d", p.fwMajor, p.fwMinor, p.fwSubminor),
			Reset:       flags.RFR(), Severity: flags.Severity(), IRISCIndex: synd.IRISCIndex(),
			Syndrome: uint8(synd.Synd()), Description: synd.Synd().String(), ExtSyndrome: synd.ExtSynd(),
		}
		for k := range b.AssertVar {
			b.AssertVar[k] = at(prm.HealthBufferAssertVarOff + 4*uint64(k))
		}
		r.Dump = b
	}
	s.Reporters = []stats.Reporter{r}
	return s
}
