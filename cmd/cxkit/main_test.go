package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"cxkit/device/wire"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"cxkit": main})
}

// TestScripts runs testdata/script/*.txtar. Beside testscript's own commands they use those of
// script_test.go, and $CAPTURES, the folder of recorded traffic, and $FAULTS, the folder of
// example fault plans.
func TestScripts(t *testing.T) {
	captures, err := filepath.Abs("../../testdata/captures")
	if err != nil {
		t.Fatal(err)
	}
	faults, err := filepath.Abs("../../docs/faults")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			// Paths of sockets are short; the script's own folder is not always.
			dir, err := os.MkdirTemp("", "cx")
			if err != nil {
				return err
			}
			env.Defer(func() { os.RemoveAll(dir) })
			env.Setenv("XDG_RUNTIME_DIR", dir)
			env.Setenv("CAPTURES", captures)
			env.Setenv("FAULTS", faults)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits":          cmdExits,
			"interrupttwice": cmdInterruptTwice,
			"pcap":           cmdPcap,
			"cut":            cmdCut,
			"poke":           cmdPoke,
			"sameframes":     cmdSameFrames,
			"json":           cmdJSON,
			"running":        cmdRunning,
			"unprivileged":   cmdUnprivileged,
		},
		Condition: func(cond string) (bool, error) {
			if cond == "tap" { // this process may make a TAP interface
				tap, err := wire.OpenTAP("cxkit-try", 0)
				if err != nil {
					return false, nil
				}
				return true, tap.Close()
			}
			if name, ok := strings.CutPrefix(cond, "file:"); ok {
				_, err := os.Stat(name)
				return err == nil, nil
			}
			return false, nil
		},
	})
}
