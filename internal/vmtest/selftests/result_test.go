package main

import (
	"reflect"
	"testing"
)

func TestResultsOfAllKindsOfTestsAreRead(t *testing.T) {
	o := parse(`@kind mlx5_core driver: mlx5_core
@test mlx5_core drivers/net/ping.py
KTAP version 1
1..3
ok 1 ping.test_v4
# Exception| Traceback (most recent call last):
# Exception|     raise KsftSkipEx()
# Exception| lib.py.utils.CmdExitFailure: Command failed
not ok 2 ping.test_v6
ok 3 ping.test_tcp # SKIP Test requires (remote) command: socat
# Totals: pass:1 fail:1 xfail:0 xpass:0 skip:1 error:0
@status 1
@dmesg mlx5_core: it fails
@end
@test mlx5_core drivers/net/hw/ethtool.sh
TEST: force of same speed autoneg off                               [ OK ]
TEST: force speeds                                                  [FAIL]
	speed is wrong
TEST: nothing                                                       [SKIP]
	no hardware
@status 1
@end
@test mlx5_core drivers/net/hw/loopback.sh
TEST: SKIP: dev eth0 does not support loopback                      [ OK ]
TEST: rx on eth1                                                    [ OK ]
@status 4
@end
@test mlx5_core drivers/net/netcons_basic.sh
@status 0
@end
@test mlx5_core drivers/net/slow.py
@status 124
@end
@problem no link
@starts mlx5_core 150 900
@starts garbage
`)
	want := []result{
		{"mlx5_core", "drivers/net/ping.py", "test_v4", pass, ""},
		{"mlx5_core", "drivers/net/ping.py", "test_v6", fail, "lib.py.utils.CmdExitFailure: Command failed"},
		{"mlx5_core", "drivers/net/ping.py", "test_tcp", skip, "Test requires (remote) command: socat"},
		{"mlx5_core", "drivers/net/hw/ethtool.sh", "force of same speed autoneg off", pass, ""},
		{"mlx5_core", "drivers/net/hw/ethtool.sh", "force speeds", fail, "speed is wrong"},
		{"mlx5_core", "drivers/net/hw/ethtool.sh", "nothing", skip, "no hardware"},
		{"mlx5_core", "drivers/net/hw/loopback.sh", "SKIP: dev the near end does not support loopback", skip, ""},
		{"mlx5_core", "drivers/net/hw/loopback.sh", "rx on the far end", pass, ""},
		{"mlx5_core", "drivers/net/netcons_basic.sh", "(whole)", pass, ""},
		{"mlx5_core", "drivers/net/slow.py", "(time)", fail, "not over after 15 minutes"},
	}
	for i, r := range o.results {
		if i >= len(want) || r != want[i] {
			t.Errorf("result %d: %+v", i, r)
		}
	}
	if len(o.results) != len(want) {
		t.Errorf("%d results, want %d", len(o.results), len(want))
	}
	if want := []complaint{{"mlx5_core", "drivers/net/ping.py", "mlx5_core: it fails"}}; !reflect.DeepEqual(o.dmesg, want) {
		t.Errorf("complaints %v, want %v", o.dmesg, want)
	}
	if want := (starts{150, 900}); o.starts["mlx5_core"] != want {
		t.Errorf("starts %v, want %v", o.starts, want)
	}
	if want := []string{"no link", "@starts garbage"}; !reflect.DeepEqual(o.trouble, want) {
		t.Errorf("trouble %q, want %q", o.trouble, want)
	}
}

func TestALaterRunOfATestCountsOnAllCards(t *testing.T) {
	o := outcome{
		kinds: []string{model, "igb"},
		results: []result{
			{model, "a.py", "one", fail, "slow"}, {model, "b.py", "one", pass, ""}, {"igb", "a.py", "one", pass, ""},
			{"igb", "a.py", "two", pass, ""}, {"igb", "b.py", "one", fail, ""},
		},
		dmesg:   []complaint{{model, "a.py", "stalled"}, {model, "b.py", "kept"}},
		trouble: []string{"no link"},
	}
	later := outcome{
		kinds:   []string{model, "igb"},
		results: []result{{model, "a.py", "one", pass, ""}, {"igb", "a.py", "one", fail, "broken"}},
		dmesg:   []complaint{{"igb", "a.py", "new"}},
	}
	if err := o.replace(later); err != nil {
		t.Fatal(err)
	}
	want := outcome{
		kinds: []string{model, "igb"},
		results: []result{
			{model, "b.py", "one", pass, ""}, {"igb", "b.py", "one", fail, ""}, {model, "a.py", "one", pass, ""}, {"igb", "a.py", "one", fail, "broken"},
		},
		dmesg:   []complaint{{model, "b.py", "kept"}, {"igb", "a.py", "new"}},
		trouble: []string{"no link"},
	}
	if !reflect.DeepEqual(o, want) {
		t.Errorf("%+v\nwant %+v", o, want)
	}
	if err := o.replace(outcome{kinds: []string{model}}); err == nil {
		t.Error("a run on fewer cards is taken")
	}
}
