package catalog

import (
	"cmp"
	"hash/fnv"
	"io"
	"math"
	"slices"
	"strings"
)

// Merge combines packages with the same kind, name, version, owner, architecture, distribution and source, whatever
// their order. Packages of different sources are different ones: advisories are about sources, and the database of a
// system must not be changed by a file with the same package that a user wrote.
func Merge(all []Package) []Package {
	s := newPackageSet(Limits{Packages: math.MaxInt / 2, TextBytes: math.MaxInt64 / 2})
	for _, p := range all {
		s.add(p)
	}
	return s.packages()
}

// packageSet collects packages during a scan, each once.
type packageSet struct {
	byKey          map[packageKey]*packageEntry
	kept           boundedSet[*packageEntry]
	droppedEntries int // entries of files whose packages are not kept
}

// packageEntry is a package and data that is only needed during a scan.
type packageEntry struct {
	Package
	key      packageKey
	mentions int // of files that name it
}

func newPackageSet(l Limits) *packageSet {
	s := &packageSet{byKey: map[packageKey]*packageEntry{}}
	s.kept = boundedSet[*packageEntry]{
		compare: func(a, b *packageEntry) int { return a.key.compare(b.key) },
		size:    func(h *packageEntry) int64 { return h.sizeBytes() },
		onDrop: func(h *packageEntry) {
			s.droppedEntries += h.mentions
			delete(s.byKey, h.key)
		},
		maxLen: l.Packages, maxBytes: l.TextBytes,
	}
	return s
}

// add adds a package that a file names. Its texts are copied: they may be slices of the whole file.
func (s *packageSet) add(p Package) {
	k := packageKeyOf(p)
	if h := s.byKey[k]; h != nil {
		h.mentions++
		s.kept.addGrowth(h.merge(p))
		return
	}
	if s.kept.cutoff != nil && k.compare((*s.kept.cutoff).key) >= 0 {
		s.droppedEntries++ // it would be dropped again
		return
	}
	h := &packageEntry{Package: p, mentions: 1}
	h.Name, h.Version = strings.Clone(p.Name), strings.Clone(p.Version)
	h.BundleIDs, h.Licenses, h.Locations = nil, nil, slices.Clone(p.Locations)
	appendClones(&h.BundleIDs, p.BundleIDs)
	appendClones(&h.Licenses, p.Licenses)
	for _, text := range h.origin() {
		*text = strings.Clone(*text)
	}
	h.key = packageKeyOf(h.Package)
	s.byKey[h.key] = h
	s.kept.add(h)
}

// origin returns the fields that say where the package is from.
func (p *Package) origin() [5]*string {
	return [...]*string{&p.Distribution, &p.Owner, &p.Source, &p.SourceVersion, &p.Arch}
}

// HasOrigin reports whether one of these fields is set.
func (p *Package) HasOrigin() bool {
	return p.Distribution != "" || p.Owner != "" || p.Source != "" || p.SourceVersion != "" || p.Arch != ""
}

// appendClones appends copies of texts, and returns the bytes they take. Files of one package usually
// have the same texts in turn.
func appendClones(list *[]string, more []string) (grown int64) {
	for _, text := range more {
		if n := len(*list); n == 0 || (*list)[n-1] != text {
			*list = append(*list, strings.Clone(text))
			grown += stringBytes(text)
		}
	}
	return grown
}

// packageBaseBytes is about the size of a package without its texts: itself, its names in other systems, and
// its entry in the set. In bytes.
const packageBaseBytes = 600

// stringOverheadBytes is the size of one more text in a list without its bytes.
const stringOverheadBytes = 16

// sizeBytes returns about how many bytes a package takes in the end.
func (h *packageEntry) sizeBytes() int64 {
	n := packageBaseBytes + 6*int64(len(h.Name)+len(h.Version)) + h.variableBytes()
	for _, text := range h.origin() {
		n += int64(len(*text))
	}
	return n
}

// variableBytes returns the part of size that grows when the package is found again.
func (h *packageEntry) variableBytes() int64 {
	n := int64(0)
	for _, l := range h.Locations {
		n += locationBytes(l)
	}
	for _, list := range [][]string{h.BundleIDs, h.Licenses} {
		for _, text := range list {
			n += stringBytes(text)
		}
	}
	return n
}

// locationBytes returns about how many bytes a location takes. The path of a file is shared with other packages, but
// that of an archive within others is not.
func locationBytes(location string) int64 {
	if strings.Contains(location, archiveMark) {
		return stringBytes(location)
	}
	return stringOverheadBytes
}

// stringBytes returns about how many bytes a text in a list takes.
func stringBytes(text string) int64 { return stringOverheadBytes + int64(len(text)) }

// merge adds data of the same package, and returns by how much variable grows. Ecosystems that
// accept several spellings of a name yield several: the smallest is kept.
func (h *packageEntry) merge(p Package) (grown int64) {
	if p.Name < h.Name {
		h.Name = strings.Clone(p.Name)
	}
	for _, l := range p.Locations { // one file may name a package very often
		if n := len(h.Locations); n == 0 || h.Locations[n-1] != l {
			h.Locations = append(h.Locations, l)
			grown += locationBytes(l)
		}
	}
	h.Replaced = h.Replaced && p.Replaced
	h.Development = h.Development && p.Development
	return grown + appendClones(&h.BundleIDs, p.BundleIDs) + appendClones(&h.Licenses, p.Licenses)
}

// packages returns the kept packages, in the order of names.
func (s *packageSet) packages() []Package {
	var out []Package
	for _, h := range s.kept.trim() {
		p := h.Package
		p.Locations = sortedUnique(p.Locations)
		p.BundleIDs = sortedUnique(p.BundleIDs)
		p.Licenses = sortedUnique(p.Licenses)
		if p.Kind.IsOS() {
			p.Source, p.SourceVersion = cmp.Or(p.Source, p.Name), cmp.Or(p.SourceVersion, p.Version)
		}
		p.Language = languageByType[p.Kind]
		p.PURL = packageURL(p)
		out = append(out, p)
	}
	sortPackages(out)
	return out
}

// packageKey identifies a package.
type packageKey struct {
	kind                      PackageType
	name, version             string
	arch, owner, distribution string
	source, sourceVersion     string // of packages of operating systems
}

func (k packageKey) compare(o packageKey) int {
	return cmp.Or(cmp.Compare(k.name, o.name), cmp.Compare(k.kind, o.kind), cmp.Compare(k.version, o.version),
		cmp.Compare(k.arch, o.arch), cmp.Compare(k.owner, o.owner), cmp.Compare(k.distribution, o.distribution),
		cmp.Compare(k.source, o.source), cmp.Compare(k.sourceVersion, o.sourceVersion))
}

// hash returns a hash of the key, which is the same in every scan.
func (k packageKey) hash() uint64 {
	h := fnv.New64a()
	for _, text := range [...]string{
		string(k.kind), k.name, k.version, k.arch, k.owner, k.distribution, k.source, k.sourceVersion,
	} {
		_, _ = io.WriteString(h, text+"\x00")
	}
	return h.Sum64()
}

func packageKeyOf(p Package) packageKey {
	k := packageKey{
		kind: p.Kind, name: p.Name, version: p.Version, arch: p.Arch, owner: p.Owner, distribution: p.Distribution,
	}
	switch p.Kind {
	case Deb, RPM, APK:
		k.source, k.sourceVersion = cmp.Or(p.Source, p.Name), cmp.Or(p.SourceVersion, p.Version)
	case Python:
		k.name = PythonName(p.Name)
	case Swift: // addresses of repositories are written in upper and lower case
		k.name = strings.ToLower(p.Name)
	default:
	}
	return k
}

// sortedUnique sorts a list and removes duplicates.
func sortedUnique(list []string) []string {
	slices.Sort(list)
	return slices.Clip(slices.Compact(list))
}

// languageByType are those of the kinds. A formula or an application may be written in any.
var languageByType = map[PackageType]string{
	Gem: "ruby", Python: "python", NPM: "javascript", Java: "java", Go: "go", Rust: "rust", Pod: "swift",
	Swift: "swift",
}
