package catalog

import (
	"cmp"
	"slices"
)

// merge makes one of packages that have kind, name and version in common, in whatever
// order they come.
func merge(all []Package) []Package {
	known := make(map[key]int, len(all))
	var out []Package
	for _, p := range all {
		k := keyOf(p)
		if i, again := known[k]; again {
			join(&out[i], p)
			continue
		}
		known[k] = len(out)
		out = append(out, p)
	}
	for i := range out {
		out[i].Locations = sorted(out[i].Locations)
		out[i].Licenses = sorted(out[i].Licenses)
		out[i].Language = languages[out[i].Kind]
		out[i].PURL = packageURL(out[i])
	}
	slices.SortFunc(out, func(a, b Package) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Version, b.Version))
	})
	return out
}

// join adds what else is known of a package. Ecosystems that do not mind how a name is
// written give several spellings: the smallest counts.
func join(p *Package, more Package) {
	p.Name = min(p.Name, more.Name)
	p.Version = min(p.Version, more.Version)
	p.Locations = append(p.Locations, more.Locations...)
	p.Licenses = append(p.Licenses, more.Licenses...)
	if p.BundleID == "" || more.BundleID != "" && more.BundleID < p.BundleID {
		p.BundleID = more.BundleID
	}
	p.Replaced = p.Replaced && more.Replaced
}

// key tells packages apart.
type key struct {
	kind          Kind
	name, version string
}

func keyOf(p Package) key {
	k := key{p.Kind, p.Name, p.Version}
	if p.Kind == Python {
		k.name = PythonName(p.Name)
	}
	return k
}

// sorted gives a list in order, each once.
func sorted(list []string) []string {
	slices.Sort(list)
	return slices.Clip(slices.Compact(list))
}

// languages are those of the kinds. A formula or an application may be written in any.
var languages = map[Kind]string{
	Gem: "ruby", Python: "python", NPM: "javascript", Java: "java", Go: "go", Rust: "rust", Pod: "swift",
}
