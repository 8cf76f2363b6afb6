// Package executable finds packages that are recorded in compiled programs: Go's build information
// and the list that cargo auditable leaves in Rust programs.
//
// It does not disassemble: a program without such data has no packages.
//
// Invariant: of other files only the first bytes are read, of a program only its headers and the
// sections that list packages.
package executable

import (
	"bytes"
	"compress/zlib"
	"context"
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/jsonlimit"
)

// Limits on what is read.
const (
	maxCrateListBytes = 8 << 20 // bytes of the unpacked list of a Rust program
	maxCrates         = 200_000 // objects and lists in it: each crate has two
	maxCrateElements  = 1 << 20 // of these
	maxArches         = 16      // of a universal program
)

// Programs reads ELF, Mach-O, universal and PE files.
type Programs struct{}

var _ catalog.Extractor = Programs{}

// Name returns the name of the extractor in warnings.
func (Programs) Name() string { return "program" }

// Patterns selects possible programs.
func (Programs) Patterns() catalog.Patterns {
	return catalog.Patterns{Executables: true, PartialRead: true}
}

// FileRequired accepts all.
func (Programs) FileRequired(string) bool { return true }

// program is a program for one machine.
type program struct {
	r              *guardedReader
	hasGoBuildInfo bool                              // has Go's build information
	crateSection   interface{ Open() io.ReadSeeker } // section with the list of crates; nil for none
}

// Extract reads one.
func (Programs) Extract(_ context.Context, f *catalog.File) ([]catalog.Package, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	images, err := openProgram(r, f.Size(), f.ReserveMemory)
	if errors.Is(err, catalog.ErrTooLarge) {
		return nil, err
	}
	if err != nil || len(images) == 0 {
		return nil, nil //nolint:nilerror // not a program, or one that no machine can run
	}
	var out []catalog.Package
	var errs []error
	for _, i := range images {
		if i.hasGoBuildInfo {
			modules, err := goPackages(i.r)
			out, errs = append(out, modules...), append(errs, err)
		}
		if i.crateSection != nil {
			crates, err := rustPackages(i.crateSection.Open())
			out, errs = append(out, crates...), append(errs, err)
		}
	}
	return out, errors.Join(errs...)
}

// openProgram reads the headers of a program.
func openProgram(r io.ReaderAt, size int64, reserve func() error) ([]program, error) {
	var magic [8]byte
	if _, err := r.ReadAt(magic[:], 0); err != nil {
		return nil, err
	}
	switch m := string(magic[:4]); {
	case m == "\x7fELF":
		return openELF(guard(r, size, reserve))
	case m == "\xfe\xed\xfa\xce", m == "\xfe\xed\xfa\xcf", m == "\xce\xfa\xed\xfe", m == "\xcf\xfa\xed\xfe":
		return openMachO(guard(r, size, reserve))
	// else a class of Java
	case m == "\xca\xfe\xba\xbe" && magic[4] == 0 && magic[5] == 0 && magic[6] == 0 && magic[7] <= maxArches:
		return openUniversal(r, size, reserve)
	case m[:2] == "MZ":
		return openPE(guard(r, size, reserve))
	default:
		return nil, nil
	}
}

func openELF(r *guardedReader) ([]program, error) {
	if err := r.checkELF(); err != nil {
		return nil, err
	}
	f, err := elf.NewFile(r)
	if err != nil {
		return nil, r.openError(err)
	}
	i := program{r: r}
	for _, s := range f.Sections {
		switch s.Name {
		case ".go.buildinfo":
			i.hasGoBuildInfo = true
		case ".dep-v0":
			i.crateSection = s
		}
	}
	return []program{i}, nil
}

func openMachO(r *guardedReader) ([]program, error) {
	if err := r.hideMachO(); err != nil {
		return nil, err
	}
	f, err := macho.NewFile(r)
	if err != nil {
		return nil, r.openError(err)
	}
	i := program{r: r}
	for _, s := range f.Sections {
		switch s.Name {
		case "__go_buildinfo":
			i.hasGoBuildInfo = true
		case ".dep-v0":
			i.crateSection = s
		}
	}
	return []program{i}, nil
}

// openUniversal reads a file with a program for each machine: after their number the type, offset and size of each.
func openUniversal(r io.ReaderAt, size int64, reserve func() error) ([]program, error) {
	var head [8 + maxArches*universalMachine]byte
	n, err := r.ReadAt(head[:], 0)
	count := int(binary.BigEndian.Uint32(head[4:]))
	if n < 8+count*universalMachine {
		return nil, orUnexpectedEOF(err)
	}
	var out []program
	for m := head[8:]; count > 0; count, m = count-1, m[universalMachine:] {
		offset, length := int64(binary.BigEndian.Uint32(m[8:])), int64(binary.BigEndian.Uint32(m[12:]))
		if offset > size || length > size-offset {
			continue
		}
		one, err := openMachO(guard(io.NewSectionReader(r, offset, length), length, reserve))
		if err != nil {
			return nil, err
		}
		out = append(out, one...)
	}
	return out, nil
}

func openPE(r *guardedReader) ([]program, error) {
	if err := r.hidePE(); err != nil {
		return nil, err
	}
	f, err := pe.NewFile(r)
	if err != nil {
		return nil, r.openError(err)
	}
	i := program{r: r}
	for _, s := range f.Sections {
		switch s.Name {
		case ".dep-v0":
			i.crateSection = s
		case ".data":
			i.hasGoBuildInfo = i.hasGoBuildInfo || isGoBuildInfo(s)
		}
	}
	return []program{i}, nil
}

// isGoBuildInfo reports whether a section of data begins with Go's build information, which has no
// separate section in PE files.
func isGoBuildInfo(s *pe.Section) bool {
	head := make([]byte, 64<<10)
	n, _ := s.ReadAt(head, 0)
	return bytes.Contains(head[:n], []byte("\xff Go buildinf:"))
}

// auditCrates is the list that cargo auditable writes, in its format.
type auditCrates struct {
	Packages []struct {
		Name    string `json:"name"`
		Version string `json:"version"`
		Source  string `json:"source"`
		Kind    string `json:"kind"` // "build" is not in the program
		Root    bool   `json:"root"` // the program itself
	} `json:"packages"`
}

// rustPackages lists the crates of a Rust program.
func rustPackages(r io.Reader) ([]catalog.Package, error) {
	z, err := zlib.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("read the list of Rust crates: %w", err)
	}
	defer z.Close()
	data, err := io.ReadAll(io.LimitReader(z, maxCrateListBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read the list of Rust crates: %w", err)
	}
	if len(data) > maxCrateListBytes {
		return nil, fmt.Errorf("read the list of Rust crates: %w: more than %d bytes", catalog.ErrTooLarge,
			maxCrateListBytes)
	}
	if err := jsonlimit.CheckCounts(data, maxCrates, maxCrateElements); err != nil {
		return nil, fmt.Errorf("read the list of Rust crates: %w", err)
	}
	var list auditCrates
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("read the list of Rust crates: %w", err)
	}
	var out []catalog.Package
	for _, c := range list.Packages {
		if c.Kind == "build" {
			continue
		}
		out = append(out, catalog.Package{
			Kind: catalog.Rust, Name: c.Name, Version: c.Version, Replaced: c.Source == "local" && !c.Root,
		})
	}
	return out, nil
}
