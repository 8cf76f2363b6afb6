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
	stamp      uint64
	resetCount uint64 // in which it was read; records of former eras have no packages
	fileNumber uint64 // 0: it has no packages
	packages   []uint64
}

func (f *fileRecord) append(b []byte) []byte {
	b = appendUint64(b, f.stamp)
	b = binary.AppendUvarint(b, f.resetCount)
	b = binary.AppendUvarint(b, f.fileNumber)
	for _, id := range f.packages {
		b = binary.AppendUvarint(b, id)
	}
	return b
}

func parseFileRecord(b []byte) (fileRecord, error) {
	r := recordReader{data: b}
	f := fileRecord{stamp: r.uint64(), resetCount: r.uvarint(), fileNumber: r.uvarint()}
	for len(r.data) > 0 {
		f.packages = append(f.packages, r.uvarint())
	}
	return f, r.finish()
}

// packageRecord is the record of a package, under its number.
type packageRecord struct {
	created       time.Time
	kind          catalog.PackageType
	name, version string // the name in its normalized spelling
	origin        packageOrigin
}

// packageOrigin describes where a package is from. Records of packages without one end before it, as all records of
// earlier versions of this program do.
type packageOrigin struct {
	distribution, owner, source, sourceVersion, arch string
}

func originOf(p *catalog.Package) packageOrigin {
	return packageOrigin{p.Distribution, p.Owner, p.Source, p.SourceVersion, p.Arch}
}

func (p *packageRecord) append(b []byte) []byte {
	b = appendTime(b, p.created)
	b = appendString(b, string(p.kind))
	b = appendString(b, p.name)
	b = appendString(b, p.version)
	if o := p.origin; o != (packageOrigin{}) {
		for _, text := range []string{o.distribution, o.owner, o.source, o.sourceVersion, o.arch} {
			b = appendString(b, text)
		}
	}
	return b
}

func parsePackageRecord(b []byte) (packageRecord, error) {
	r := recordReader{data: b}
	p := packageRecord{created: r.time(), kind: catalog.PackageType(r.str()), name: r.str(), version: r.str()}
	if len(r.data) > 0 {
		p.origin = packageOrigin{r.str(), r.str(), r.str(), r.str(), r.str()}
	}
	return p, r.finish()
}

// identity is the unique key of a package: kind, name and version, and of one that an operating system or
// Homebrew installed also owner, architecture, distribution and source.
func (p *packageRecord) identity() []byte {
	o := p.origin
	if o.source+o.sourceVersion == "" {
		return p.formerIdentity()
	}
	return []byte(strings.Join([]string{
		string(p.kind), p.name, p.version, o.owner, o.arch, o.distribution, o.source, o.sourceVersion,
	}, "\x00"))
}

// formerIdentity is the key of a package in files of earlier versions of this program, where a package had the source
// that was read first.
func (p *packageRecord) formerIdentity() []byte {
	key := string(p.kind) + "\x00" + p.name + "\x00" + p.version
	if o := p.origin; o.owner+o.arch+o.distribution != "" {
		key += "\x00" + o.owner + "\x00" + o.arch + "\x00" + o.distribution
	}
	return []byte(key)
}

// normalizedName returns the normalized spelling of a name.
func normalizedName(p *catalog.Package) string {
	if p.Kind == catalog.Python {
		return catalog.PythonName(p.Name)
	}
	return p.Name
}

// canBeStored reports whether the name and version of a package can form its identity.
func canBeStored(p *catalog.Package) bool {
	text := p.Name + p.Version + string(p.Kind) + p.Owner + p.Arch + p.Distribution + p.Source + p.SourceVersion
	return p.Name != "" && p.Version != "" && len(text) < 16<<10 && !strings.ContainsRune(text, 0)
}

// Flags of the entry of a package in a file.
const (
	flagReplaced byte = 1 << iota
	flagSpelled       // the name is spelled in another way
	flagBundled
	flagLicensed
	locationFlags = flagReplaced | flagSpelled | flagBundled | flagLicensed
)

// appendLocation encodes what one file adds to a package. Mostly that is only its presence.
func appendLocation(b []byte, p *catalog.Package) []byte {
	var flags byte
	if p.Replaced {
		flags |= flagReplaced
	}
	if p.Name != normalizedName(p) {
		flags |= flagSpelled
	}
	if len(p.BundleIDs) > 0 {
		flags |= flagBundled
	}
	if len(p.Licenses) > 0 {
		flags |= flagLicensed
	}
	b = append(b, flags)
	if flags&flagSpelled != 0 {
		b = appendString(b, p.Name)
	}
	if flags&flagBundled != 0 {
		b = appendString(b, p.BundleIDs[0]) // a file is of one application
	}
	if flags&flagLicensed != 0 {
		b = appendStrings(b, p.Licenses)
	}
	return b
}

// readLocation combines the entry of one file with the record of the package.
func readLocation(b []byte, of packageRecord) (catalog.Package, error) {
	p := catalog.Package{
		Kind: of.kind, Name: of.name, Version: of.version, Distribution: of.origin.distribution,
		Owner: of.origin.owner, Source: of.origin.source, SourceVersion: of.origin.sourceVersion, Arch: of.origin.arch,
	}
	r := recordReader{data: b}
	if len(b) == 0 || b[0]&^locationFlags != 0 {
		r.setError("a place is none")
		return p, r.err
	}
	flags := b[0]
	r.data = b[1:]
	p.Replaced = flags&flagReplaced != 0
	if flags&flagSpelled != 0 {
		p.Name = r.str()
	}
	if flags&flagBundled != 0 {
		p.BundleIDs = []string{r.str()}
	}
	if flags&flagLicensed != 0 {
		p.Licenses = r.strs()
	}
	return p, r.finish()
}

// Flags of a finding.
const (
	flagExploited byte = 1 << iota
	flagRejected
	flagUnconfirmed
	flagMayBePatched // DistroPatched is unknown
	findingFlags     = flagExploited | flagRejected | flagUnconfirmed | flagMayBePatched
)

// appendFinding encodes a finding, except for its package, ID and date.
func appendFinding(b []byte, f *match.Finding) []byte {
	v := &f.Vulnerability
	var flags byte
	if v.Exploited {
		flags |= flagExploited
	}
	if v.Rejected {
		flags |= flagRejected
	}
	if f.Unconfirmed {
		flags |= flagUnconfirmed
	}
	if f.DistroPatched != "" {
		flags |= flagMayBePatched
	}
	b = append(b, flags)
	b = appendFloat(b, v.Score.Base)
	for _, s := range []string{
		string(v.Score.Severity), v.Score.Version, v.Score.Vector, string(v.Score.Source),
		v.URL,
	} {
		b = appendString(b, s)
	}
	b = appendStrings(b, v.Related)
	b = appendTime(b, v.ExploitedSince)
	b = appendFloat(appendFloat(b, v.EPSS), v.EPSSPercentile)
	for _, s := range []string{f.CPE, f.Version, f.Constraint, f.Type, string(f.Source), f.Advisory} {
		b = appendString(b, s)
	}
	return appendStrings(b, f.Fixed)
}

// parseFinding decodes a finding with the given ID.
func parseFinding(b []byte, id string) (f match.Finding, err error) {
	r := recordReader{data: b}
	if len(b) == 0 || b[0]&^findingFlags != 0 {
		r.setError("a finding is none")
		return f, r.err
	}
	r.data = b[1:]
	v := &f.Vulnerability
	v.ID, v.Exploited, v.Rejected, f.Unconfirmed = id, b[0]&flagExploited != 0, b[0]&flagRejected != 0,
		b[0]&flagUnconfirmed != 0
	if b[0]&flagMayBePatched != 0 {
		f.DistroPatched = match.DistroPatchedUnknown
	}
	v.Score = vulndb.Score{
		Base: r.float(), Severity: vulndb.Severity(r.str()), Version: r.str(), Vector: r.str(),
		Source: vulndb.Source(r.str()),
	}
	v.URL, v.Related, v.ExploitedSince = r.str(), r.strs(), r.time()
	v.EPSS, v.EPSSPercentile = r.float(), r.float()
	f.CPE, f.Version, f.Constraint, f.Type = r.str(), r.str(), r.str(), r.str()
	f.Source, f.Advisory, f.Fixed = vulndb.Source(r.str()), r.str(), r.strs()
	return f, r.finish()
}
