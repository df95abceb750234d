package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"cxkit/prm/spec"
)

func main() {
	dir := flag.String("dir", ".", "folder of package prm")
	flag.Parse()
	if err := run(*dir); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// run writes every generated file of package prm below dir and removes generated files that are no longer made.
func run(dir string) error {
	files, err := Render(spec.Files())
	if err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(dir, "zz_*.go"))
	if err != nil {
		return err
	}
	for _, path := range old {
		if _, made := files[filepath.Base(path)]; !made {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
