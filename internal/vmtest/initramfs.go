package vmtest

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

//go:embed init.sh
var initScript string

// File is a file of the host's that the guest finds in its root file system.
type File struct {
	// Path is where the guest finds it.
	Path string
	// Data is what it holds.
	Data []byte
	// Program makes it executable.
	Program bool
}

// initramfs is what a guest's root file system holds.
type initramfs struct {
	busybox string   // the host's path of a static busybox
	roots   []string // of unpacked userlands
	tools   []string // programs of them to copy; those they lack are an error
	modules []module // to have
	load    []string // to load before the command
	files   []File
	trees   []Tree
	command *string // nil for a shell on the console
	nonce   string
}

// write writes the archive.
func (r *initramfs) write(w io.Writer) error {
	c := newCPIOWriter(w)
	for _, d := range []string{"proc", "sys", "dev", "bin", "sbin", "usr/bin", "usr/sbin", "usr/local/bin", "etc"} {
		c.dir(d)
	}
	c.char("dev/console", 5, 1)
	c.char("dev/null", 1, 3)
	busybox, err := readFileBounded(r.busybox, 64<<20)
	if err != nil {
		return fmt.Errorf("busybox: %w", err)
	}
	c.file("bin/busybox", modeProgram, busybox)
	c.file("init", modeProgram, []byte(initScript))
	c.file("cxkit/config", modeFile, fmt.Appendf(nil, "nonce='%s'\nload='%s'\n", r.nonce, strings.Join(r.load, " ")))
	if r.command != nil {
		c.file("cxkit/command", modeFile, []byte(*r.command+"\n"))
	}
	p := &programs{roots: r.roots, out: c, libs: make(map[string]bool)}
	for _, name := range r.tools {
		if err := p.add(name); err != nil {
			return err
		}
	}
	if err := r.writeModules(c); err != nil {
		return err
	}
	for _, f := range r.files {
		mode := uint32(modeFile)
		if f.Program {
			mode = modeProgram
		}
		c.file(f.Path, mode, f.Data)
	}
	for _, t := range r.trees {
		if err := t.write(c); err != nil {
			return fmt.Errorf("%s: %w", t.Root, err)
		}
	}
	return c.close()
}

// writeModules puts the modules into one folder, with the list that modprobe reads.
func (r *initramfs) writeModules(c *cpioWriter) error {
	if len(r.modules) == 0 {
		return nil
	}
	release := r.modules[0].release
	folder := "lib/modules/" + release + "/"
	have := make(map[string]module, len(r.modules))
	var dep, alias strings.Builder
	for _, m := range r.modules {
		if m.release != release {
			return fmt.Errorf("module %s is built for kernel %s, %s for %s: two kernels in one folder",
				m.name, m.release, r.modules[0].name, release)
		}
		have[m.name] = m
		c.file(folder+m.name+".ko", modeFile, m.data)
		fmt.Fprintf(&dep, "%s.ko:", m.name)
		for _, d := range allDepends(m, have) {
			fmt.Fprintf(&dep, " %s.ko", d)
		}
		dep.WriteByte('\n')
		for _, a := range m.aliases {
			fmt.Fprintf(&alias, "alias %s %s\n", a, m.name)
		}
	}
	c.file(folder+"modules.dep", modeFile, []byte(dep.String()))
	c.file(folder+"modules.alias", modeFile, []byte(alias.String()))
	for _, empty := range []string{"modules.symbols", "modules.builtin"} {
		c.file(folder+empty, modeFile, nil)
	}
	return nil
}

// allDepends lists what a module needs, directly or not, in the order of modules.dep: what comes later
// is loaded first. have holds what it depends on.
func allDepends(m module, have map[string]module) []string {
	var all []string
	for _, d := range m.depends {
		d = moduleName(d)
		if _, ok := have[d]; !ok {
			continue // built in
		}
		for _, n := range append([]string{d}, allDepends(have[d], have)...) {
			// The one loaded first is the last mention.
			if i := slices.Index(all, n); i >= 0 {
				all = slices.Delete(all, i, i+1)
			}
			all = append(all, n)
		}
	}
	return all
}

// checkFile refuses a path that would not be below the guest's root.
func checkFile(f File) error {
	if !strings.HasPrefix(f.Path, "/") || slices.Contains(strings.Split(f.Path, "/"), "..") {
		return fmt.Errorf("file %q: %w", f.Path, errors.New("want an absolute path in the guest"))
	}
	return nil
}
