// Command minimize creates the advisories that the truth table is tested with everywhere: from the
// whole sets those records that the table cites or that concern the same vulnerabilities, reduced
// to what decides (IDs, packages, ranges, criteria, vectors). They contain no prose of the sources:
// no summary, no details, no description, no references.
package main

import (
	"archive/tar"
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/buildyard/buildyard/internal/scan/match/truthtable"
)

func main() {
	from := flag.String("from", "", "directory with the whole sets, NAME.tar.zst each")
	to := flag.String("to", "internal/scan/match/truthtable/testdata", "directory to write to")
	flag.Parse()
	if err := run(*from, *to); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(from, to string) error {
	for _, set := range truthtable.AdvisorySets {
		files, err := reduceSet(from, set)
		if err != nil {
			return err
		}
		packed, err := packArchive(files)
		if err != nil {
			return fmt.Errorf("packing %s: %w", set, err)
		}
		if err := os.WriteFile(filepath.Join(to, set+".tar.zst"), packed, 0o644); err != nil {
			return fmt.Errorf("writing %s: %w", set, err)
		}
		fmt.Printf("%s: %d records, %d bytes\n", set, len(files), len(packed))
	}
	return nil
}

// recordFile is a record of a set, by its name within.
type recordFile struct {
	name string
	data []byte
}

// reduceSet returns the records of a set that the table needs, sorted by name.
func reduceSet(from, set string) ([]recordFile, error) {
	rows, err := truthtable.Rows()
	if err != nil {
		return nil, err
	}
	cited, ids := map[string]bool{}, map[string]bool{}
	for _, r := range rows {
		cited[r.Advisory], ids[r.Vulnerability] = true, true
	}
	form := formats[set]
	var out []recordFile
	err = truthtable.ReadSet(from, set, func(name string, data []byte) error {
		id := strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))
		if !form.isRecord(name) || form.nameHasIDs && !ids[id] && !cited[name] {
			return nil
		}
		small, about, err := form.reduce(data, ids)
		if err != nil {
			return fmt.Errorf("reducing %s: %w", name, err)
		}
		if cited[name] || slices.ContainsFunc(append(about, id), func(id string) bool { return ids[id] }) {
			out = append(out, recordFile{strings.TrimPrefix(name, set+"/"), small})
		}
		return nil
	})
	slices.SortFunc(out, func(a, b recordFile) int { return strings.Compare(a.name, b.name) })
	return out, err
}

// packArchive creates an archive that depends on the files alone.
func packArchive(files []recordFile) ([]byte, error) {
	var out bytes.Buffer
	z, err := zstd.NewWriter(&out, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(z)
	for _, f := range files {
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: f.name, Mode: 0o644, Size: int64(len(f.data)),
			ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR,
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
