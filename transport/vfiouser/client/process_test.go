//go:build linux

package client_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"cxkit/pci"
	"cxkit/transport/transporttest"
	"cxkit/transport/vfiouser/client"
	"cxkit/transport/vfiouser/server"
)

// serveAt tells the test binary that it is the other process: it serves a card at the socket that the
// variable names until its standard input ends.
const serveAt = "CXKIT_TEST_SERVE_AT"

func TestMain(m *testing.M) {
	if path := os.Getenv(serveAt); path != "" {
		if err := serveAlone(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func serveAlone(path string) error {
	s, err := server.Listen(path, transporttest.NewCard(), server.Config{})
	if err != nil {
		return err
	}
	go func() {
		io.Copy(io.Discard, os.Stdin) // ends with the test
		s.Close()
	}()
	fmt.Println("listening")
	return s.Serve(context.Background())
}

func TestFunctionInAnotherProcess(t *testing.T) {
	path, _ := otherProcess(t)
	transporttest.Run(t, transporttest.Options{Kinds: kinds, MSIXTable: true, Open: func(t testing.TB) pci.Function {
		return dialPath(t, path)
	}})
}

func dialPath(t testing.TB, path string) *client.Function {
	t.Helper()
	f, err := client.Dial(context.Background(), path, client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// otherProcess starts a process that serves a card until the test ends or kill is called.
func otherProcess(t testing.TB) (path string, kill func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serveAt+"="+path)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); cmd.Wait() })
	if _, err := stdout.Read(make([]byte, 1)); err != nil {
		t.Fatalf("the other process does not listen: %v", err)
	}
	return path, func() { cmd.Process.Kill() }
}
