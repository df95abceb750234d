package vmtest

import (
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// readFileBounded reads a file of at most limit bytes.
func readFileBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s is longer than %d bytes", path, limit)
	}
	return b, err
}

// guestLibraries is where the guest's dynamic linker looks.
const guestLibraries = "usr/lib/x86_64-linux-gnu"

// programFolders are where packages put programs.
func programFolders() []string { return []string{"usr/sbin", "usr/bin", "sbin", "bin"} }

// programs copies programs of an unpacked userland into a guest, with the shared libraries they need.
type programs struct {
	root string // of the userland
	out  *cpioWriter
	libs map[string]bool
}

// add copies a program to usr/sbin. The userland must have it.
func (p *programs) add(name string) error {
	path, ok := findProgram(p.root, name)
	if !ok {
		return fmt.Errorf("program %s: not below %s", name, p.root)
	}
	return p.copy(path, "usr/sbin/"+name, modeProgram)
}

// findProgram finds a program in an unpacked userland.
func findProgram(root, name string) (path string, ok bool) {
	for _, folder := range programFolders() {
		path := filepath.Join(root, folder, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, true
		}
	}
	return "", false
}

// copy copies an ELF file and what it needs.
func (p *programs) copy(path, to string, mode uint32) error {
	data, err := readFileBounded(path, 256<<20)
	if err != nil {
		return err
	}
	p.out.file(to, mode, data)
	f, err := elf.Open(path)
	if err != nil {
		return nil // a script
	}
	defer f.Close()
	needed, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, lib := range needed {
		if p.libs[lib] || strings.HasPrefix(lib, "ld-linux") {
			continue
		}
		p.libs[lib] = true
		at, ok := p.library(lib)
		if !ok {
			return fmt.Errorf("%s needs %s, which is not below %s", path, lib, p.root)
		}
		if err := p.copy(at, guestLibraries+"/"+lib, modeProgram); err != nil {
			return err
		}
	}
	return p.loader(f)
}

// library finds a shared library in the userland.
func (p *programs) library(name string) (path string, ok bool) {
	for _, folder := range []string{guestLibraries, "lib/x86_64-linux-gnu", "usr/lib64", "lib64"} {
		path := filepath.Join(p.root, folder, name)
		if _, err := os.Stat(path); err == nil {
			return path, true
		}
	}
	return "", false
}

// loader copies the dynamic linker that a program names, once.
func (p *programs) loader(f *elf.File) error {
	for _, prog := range f.Progs {
		if prog.Type != elf.PT_INTERP {
			continue
		}
		b, err := io.ReadAll(io.LimitReader(prog.Open(), 4096))
		if err != nil {
			return err
		}
		name := strings.Trim(string(b), "\x00/")
		if p.libs[name] {
			return nil
		}
		p.libs[name] = true
		at, ok := p.library(filepath.Base(name))
		if !ok {
			return fmt.Errorf("dynamic linker %s: not below %s", name, p.root)
		}
		data, err := readFileBounded(at, 16<<20)
		if err != nil {
			return err
		}
		p.out.file(name, modeProgram, data)
	}
	return nil
}

// static tells whether a program needs no dynamic linker.
func static(path string) bool {
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	for _, prog := range f.Progs {
		if prog.Type == elf.PT_INTERP {
			return false
		}
	}
	return f.Machine == elf.EM_X86_64
}
