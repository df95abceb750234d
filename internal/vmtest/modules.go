package vmtest

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// moduleTree is a folder with kernel modules: an installed /lib/modules/RELEASE or a build tree.
type moduleTree struct {
	dir   string
	files map[string]string // module name to file
	// unxz and such are programs that decompress from standard input to standard output.
	busybox string
}

// module is one module, decompressed.
type module struct {
	name    string
	data    []byte
	depends []string
	aliases []string // names under which the kernel asks for it
	release string   // of the kernel it was built for
}

// openModules lists the modules below dir. busybox may decompress if it is not "".
func openModules(dir, busybox string) (*moduleTree, error) {
	t := &moduleTree{dir: dir, files: make(map[string]string), busybox: busybox}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if name, _, ok := strings.Cut(d.Name(), ".ko"); ok && moduleSuffix(d.Name()) {
			t.files[moduleName(name)] = path
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("kernel modules: %w", err)
	}
	if len(t.files) == 0 {
		return nil, fmt.Errorf("no kernel modules (*.ko, *.ko.xz, ...) below %s", dir)
	}
	return t, nil
}

func moduleSuffix(name string) bool {
	return slices.Contains([]string{".ko", ".xz", ".zst", ".gz"}, filepath.Ext(name))
}

// moduleName is a module's name as the kernel prints it.
func moduleName(s string) string { return strings.ReplaceAll(s, "-", "_") }

// closure loads modules and all they depend on, dependencies first. A module without a file is taken to
// be built in; need says it must not be.
func (t *moduleTree) closure(names []string) ([]module, error) {
	var (
		all  []module
		seen = make(map[string]bool)
		add  func(name string) error
	)
	add = func(name string) error {
		name = moduleName(name)
		if seen[name] {
			return nil
		}
		seen[name] = true
		path, ok := t.files[name]
		if !ok {
			return nil
		}
		m, err := t.load(name, path)
		if err != nil {
			return err
		}
		for _, d := range m.depends {
			if err := add(d); err != nil {
				return err
			}
		}
		all = append(all, m)
		return nil
	}
	for _, name := range names {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (t *moduleTree) load(name, path string) (module, error) {
	data, err := t.read(path)
	if err != nil {
		return module{}, fmt.Errorf("module %s: %w", path, err)
	}
	info, err := modinfo(data)
	if err != nil {
		return module{}, fmt.Errorf("module %s: %w", path, err)
	}
	m := module{name: name, data: data, aliases: info["alias"]}
	if d := first(info["depends"]); d != "" {
		m.depends = strings.Split(d, ",")
	}
	vermagic := first(info["vermagic"])
	m.release, _, _ = strings.Cut(vermagic, " ")
	if m.release == "" || strings.Contains(m.release, "/") {
		return module{}, fmt.Errorf("module %s: vermagic %q names no kernel", path, vermagic)
	}
	return m, nil
}

// maxModule bounds a decompressed module.
const maxModule = 256 << 20

// read reads a module and decompresses it. xz and zstd are left to their programs: every system with such
// modules has them, and busybox has xz; the standard library has neither.
func (t *moduleTree) read(path string) ([]byte, error) {
	raw, err := readFileBounded(path, maxModule)
	if err != nil {
		return nil, err
	}
	switch filepath.Ext(path) {
	case ".gz":
		z, err := gzip.NewReader(bytes.NewReader(raw))
		if err != nil {
			return nil, err
		}
		return io.ReadAll(io.LimitReader(z, maxModule))
	case ".xz":
		if _, err := exec.LookPath("xz"); err != nil && t.busybox != "" {
			return filter(raw, t.busybox, "xzcat")
		}
		return filter(raw, "xz", "-dc")
	case ".zst":
		return filter(raw, "zstd", "-dcq")
	}
	return raw, nil
}

// filter runs data through a program.
func filter(data []byte, program string, args ...string) ([]byte, error) {
	cmd := exec.Command(program, args...)
	cmd.Stdin = bytes.NewReader(data)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("decompress with %s: %w %s", program, err, bytes.TrimSpace(complaint.Bytes()))
	}
	return out, nil
}

// first is the first of some values, "" if there is none.
func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// modinfo reads a module's "key=value" strings.
func modinfo(data []byte) (map[string][]string, error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	s := f.Section(".modinfo")
	if s == nil {
		return nil, errors.New("no .modinfo: not a kernel module")
	}
	text, err := s.Data()
	if err != nil {
		return nil, err
	}
	info := make(map[string][]string)
	for kv := range bytes.SplitSeq(text, []byte{0}) {
		if k, v, ok := strings.Cut(string(kv), "="); ok {
			info[k] = append(info[k], v)
		}
	}
	return info, nil
}
