package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cxkit/internal/vmtest"
)

// TestServeConnectsGuestsWithoutRights: two guests on the switch of one server, one of which comes twice, and
// every process of a user without rights.
func TestServeConnectsGuestsWithoutRights(t *testing.T) {
	needGuest(t)
	u := newUser(t)
	a, b := filepath.Join(u.dir, "a"), filepath.Join(u.dir, "b")
	server := u.start(t, &notice{text: "A guest's memory must be shared", seen: make(chan struct{})}, "serve", "--socket", a, "--socket", b)
	server.waitNotice(t)
	server.hasNoRights(t)

	up := func(address string) string {
		return "ip addr add " + address + "/24 dev eth0; ip link set eth0 up; "
	}
	far := u.start(t, &notice{text: "listening", seen: make(chan struct{})}, "vm", "--socket", b, "--cmd", up("10.0.0.2")+"echo listening; sleep 1000")
	far.waitNotice(t)
	far.hasNoRights(t)
	for visit := range 2 {
		near := u.start(t, &notice{text: "3 packets received", seen: make(chan struct{})}, "vm", "--socket", a, "--cmd", up("10.0.0.1")+"ping -c 3 -w 30 10.0.0.2")
		near.waitNotice(t)
		if code := near.wait(t); code != 0 {
			t.Fatalf("visit %d: exit code %d\n%s%s", visit+1, code, near.out.printed(), near.err.String())
		}
	}
	for _, end := range []struct {
		what *process
		code int
	}{{far, exitInterrupted}, {server, exitDone}} {
		end.what.cmd.Process.Signal(os.Interrupt)
		if code := end.what.wait(t); code != end.code {
			t.Errorf("%v: exit code %d, want %d: %s", end.what.cmd.Args[1:], code, end.code, end.what.err.String())
		}
	}
}

// user is a user without rights: nobody if this process is root, else the one it is.
type user struct {
	dir string // of sockets and temporary files
	env []string
}

func newUser(t *testing.T) *user {
	t.Helper()
	dir, err := os.MkdirTemp("", "cxkit-serve-") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	u := &user{dir: dir, env: append(os.Environ(), "TMPDIR="+dir, "XDG_RUNTIME_DIR="+dir)}
	if os.Getuid() != 0 {
		return u
	}
	// Root's cache is nobody else's business: nobody gets one of its own, made of links.
	cache, err := vmtest.DefaultCache()
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(dir, "cache")
	if err := linkTree(cache.Dir, filepath.Join(own, "cxkit", "vm")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	u.env = append(u.env, "HOME="+dir, "XDG_CACHE_HOME="+own)
	return u
}

// linkTree makes to a copy of the folder from whose files are the same. What only the owner may read is left
// out.
func linkTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rest, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		target := filepath.Join(to, rest)
		switch {
		case d.IsDir() && info.Mode()&0o005 == 0:
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(target, 0o755)
		case d.Type() == fs.ModeSymlink:
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		case info.Mode()&0o004 == 0:
			return nil
		}
		if os.Link(path, target) == nil {
			return nil
		}
		b, err := os.ReadFile(path) // on another file system
		if err != nil {
			return err
		}
		return os.WriteFile(target, b, info.Mode().Perm())
	})
}

// process is a cxkit that runs.
type process struct {
	cmd  *exec.Cmd
	out  *notice
	err  bytes.Buffer
	done chan struct{}
}

// start starts cxkit, which ends with the test.
func (u *user) start(t *testing.T, out *notice, args ...string) *process {
	t.Helper()
	cmd, err := withoutRights(args)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(filepath.Dir(cmd.Path)) })
	p := &process{cmd: cmd, out: out, done: make(chan struct{})}
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = u.env, u.dir, out, &p.err
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		cmd.Wait() // ProcessState says how it ended
	}()
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		select {
		case <-p.done:
		case <-time.After(time.Minute):
			cmd.Process.Kill()
			<-p.done
		}
	})
	return p
}

// waitNotice waits for what the process is to print.
func (p *process) waitNotice(t *testing.T) {
	t.Helper()
	select {
	case <-p.out.seen:
	case <-p.done:
		t.Fatalf("cxkit %v ended: %v\n%s%s", p.cmd.Args[1:], p.cmd.ProcessState, p.out.printed(), p.err.String())
	case <-time.After(4 * time.Minute):
		t.Fatalf("cxkit %v does not print %q", p.cmd.Args[1:], p.out.text)
	}
}

// wait waits for the process's end and returns its exit code.
func (p *process) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(4 * time.Minute):
		t.Fatalf("cxkit %v does not end", p.cmd.Args[1:])
	}
	return p.cmd.ProcessState.ExitCode()
}

// hasNoRights checks that the process, which runs, and its children are not root's and have no capability.
func (p *process) hasNoRights(t *testing.T) {
	t.Helper()
	pids := []string{fmt.Sprint(p.cmd.Process.Pid)}
	lists, err := filepath.Glob("/proc/" + pids[0] + "/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		if children, err := os.ReadFile(list); err == nil { // the thread may have ended
			pids = append(pids, strings.Fields(string(children))...)
		}
	}
	if p.cmd.Args[1] == "vm" && len(pids) < 2 {
		t.Error("cxkit vm has no QEMU")
	}
	for _, pid := range pids {
		status, err := os.ReadFile("/proc/" + pid + "/status")
		if err != nil {
			t.Error(err)
			continue
		}
		for _, right := range []string{"\nUid:\t0\t", "\nGid:\t0\t"} {
			if strings.Contains(string(status), right) {
				t.Errorf("process %s of cxkit %s is root's", pid, p.cmd.Args[1])
			}
		}
		if !strings.Contains(string(status), "\nCapEff:\t0000000000000000\n") {
			t.Errorf("process %s of cxkit %s has capabilities:\n%s", pid, p.cmd.Args[1], status)
		}
	}
}
