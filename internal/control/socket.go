package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Dir is the folder of this user's sockets: $XDG_RUNTIME_DIR/cxkit, or cxkit-UID in the folder for
// temporary files.
func Dir() string {
	if d := os.Getenv("XDG_RUNTIME_DIR"); d != "" {
		return filepath.Join(d, "cxkit")
	}
	return filepath.Join(os.TempDir(), "cxkit-"+strconv.Itoa(os.Getuid()))
}

// ownDir makes the folder, and refuses one that somebody else could write to: the folder for temporary
// files belongs to all, and its cxkit-UID may have been made by another user.
func ownDir() (string, error) {
	dir := Dir()
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("control socket: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", fmt.Errorf("control socket: %w", err)
	}
	if why := notOurs(info); why != "" {
		return "", fmt.Errorf("control socket: %s %s; remove it or set XDG_RUNTIME_DIR", dir, why)
	}
	return dir, nil
}

// suffix ends the names of sockets.
const suffix = ".sock"

// maxSockets is the most cards a process serves.
const maxSockets = 256

// listen makes a socket named after this process; a further card of it gets a number more.
func listen(dir string) (net.Listener, string, error) {
	pid := strconv.Itoa(os.Getpid())
	for i := range maxSockets {
		name := pid
		if i > 0 {
			name += "-" + strconv.Itoa(i)
		}
		path := filepath.Join(dir, name+suffix)
		if alive(path) {
			continue
		}
		l, err := net.Listen("unix", path)
		if err != nil {
			return nil, "", fmt.Errorf("control socket: %w", err)
		}
		// The folder is closed to others already; this keeps the promise if it is opened.
		if err := os.Chmod(path, 0o600); err != nil {
			return nil, "", errors.Join(fmt.Errorf("control socket: %w", err), l.Close())
		}
		return l, path, nil
	}
	return nil, "", fmt.Errorf("control socket: process %s has %d already", pid, maxSockets)
}

// dialTime bounds the wait for a socket to accept: a live one does at once.
const dialTime = 2 * time.Second

// alive tells whether somebody listens at path. A socket whose process has died is removed.
func alive(path string) bool {
	c, err := net.DialTimeout("unix", path, dialTime)
	if err == nil {
		c.Close()
		return true
	}
	if refused(err) {
		os.Remove(path)
		return false
	}
	return !errors.Is(err, os.ErrNotExist)
}

// Running lists the sockets of this user's running cards, sorted.
func Running() ([]string, error) {
	dir := Dir()
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for running cards: %w", err)
	}
	var paths []string
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if strings.HasSuffix(e.Name(), suffix) && e.Type()&os.ModeSocket != 0 && alive(path) {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths, nil
}

// Attach connects to the card at path, or to the only running one if path is empty.
func Attach(ctx context.Context, path string) (*Client, error) {
	if path != "" {
		return Dial(ctx, path)
	}
	paths, err := Running()
	switch {
	case err != nil:
		return nil, err
	case len(paths) == 0:
		return nil, fmt.Errorf("no card is running (none in %s): start one with cxkit run", Dir())
	case len(paths) > 1:
		return nil, fmt.Errorf("%d cards are running, choose one with --attach:\n%s", len(paths), describe(ctx, paths))
	}
	return Dial(ctx, paths[0])
}

// describe says what runs at each path.
func describe(ctx context.Context, paths []string) string {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	var lines []string
	for _, path := range paths {
		line := "  " + path
		if c, err := Dial(ctx, path); err == nil {
			if info, err := c.Info(ctx); err == nil {
				line += "  " + info.Command
			}
			c.Close()
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
