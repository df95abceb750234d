package vmtest

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// Tree is a folder of the host's that the guest finds in its root file system, with all below it.
type Tree struct {
	// Root is the folder, Path where the guest finds it.
	Root, Path string
	// Leave are folders and files below Root that the guest does without, by their path from there.
	Leave []string
}

// maxTreeFile bounds a file of a tree, in bytes.
const maxTreeFile = 256 << 20

// write copies the tree. What is neither file, folder nor link is left out.
func (t Tree) write(c *cpioWriter) error {
	return filepath.WalkDir(t.Root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(t.Root, name)
		if err != nil {
			return err
		}
		if slices.Contains(t.Leave, below) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		return errors.Join(t.copy(c, name, path.Join(t.Path, filepath.ToSlash(below)), d), c.err)
	})
}

func (t Tree) copy(c *cpioWriter, name, to string, d fs.DirEntry) error {
	switch d.Type() {
	case fs.ModeDir:
		c.dir(to)
	case fs.ModeSymlink:
		target, err := os.Readlink(name)
		if err != nil {
			return err
		}
		c.link(to, target)
	case 0:
		info, err := d.Info()
		if err != nil {
			return err
		}
		data, err := readFileBounded(name, maxTreeFile)
		if err != nil {
			return err
		}
		mode := uint32(modeFile)
		if info.Mode()&0o111 != 0 {
			mode = modeProgram
		}
		c.file(to, mode, data)
	}
	return nil
}
