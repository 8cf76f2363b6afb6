package inventorydb

import (
	"encoding/binary"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// fileRecord is the record of a file that was read, under its path.
type fileRecord struct {
	print    uint64
	era      uint64 // in which it was read; records of former eras have no packages
	number   uint64 // 0: it has no packages
	packages []uint64
}

func (f *fileRecord) append(b []byte) []byte {
	b = appendFixed(b, f.print)
	b = binary.AppendUvarint(b, f.era)
	b = binary.AppendUvarint(b, f.number)
	for _, id := range f.packages {
		b = binary.AppendUvarint(b, id)
	}
	return b
}

func readFile(b []byte) (fileRecord, error) {
	r := reader{b: b}
	f := fileRecord{print: r.fixed(), era: r.uvarint(), number: r.uvarint()}
	for len(r.b) > 0 {
		f.packages = append(f.packages, r.uvarint())
	}
	return f, r.end()
}

// packageRecord is the record of a package, under its number.
type packageRecord struct {
	created       time.Time
	kind          catalog.PackageType
	name, version string // the name in its normalized spelling
}

func (p *packageRecord) append(b []byte) []byte {
	b = appendTime(b, p.created)
	b = appendText(b, string(p.kind))
	b = appendText(b, p.name)
	return appendText(b, p.version)
}

func readPackage(b []byte) (packageRecord, error) {
	r := reader{b: b}
	p := packageRecord{created: r.time(), kind: catalog.PackageType(r.text()), name: r.text(), version: r.text()}
	return p, r.end()
}

// identity is the unique key of a package: kind, name and version.
func (p *packageRecord) identity() []byte {
	return []byte(string(p.kind) + "\x00" + p.name + "\x00" + p.version)
}

// nameOf returns the normalized spelling of a name.
func nameOf(p *catalog.Package) string {
	if p.Kind == catalog.Python {
		return catalog.PythonName(p.Name)
	}
	return p.Name
}

// keepable reports whether the name and version of a package can form its identity.
func keepable(p *catalog.Package) bool {
	return p.Name != "" && p.Version != "" && len(p.Name)+len(p.Version) < 8<<10 &&
		!strings.ContainsRune(p.Name+p.Version+string(p.Kind), 0)
}

// Flags of the entry of a package in a file.
const (
	replaced byte = 1 << iota
	spelled       // the name is spelled in another way
	bundled
	licensed
	placeFlags = replaced | spelled | bundled | licensed
)

// appendPlace encodes what one file adds to a package. Mostly that is only its presence.
func appendPlace(b []byte, p *catalog.Package) []byte {
	var flags byte
	if p.Replaced {
		flags |= replaced
	}
	if p.Name != nameOf(p) {
		flags |= spelled
	}
	if len(p.BundleIDs) > 0 {
		flags |= bundled
	}
	if len(p.Licenses) > 0 {
		flags |= licensed
	}
	b = append(b, flags)
	if flags&spelled != 0 {
		b = appendText(b, p.Name)
	}
	if flags&bundled != 0 {
		b = appendText(b, p.BundleIDs[0]) // a file is of one application
	}
	if flags&licensed != 0 {
		b = appendTexts(b, p.Licenses)
	}
	return b
}

// readPlace combines the entry of one file with the record of the package.
func readPlace(b []byte, of packageRecord) (catalog.Package, error) {
	p := catalog.Package{Kind: of.kind, Name: of.name, Version: of.version}
	r := reader{b: b}
	if len(b) == 0 || b[0]&^placeFlags != 0 {
		r.fail("a place is none")
		return p, r.err
	}
	flags := b[0]
	r.b = b[1:]
	p.Replaced = flags&replaced != 0
	if flags&spelled != 0 {
		p.Name = r.text()
	}
	if flags&bundled != 0 {
		p.BundleIDs = []string{r.text()}
	}
	if flags&licensed != 0 {
		p.Licenses = r.texts()
	}
	return p, r.end()
}

// Flags of a finding.
const (
	exploited byte = 1 << iota
	rejected
	unconfirmed
	findingFlags = exploited | rejected | unconfirmed
)

// appendFinding encodes a finding, except for its package, ID and date.
func appendFinding(b []byte, f *match.Finding) []byte {
	v := &f.Vulnerability
	var flags byte
	if v.Exploited {
		flags |= exploited
	}
	if v.Rejected {
		flags |= rejected
	}
	if f.Unconfirmed {
		flags |= unconfirmed
	}
	b = append(b, flags)
	b = appendFloat(b, v.Score.Base)
	for _, s := range []string{
		string(v.Score.Severity), v.Score.Version, v.Score.Vector, string(v.Score.Source),
		v.URL,
	} {
		b = appendText(b, s)
	}
	b = appendTexts(b, v.Related)
	b = appendTime(b, v.ExploitedSince)
	b = appendFloat(appendFloat(b, v.EPSS), v.EPSSPercentile)
	for _, s := range []string{f.CPE, f.Version, f.Constraint, f.Type, string(f.Source), f.Advisory} {
		b = appendText(b, s)
	}
	return appendTexts(b, f.Fixed)
}

// readFinding decodes a finding with the given ID.
func readFinding(b []byte, id string) (f match.Finding, err error) {
	r := reader{b: b}
	if len(b) == 0 || b[0]&^findingFlags != 0 {
		r.fail("a finding is none")
		return f, r.err
	}
	r.b = b[1:]
	v := &f.Vulnerability
	v.ID, v.Exploited, v.Rejected, f.Unconfirmed = id, b[0]&exploited != 0, b[0]&rejected != 0, b[0]&unconfirmed != 0
	v.Score = vulndb.Score{
		Base: r.float(), Severity: vulndb.Severity(r.text()), Version: r.text(), Vector: r.text(),
		Source: vulndb.Source(r.text()),
	}
	v.URL, v.Related, v.ExploitedSince = r.text(), r.texts(), r.time()
	v.EPSS, v.EPSSPercentile = r.float(), r.float()
	f.CPE, f.Version, f.Constraint, f.Type = r.text(), r.text(), r.text(), r.text()
	f.Source, f.Advisory, f.Fixed = vulndb.Source(r.text()), r.text(), r.texts()
	return f, r.end()
}
