package fwpages_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"cxkit/device"
	"cxkit/device/fault"
	"cxkit/driver/internal/hca"
	"cxkit/driver/internal/object"
	"cxkit/prm"
)

// timeless hides a test's deadline, which a bubble must not ask for.
type timeless struct{ rapid.TB }

// Random gives, takes, resets and failures: after each step, the driver's ledger and firmware's account
// name the same pages, no page is lent twice, and at the end everything is back.
func TestLedgerAndFirmwareAgreeWhateverHappens(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		rapid.Check(timeless{t}, func(rt *rapid.T) { randomPages(rt, t) })
	})
}

func randomPages(rt *rapid.T, t *testing.T) {
	latency := rapid.SampledFrom([]time.Duration{0, time.Millisecond}).Draw(rt, "latency")
	b := up(rt, t, device.Config{
		Seed: rapid.Uint64().Draw(rt, "seed"),
		Memory: device.Memory{
			Included: rapid.SampledFrom([]int{0, 8}).Draw(rt, "included"), TakeLimit: rapid.SampledFrom([]int{0, 700}).Draw(rt, "take limit"),
			Objects: map[string]int{"pd": 40_000}, VHCAIDs: rapid.Bool().Draw(rt, "by vhca_id"),
		},
		OtherLatency: device.Latency{Max: latency},
	}, hca.Config{
		ReclaimLimit: rapid.SampledFrom([]*int{nil, new(100), new(0)}).Draw(rt, "limit"),
		HostPage:     rapid.SampledFrom([]int{4096, 65536}).Draw(rt, "host page"),
		MaxPages:     20_000,
	})
	defer b.close()
	functions := []device.PageFunction{{}, b.manage(1, false), b.manage(2, false), b.manage(3, !b.hca.General.ICMMngFunctionIDMode)}
	if b.hca.General.ICMMngFunctionIDMode {
		functions[0].ID = b.hca.General.VHCAID
	}
	card := b.rig.Card
	hoards := map[device.PageFunction]int{}
	var pds []object.Object
	function := func(rt *rapid.T) device.PageFunction { return rapid.SampledFrom(functions).Draw(rt, "function") }
	pause := func(rt *rapid.T) {
		time.Sleep(time.Duration(rapid.IntRange(0, 5000).Draw(rt, "us")) * time.Microsecond)
	}
	must := func(rt *rapid.T, err error) {
		if err != nil {
			rt.Fatal(err)
		}
	}
	rt.Repeat(map[string]func(*rapid.T){
		"hoard": func(rt *rapid.T) {
			f, n := function(rt), rapid.IntRange(1, 3000).Draw(rt, "n")
			must(rt, card.HoardPages(0, f, n))
			hoards[f] += n
			pause(rt)
		},
		"return": func(rt *rapid.T) {
			f := function(rt)
			// A host that ran out of memory has cut the hoard.
			n := rapid.IntRange(0, hoards[f]).Draw(rt, "n")
			if card.ReturnPages(0, f, n) == nil {
				hoards[f] -= n
			}
			pause(rt)
		},
		"storm": func(rt *rapid.T) {
			_ = card.StormPages(0, function(rt), rapid.IntRange(1, 3000).Draw(rt, "n")) // one may be under way
			pause(rt)
		},
		"reset": func(rt *rapid.T) {
			f := functions[rapid.IntRange(1, 3).Draw(rt, "function")]
			must(rt, card.ResetPages(0, f))
			hoards[f] = 0
			pause(rt)
		},
		"busy": func(rt *rapid.T) {
			must(rt, card.BusyPages(0, function(rt), rapid.IntRange(0, 300).Draw(rt, "n")))
		},
		"host is poor": func(rt *rapid.T) { b.host.poor.Store(!b.host.poor.Load()) },
		"firmware refuses": func(rt *rapid.T) {
			must(rt, card.Inject(fault.Plan{Faults: []fault.Fault{
				{Kind: fault.BadStatus, Opcodes: []prm.Opcode{prm.OpManagePages}, Status: prm.StatusNoResources, Times: 1},
			}}))
		},
		"create": func(rt *rapid.T) {
			for range rapid.IntRange(1, 20).Draw(rt, "n") {
				if o, err := b.hca.Objects.Create(t.Context(), &prm.AllocPDIn{}, &prm.AllocPDOut{}); err == nil {
					pds = append(pds, o)
				}
			}
		},
		"destroy": func(rt *rapid.T) {
			for range rapid.IntRange(1, 20).Draw(rt, "n") {
				if len(pds) > 0 {
					must(rt, b.hca.Objects.Destroy(t.Context(), pds[len(pds)-1]))
					pds = pds[:len(pds)-1]
				}
			}
		},
		"nonsense": func(rt *rapid.T) {
			b.hca.Pages.Handle(prm.PageRequestEvent{
				FuncID: uint16(rapid.IntRange(0, 9).Draw(rt, "id")), ECFunction: rapid.Bool().Draw(rt, "ec"),
				NumPages: rapid.SampledFrom([]int32{0, -1, -50_000, -1 << 31}).Draw(rt, "n"),
			})
		},
		"": func(rt *rapid.T) {
			b.calm()
			b.tb = rt
			b.agree(functions...)
		},
	})
	for _, f := range functions {
		must(rt, card.BusyPages(0, f, 0))
	}
	for _, o := range pds {
		must(rt, b.hca.Objects.Destroy(t.Context(), o))
	}
	doubtful := b.hca.Pages.Books().Doubtful
	if err := b.end(t); err != nil && doubtful == 0 {
		rt.Fatalf("teardown: %v", err)
	}
	if n := b.hca.Pages.Books(); n.Out != 0 || n.Free != 0 {
		rt.Fatalf("after teardown: %+v", n)
	}
}
