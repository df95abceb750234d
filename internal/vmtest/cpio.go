package vmtest

import (
	"fmt"
	"io"
	"path"
	"strings"
)

// cpioWriter writes an initramfs: a cpio archive in "newc" form, which the kernel unpacks (Documentation/
// driver-api/early-userspace/buffer-format.rst). It is not compressed: QEMU loads it with one copy, and an
// emulated processor would take seconds to decompress it.
type cpioWriter struct {
	w     io.Writer
	err   error
	inode uint32
	dirs  map[string]bool
}

// File types and permissions, as in struct stat.
const (
	modeDir     = 0o040755
	modeFile    = 0o100644
	modeProgram = 0o100755
	modeChar    = 0o020600
	modeLink    = 0o120777
)

func newCPIOWriter(w io.Writer) *cpioWriter {
	return &cpioWriter{w: w, dirs: map[string]bool{"": true}}
}

// entry writes one entry. name has no leading slash.
func (c *cpioWriter) entry(name string, mode, major, minor uint32, data []byte) {
	c.inode++
	links := uint32(1)
	if mode&0o170000 == modeDir&0o170000 {
		links = 2
	}
	header := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		c.inode, mode, 0, 0, links, 0, len(data), 0, 0, major, minor, len(name)+1, 0, name)
	c.write([]byte(header))
	c.pad(len(header))
	c.write(data)
	c.pad(len(data))
}

func (c *cpioWriter) write(p []byte) {
	if c.err == nil {
		_, c.err = c.w.Write(p)
	}
}

// pad fills up to a multiple of 4 bytes. Headers and data both begin at one.
func (c *cpioWriter) pad(n int) { c.write(make([]byte, -n&3)) }

// dir makes a folder and those above it, once.
func (c *cpioWriter) dir(name string) {
	name = strings.Trim(name, "/")
	if name == "." || c.dirs[name] {
		return
	}
	c.dir(path.Dir(name))
	c.dirs[name] = true
	c.entry(name, modeDir, 0, 0, nil)
}

// file writes a file, with its folder.
func (c *cpioWriter) file(name string, mode uint32, data []byte) {
	name = strings.Trim(name, "/")
	c.dir(path.Dir(name))
	c.entry(name, mode, 0, 0, data)
}

// char writes a character device, with its folder.
func (c *cpioWriter) char(name string, major, minor uint32) {
	name = strings.Trim(name, "/")
	c.dir(path.Dir(name))
	c.entry(name, modeChar, major, minor, nil)
}

// link writes a symbolic link, with its folder.
func (c *cpioWriter) link(name, target string) {
	name = strings.Trim(name, "/")
	c.dir(path.Dir(name))
	c.entry(name, modeLink, 0, 0, []byte(target))
}

// close ends the archive and returns the first error.
func (c *cpioWriter) close() error {
	c.inode = 0
	c.entry("TRAILER!!!", 0, 0, 0, nil)
	return c.err
}
