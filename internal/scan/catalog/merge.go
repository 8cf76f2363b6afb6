package catalog

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// merge combines packages with the same kind, name and version, whatever their order.
func merge(all []Package) []Package {
	s := newPackageSet(Limits{Packages: math.MaxInt / 2, Text: math.MaxInt64 / 2})
	for _, p := range all {
		s.add(p)
	}
	return s.packages()
}

// packageSet collects packages during a scan, each once.
type packageSet struct {
	known map[key]*packageEntry
	first boundedSet[*packageEntry]
	left  int // entries of files whose packages are not kept
}

// packageEntry is a package and data that is only needed during a scan.
type packageEntry struct {
	Package
	key     key
	entries int // of files that name it
}

func newPackageSet(l Limits) *packageSet {
	s := &packageSet{known: map[key]*packageEntry{}}
	s.first = boundedSet[*packageEntry]{
		compare: func(a, b *packageEntry) int { return a.key.compare(b.key) },
		size:    func(h *packageEntry) int64 { return h.size() },
		drop: func(h *packageEntry) {
			s.left += h.entries
			delete(s.known, h.key)
		},
		most: l.Packages, room: l.Text,
	}
	return s
}

// add adds a package that a file names. Its texts are copied: they may be slices of the whole file.
func (s *packageSet) add(p Package) {
	k := keyOf(p)
	if h := s.known[k]; h != nil {
		h.entries++
		s.first.grow(h.join(p))
		return
	}
	if s.first.end != nil && k.compare((*s.first.end).key) >= 0 {
		s.left++ // it would be dropped again
		return
	}
	h := &packageEntry{Package: p, entries: 1}
	h.Name, h.Version = strings.Clone(p.Name), strings.Clone(p.Version)
	h.BundleIDs, h.Licenses, h.Locations = nil, nil, slices.Clone(p.Locations)
	appended(&h.BundleIDs, p.BundleIDs)
	appended(&h.Licenses, p.Licenses)
	h.key = key{k.kind, h.Name, h.Version}
	if k.name != h.Name {
		h.key.name = strings.Clone(k.name)
	}
	s.known[h.key] = h
	s.first.add(h)
}

// appended appends copies of texts, and returns the bytes they take. Files of one package usually
// have the same texts in turn.
func appended(list *[]string, more []string) (grown int64) {
	for _, text := range more {
		if n := len(*list); n == 0 || (*list)[n-1] != text {
			*list = append(*list, strings.Clone(text))
			grown += sizeOf(text)
		}
	}
	return grown
}

// fixed is about the size of a package without its texts: itself, its names in other systems, and
// its entry in the set. In bytes.
const fixed = 600

// place is the size of one more text in a list without its bytes.
const place = 16

// size returns about how many bytes a package takes in the end. The paths of its locations are
// shared with other packages.
func (h *packageEntry) size() int64 {
	return fixed + 6*int64(len(h.Name)+len(h.Version)) + h.variable()
}

// variable returns the part of size that grows when the package is found again.
func (h *packageEntry) variable() int64 {
	n := int64(len(h.Locations)) * place
	for _, list := range [][]string{h.BundleIDs, h.Licenses} {
		for _, text := range list {
			n += sizeOf(text)
		}
	}
	return n
}

// sizeOf returns about how many bytes a text in a list takes.
func sizeOf(text string) int64 { return place + int64(len(text)) }

// join adds data of the same package, and returns by how much variable grows. Ecosystems that
// accept several spellings of a name yield several: the smallest is kept.
func (h *packageEntry) join(p Package) (grown int64) {
	if p.Name < h.Name {
		h.Name = strings.Clone(p.Name)
	}
	for _, l := range p.Locations { // one file may name a package very often
		if n := len(h.Locations); n == 0 || h.Locations[n-1] != l {
			h.Locations = append(h.Locations, l)
			grown += place
		}
	}
	h.Replaced = h.Replaced && p.Replaced
	return grown + appended(&h.BundleIDs, p.BundleIDs) + appended(&h.Licenses, p.Licenses)
}

// packages returns the kept packages, in the order of names.
func (s *packageSet) packages() []Package {
	var out []Package
	for _, h := range s.first.cut() {
		p := h.Package
		p.Locations = sorted(p.Locations)
		p.BundleIDs = sorted(p.BundleIDs)
		p.Licenses = sorted(p.Licenses)
		p.Language = languages[p.Kind]
		p.PURL = packageURL(p)
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Package) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Version, b.Version))
	})
	return out
}

// key identifies a package.
type key struct {
	kind          PackageType
	name, version string
}

func (k key) compare(o key) int {
	return cmp.Or(cmp.Compare(k.name, o.name), cmp.Compare(k.kind, o.kind), cmp.Compare(k.version, o.version))
}

func keyOf(p Package) key {
	k := key{p.Kind, p.Name, p.Version}
	if p.Kind == Python {
		k.name = PythonName(p.Name)
	}
	return k
}

// sorted sorts a list and removes duplicates.
func sorted(list []string) []string {
	slices.Sort(list)
	return slices.Clip(slices.Compact(list))
}

// languages are those of the kinds. A formula or an application may be written in any.
var languages = map[PackageType]string{
	Gem: "ruby", Python: "python", NPM: "javascript", Java: "java", Go: "go", Rust: "rust", Pod: "swift",
}
