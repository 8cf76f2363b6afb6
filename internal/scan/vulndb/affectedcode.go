package vulndb

import (
	"fmt"
	"slices"
	"strings"
)

// Limits of the code that one advisory names in one module. Records with more are stored without it.
const (
	maxCodePackages  = 1_000
	maxCodeSymbols   = 20_000 // of all packages together
	maxCodeNameBytes = 1_000
)

// AffectedCode is the code of a module that an advisory is about, in some of its versions.
type AffectedCode struct {
	Ranges   []Range // of the versions; without any it is all that the advisory is about
	Packages []CodePackage
}

// CodePackage is a package of Go with vulnerable code.
type CodePackage struct {
	Path    string   // import path
	Symbols []string // functions ("Parse") and methods ("Decoder.Decode"), sorted; without any it is the whole package
	GOOS    []string // operating systems, sorted; without any it is all
	GOARCH  []string // architectures, sorted; without any it is all
}

// AdvisoryCode is what one advisory names in one module.
type AdvisoryCode struct {
	ID     string // of the advisory
	Module string
	Code   []AffectedCode
}

// Key returns the sort key of the code: advisory, then module.
func (c AdvisoryCode) Key() []byte { return codeKey(c.ID, c.Module) }

func codeKey(id, module string) []byte { return []byte(id + "\x00" + module) }

// Problem returns why the code cannot be stored; "" for code within the limits.
func (c AdvisoryCode) Problem() string {
	packages, symbols := 0, 0
	for _, a := range c.Code {
		packages += len(a.Packages)
		for _, p := range a.Packages {
			symbols += len(p.Symbols)
			for _, name := range slices.Concat([]string{p.Path}, p.Symbols, p.GOOS, p.GOARCH) {
				if name == "" || len(name) > maxCodeNameBytes {
					return fmt.Sprintf("a name has %d bytes", len(name))
				}
			}
		}
	}
	if packages > maxCodePackages || symbols > maxCodeSymbols {
		return fmt.Sprintf("it has %d packages and %d symbols", packages, symbols)
	}
	return ""
}

func (e *encoder) deltaStrings(list []string) {
	e.uint(uint64(len(list)))
	before := ""
	for _, s := range list {
		e.deltaString(before, s)
		before = s
	}
}

func (d *decoder) deltaStrings() []string {
	n := d.itemCount(16)
	if n == 0 {
		return nil
	}
	list := make([]string, 0, n)
	before := ""
	for range n {
		before = d.deltaString(before)
		list = append(list, before)
	}
	return list
}

func (e *encoder) affectedCode(list []AffectedCode) {
	e.uint(uint64(len(list)))
	for _, a := range list {
		e.uint(uint64(len(a.Ranges)))
		for _, r := range a.Ranges {
			e.versionRange(r)
		}
		e.uint(uint64(len(a.Packages)))
		for _, p := range a.Packages {
			e.str(p.Path)
			e.deltaStrings(p.Symbols)
			e.strs(p.GOOS)
			e.strs(p.GOARCH)
		}
	}
}

func (d *decoder) affectedCode() []AffectedCode {
	var list []AffectedCode
	for range d.itemCount(48) {
		var a AffectedCode
		for range d.itemCount(56) {
			a.Ranges = append(a.Ranges, d.versionRange())
		}
		for range d.itemCount(88) {
			a.Packages = append(a.Packages,
				CodePackage{Path: d.str(), Symbols: d.deltaStrings(), GOOS: d.strs(), GOARCH: d.strs()})
		}
		if d.err != nil {
			return nil
		}
		list = append(list, a)
	}
	return list
}

// AppendBinary appends the code.
func (c AdvisoryCode) AppendBinary(b []byte) ([]byte, error) {
	e := encoder{b}
	e.str(c.ID)
	e.str(c.Module)
	e.affectedCode(c.Code)
	return e.buf, nil
}

// UnmarshalBinary reads what AppendBinary appended.
func (c *AdvisoryCode) UnmarshalBinary(b []byte) error {
	d := newDecoder(b)
	*c = AdvisoryCode{ID: d.str(), Module: d.str(), Code: d.affectedCode()}
	return d.finish()
}

// Code adds the code that an advisory names in a module; calls are in the order of AdvisoryCode.Key.
func (w *Writer) Code(c AdvisoryCode) error {
	if strings.Contains(c.ID+c.Module, "\x00") {
		return fmt.Errorf("%w: its key has a zero byte", ErrRecordLimit)
	}
	w.encoder.buf = w.encoder.buf[:0]
	w.encoder.affectedCode(c.Code)
	return w.addEntry(codeSection, c.Key(), w.encoder.buf)
}

// AffectedCode returns the code that an advisory names in a module; nil where it names none. Databases that earlier
// programs made have no code.
func (db *DB) AffectedCode(advisory, module string) ([]AffectedCode, error) {
	b, found, err := db.trees[codeSection].get(codeKey(advisory, module))
	if err != nil || !found {
		return nil, err
	}
	d := newDecoder(b)
	list := d.affectedCode()
	return list, d.finish()
}

// AppliesTo reports whether the package is vulnerable on a platform. An unknown one, "", may be any.
func (p CodePackage) AppliesTo(goos, goarch string) bool {
	return isListed(p.GOOS, goos) && isListed(p.GOARCH, goarch)
}

func isListed(list []string, s string) bool {
	return s == "" || len(list) == 0 || slices.Contains(list, s)
}
