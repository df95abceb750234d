package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// newTTY makes a terminal of 80x24: what is written to master is typed, what is read from it is on the screen.
func newTTY(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("this test needs pseudo terminals: ", err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80})
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

// TestWatchingOnATerminal watches a running card on a terminal until a key ends it.
func TestWatchingOnATerminal(t *testing.T) {
	path, err := copyOfCxkit()
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(filepath.Dir(path))
	home, err := os.MkdirTemp("", "cx")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	env := append(os.Environ(), "XDG_RUNTIME_DIR="+home, "TERM=xterm-256color")
	card := exec.Command(path, "run", "--port", "discard", "--show", "0")
	card.Env = env
	if err := card.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		card.Process.Signal(os.Interrupt)
		if err := card.Wait(); err != nil {
			t.Errorf("the card's process: %v", err)
		}
	}()
	for limit := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) { // another process makes it
		if socks, _ := filepath.Glob(filepath.Join(home, "cxkit", "*.sock")); len(socks) == 1 {
			break
		}
		if time.Now().After(limit) {
			t.Fatal("no card runs")
		}
	}
	for _, x := range []struct {
		args  []string
		shows []string
		key   string
		then  string // shown after the terminal has got 200 columns, and before the key
	}{
		{[]string{"top", "--period", "50ms"}, []string{"ConnectX-5 at", "no frames are lost", "in flight of 32", "heartbeat", "\x1b[?1049h"}, "q", ", missed 0"},
		{[]string{"top", "--period", "50ms"}, []string{"heartbeat"}, "\x03", ""},
		{[]string{"stat", "-w", "--period", "50ms"}, []string{"ConnectX-5 at", "counters changed", "\x1b[?1049h"}, "\x03", ""},
	} {
		master, slave := newTTY(t)
		cmd := exec.Command(path, x.args...)
		cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, slave, slave, slave
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		slave.Close()
		if err := master.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		var screen []byte
		buf := make([]byte, 4096)
		pressed, grown, from := false, false, 0
		for {
			n, err := master.Read(buf)
			screen = append(screen, buf[:n]...)
			if !grown && x.then != "" && containsAll(screen, x.shows) {
				grown, from = true, len(screen)
				if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 200}); err != nil {
					t.Fatal(err)
				}
			}
			if !pressed && containsAll(screen, x.shows) && bytes.Contains(screen[from:], []byte(x.then)) {
				pressed = true
				if _, err := master.WriteString(x.key); err != nil {
					t.Fatal(err)
				}
			}
			if err != nil {
				break // the program has ended, or nothing comes
			}
		}
		if !pressed {
			cmd.Process.Kill()
			t.Errorf("%q: the screen does not show %q, or %q when it is wider:\n%q", x.args, x.shows, x.then, screen)
		}
		if err := cmd.Wait(); err != nil && pressed {
			t.Errorf("%q: %v", x.args, err)
		}
		if pressed && !bytes.Contains(screen, []byte("\x1b[?1049l")) {
			t.Errorf("%q: the terminal is not given back", x.args)
		}
	}
}

func containsAll(b []byte, all []string) bool {
	for _, s := range all {
		if !bytes.Contains(b, []byte(s)) {
			return false
		}
	}
	return true
}
