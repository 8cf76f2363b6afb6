// Command walk scans a folder for packages and prints them as JSON, one a line: what the
// image scanner does with a folder but for its database.
//
//	go run ./test/bench/scan/walk FOLDER
//
// It is not a scanner for people: it knows no flags and no advisories.
//
// Invariant: what it does is one call of catalog.Scan.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/cpe"
	"github.com/buildyard/buildyard/internal/scan/catalog/kinds"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: walk FOLDER")
	}
	tree, closer, err := catalog.Folder(args[0])
	if err != nil {
		return err
	}
	defer closer.Close()
	r, err := catalog.Scan(context.Background(), tree, catalog.Options{Extractors: kinds.All(), CPEs: cpe.Of})
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	enc := json.NewEncoder(out)
	for _, p := range r.Packages {
		if err := enc.Encode(p); err != nil {
			return err
		}
	}
	for _, w := range append(r.Warnings, r.Skipped...) {
		fmt.Fprintf(os.Stderr, "%s: %s\n", w.Path, w.What)
	}
	fmt.Fprintf(os.Stderr, "%d files, %d folders, %d read, %d unread, %d bytes, %d packages\n", r.Files, r.Folders, r.Read, r.Unread, r.Bytes, len(r.Packages))
	return out.Flush()
}
