package vmtest

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
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

// programs copies programs of unpacked userlands into a guest, with the shared libraries they need.
type programs struct {
	roots []string // of the userlands
	out   *cpioWriter
	libs  map[string]bool
}

// add copies a program to usr/sbin. A userland must have it.
func (p *programs) add(name string) error {
	path, ok := findProgram(p.roots, name)
	if !ok {
		return fmt.Errorf("program %s: not below %v", name, p.roots)
	}
	return p.copy(path, "usr/sbin/"+name, modeProgram)
}

// findProgram finds a program in unpacked userlands.
func findProgram(roots []string, name string) (path string, ok bool) {
	for _, root := range roots {
		for _, folder := range programFolders() {
			path := filepath.Join(root, folder, name)
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				return path, true
			}
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
	symbols, err := f.ImportedSymbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return fmt.Errorf("%s: %w", path, err)
	}
	if slices.ContainsFunc(symbols, unwinds) {
		needed = append(needed, unwinder)
	}
	for _, lib := range needed {
		if p.libs[lib] || strings.HasPrefix(lib, "ld-linux") {
			continue
		}
		p.libs[lib] = true
		at, ok := p.library(lib)
		if !ok {
			return fmt.Errorf("%s needs %s, which is not below %v", path, lib, p.roots)
		}
		if err := p.copy(at, guestLibraries+"/"+lib, modeProgram); err != nil {
			return err
		}
	}
	return p.loader(f)
}

// unwinder is loaded by glibc itself, by name, when a thread is cancelled or ends itself: no program names it.
const unwinder = "libgcc_s.so.1"

func unwinds(s elf.ImportedSymbol) bool {
	return s.Name == "pthread_cancel" || s.Name == "pthread_exit"
}

// library finds a shared library. Programs of several userlands share those of the first: one guest has one C library.
func (p *programs) library(name string) (path string, ok bool) {
	for _, root := range p.roots {
		for _, folder := range []string{guestLibraries, "lib/x86_64-linux-gnu", "usr/lib64", "lib64"} {
			path := filepath.Join(root, folder, name)
			if _, err := os.Stat(path); err == nil {
				return path, true
			}
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
			return fmt.Errorf("dynamic linker %s: not below %v", name, p.roots)
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
