package vmtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Edit is a change to the source of mlx5_core.
type Edit struct {
	// Name is a file's name. One that ends in .sed is a sed script whose first lines "# edits FILE" name what
	// it changes, below mlx5/core; anything else is a unified diff, with paths as in the kernel's tree.
	Name string
	// Text is what the file holds.
	Text []byte
}

// BuildModule makes an mlx5_core.ko of a fetched kernel with edits and returns its path in the cache. Only the files
// that the edits change are compiled, by the compiler that Debian used; all other code is Debian's, byte for byte:
// the new functions take the place of the old ones in Debian's own module. What was built before is not built again.
func (c Cache) BuildModule(ctx context.Context, kernel string, edits []Edit, log io.Writer) (string, error) {
	source, err := kernelSource(kernel)
	if err != nil {
		return "", err
	}
	root, ok := c.complete(source.sourcesPart())
	if !ok {
		return "", fmt.Errorf("source of kernel %s: %w", kernel, ErrMissing)
	}
	release, version, err := c.kernelVersion(source)
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%d %s %s\n", layout, release, version)
	for _, e := range edits {
		fmt.Fprintf(hash, "%s %d\n%s", filepath.Ext(e.Name), len(e.Text), e.Text)
	}
	place := filepath.Join(c.Dir, "modules", kernel+"-"+hex.EncodeToString(hash.Sum(nil)[:8]), "mlx5_core.ko")
	if _, err := os.Stat(place); err == nil {
		return place, nil
	}
	stock, err := c.stockModule(kernel)
	if err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(filepath.Join(root, buildFolder), "")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	b := build{buildRoot: buildRoot{dir: root, log: log}, work: work, in: "/" + buildFolder + "/" + filepath.Base(work), release: release}
	ko, err := b.module(ctx, stock, edits)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
		return "", err
	}
	// Beside its place first: somebody else may build the same.
	part := place + "." + filepath.Base(work) + ".part"
	if err := os.WriteFile(part, ko, 0o644); err != nil {
		return "", err
	}
	return place, os.Rename(part, place)
}

// stockModule is the kernel's own mlx5_core, decompressed.
func (c Cache) stockModule(kernel string) ([]byte, error) {
	k, err := c.Kernel(kernel)
	if err != nil {
		return nil, err
	}
	u, err := c.Userland()
	if err != nil {
		return nil, err
	}
	tree, err := openModules(k.Modules, u.Busybox)
	if err != nil {
		return nil, err
	}
	path, ok := tree.files["mlx5_core"]
	if !ok {
		return nil, fmt.Errorf("kernel %s has no mlx5_core", kernel)
	}
	return tree.read(path)
}

// build is one build of a module.
type build struct {
	buildRoot
	work    string // its folder
	in      string // the folder's path in the root
	release string
}

// module makes the module.
func (b build) module(ctx context.Context, stock []byte, edits []Edit) ([]byte, error) {
	if err := b.run(ctx, fmt.Sprintf("cp -a /%s/drivers %s/", sourceFolder, b.in)); err != nil {
		return nil, fmt.Errorf("copy the source: %w", err)
	}
	changed := make(map[string]bool)
	before, err := b.sums()
	if err != nil {
		return nil, err
	}
	for i, e := range edits {
		if err := b.apply(ctx, i, e); err != nil {
			return nil, fmt.Errorf("edit %s: %w", e.Name, err)
		}
		after, err := b.sums()
		if err != nil {
			return nil, err
		}
		files := differing(before, after)
		if len(files) == 0 {
			return nil, fmt.Errorf("edit %s changes nothing in kernel %s", e.Name, b.release)
		}
		for _, f := range files {
			if filepath.Ext(f) != ".c" || !strings.HasPrefix(f, coreFolder+"/") {
				return nil, fmt.Errorf("edit %s changes %s: only .c files of %s can be exchanged in the kernel's module", e.Name, f, coreFolder)
			}
			changed[strings.TrimPrefix(f, coreFolder+"/")] = true
		}
		before = after
	}
	if err := b.compile(ctx, slices.Sorted(maps.Keys(changed))); err != nil {
		return nil, fmt.Errorf("compile: %w", err)
	}
	return b.exchange(ctx, stock)
}

// sums are hashes of the source's files, by path.
func (b build) sums() (map[string][32]byte, error) {
	sums := make(map[string][32]byte)
	err := filepath.WalkDir(filepath.Join(b.work, "drivers"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(b.work, path)
		sums[filepath.ToSlash(name)] = sha256.Sum256(data)
		return err
	})
	return sums, err
}

// differing are the files that are new, gone or not the same.
func differing(a, b map[string][32]byte) []string {
	var names []string
	for name, sum := range b {
		if old, ok := a[name]; !ok || old != sum {
			names = append(names, name)
		}
	}
	for name := range a {
		if _, ok := b[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// apply applies edit i.
func (b build) apply(ctx context.Context, i int, e Edit) error {
	name := fmt.Sprintf("edit%d", i)
	if err := os.WriteFile(filepath.Join(b.work, name), e.Text, 0o644); err != nil {
		return err
	}
	if filepath.Ext(e.Name) != ".sed" {
		return b.run(ctx, fmt.Sprintf("cd %s && exec patch -p1 --batch --no-backup-if-mismatch -r - <%s", b.in, name))
	}
	files, err := sedFiles(e.Text)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := b.run(ctx, fmt.Sprintf("cd %s && exec sed -i -f %s/%s '%s'", b.in+"/"+coreFolder, b.in, name, f)); err != nil {
			return err
		}
	}
	return nil
}

// sedFiles are the files that a sed script's first lines name.
func sedFiles(script []byte) ([]string, error) {
	var files []string
	for line := range strings.Lines(string(script)) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "# edits ")
		if !ok {
			break
		}
		if !filepath.IsLocal(name) || strings.ContainsAny(name, "'\n") {
			return nil, fmt.Errorf("%q is no file below %s", name, coreFolder)
		}
		files = append(files, name)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf(`its first line must be "# edits FILE", a file below %s`, coreFolder)
	}
	return files, nil
}

// compile compiles files into one object, as the kernel's build does for a module.
func (b build) compile(ctx context.Context, files []string) error {
	var kbuild strings.Builder
	kbuild.WriteString("obj-m := mlx5_core.o\nsubdir-ccflags-y += -I$(src)\nmlx5_core-y :=")
	for _, f := range files {
		kbuild.WriteString(" " + strings.TrimSuffix(f, ".c") + ".o")
	}
	kbuild.WriteByte('\n')
	core := filepath.Join(b.work, coreFolder)
	if err := os.WriteFile(filepath.Join(core, "Kbuild"), []byte(kbuild.String()), 0o644); err != nil {
		return err
	}
	// Debugging information is most of an object and no code.
	return b.run(ctx, fmt.Sprintf("exec make -j4 -C /usr/src/linux-headers-%s M=%s KCFLAGS=-g0 mlx5_core.o", b.release, b.in+"/"+coreFolder))
}

// dropped are sections of the object that list what the kernel's module lists already, for the old functions, by
// name: exported symbols and trace events. And the list of functions that nobody calls by pointer, which was made
// without knowing who calls these.
func dropped() string {
	var b strings.Builder
	for _, s := range []string{
		".export_symbol", "___ksymtab*", "___kcrctab*", "__ksymtab_strings",
		"__tracepoints_ptrs", "_ftrace_events", "__bpf_raw_tp_map", ".ibt_endbr_seal",
	} {
		fmt.Fprintf(&b, " -R '%s' -R '.rela%s'", s, s)
	}
	return b.String()
}

// exchange links the object into the kernel's module in place of what it had under the same names. Calls between
// files go by name, so that nobody calls the old functions any more.
func (b build) exchange(ctx context.Context, stock []byte) ([]byte, error) {
	if err := os.WriteFile(filepath.Join(b.work, "stock.ko"), stock, 0o644); err != nil {
		return nil, err
	}
	object := filepath.Join(b.work, coreFolder, "mlx5_core.o")
	if err := checkObject(object); err != nil {
		return nil, err
	}
	err := b.run(ctx, fmt.Sprintf(`cd %s
		objcopy%s %s/mlx5_core.o new.o
		nm --defined-only -g new.o | awk '{ print $3 }' >names
		objcopy --weaken-symbols=names stock.ko weak.ko
		exec ld -m elf_x86_64 -r -T /usr/src/linux-headers-%s/arch/x86/module.lds --build-id=none -o mlx5_core.ko new.o weak.ko`,
		b.in, dropped(), coreFolder, b.release))
	if err != nil {
		return nil, fmt.Errorf("link: %w", err)
	}
	ko, err := os.ReadFile(filepath.Join(b.work, "mlx5_core.ko"))
	if err != nil {
		return nil, err
	}
	return ko, checkImports(stock, ko)
}

// checkObject refuses objects with what a module can't have twice.
func checkObject(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for section, what := range map[string]string{"__param": "module parameters", ".gnu.linkonce.this_module": "a module's description"} {
		if f.Section(section) != nil {
			return fmt.Errorf("a changed file declares %s, which the kernel's module would then have twice", what)
		}
	}
	return nil
}

// checkImports: the kernel loads a module only if it knows the version of every symbol that the module takes from
// elsewhere, and the list is the old module's.
func checkImports(stock, ko []byte) error {
	old, err := imports(stock)
	if err != nil {
		return err
	}
	now, err := imports(ko)
	if err != nil {
		return err
	}
	var added []string
	for name := range now {
		if !old[name] {
			added = append(added, name)
		}
	}
	if len(added) > 0 {
		slices.Sort(added)
		return fmt.Errorf("the edit needs %s of the kernel, which its own mlx5_core does not: the kernel would refuse the module",
			strings.Join(added, ", "))
	}
	return nil
}

// imports are the symbols that a module takes from elsewhere.
func imports(ko []byte) (map[string]bool, error) {
	f, err := elf.NewFile(bytes.NewReader(ko))
	if err != nil {
		return nil, err
	}
	symbols, err := f.Symbols()
	if err != nil {
		return nil, err
	}
	names := make(map[string]bool)
	for _, s := range symbols {
		if s.Section == elf.SHN_UNDEF && s.Name != "" {
			names[s.Name] = true
		}
	}
	if len(names) == 0 {
		return nil, errors.New("a module that needs nothing of the kernel")
	}
	return names, nil
}
