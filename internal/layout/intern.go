package layout

import "slices"

// internStrings makes equal parts of a template's versions share memory. The chain of a version is mostly that of the
// next one without its last layer, so that thousands of templates would take many times their need. The
// template was just read and is not shared yet.
func (t *Template) internStrings() {
	t.Versions = clipCapacity(t.Versions)
	for i := range t.Versions {
		t.Versions[i].Files = clipCapacity(t.Versions[i].Files)
	}
	for i := len(t.Versions) - 2; i >= 0; i-- {
		v, next := &t.Versions[i], &t.Versions[i+1]
		internString(&v.Arch, next.Arch)
		for j := range v.Files {
			for k := range next.Files {
				if v.Files[j].Name == next.Files[k].Name {
					v.Files[j].internStrings(&next.Files[k])
				}
			}
		}
	}
}

func (f *File) internStrings(with *File) {
	f.Name = with.Name
	internString(&f.Kind, with.Kind)
	internString(&f.Format, with.Format)
	n := len(f.Layers)
	if n <= len(with.Layers) && slices.Equal(f.Layers, with.Layers[:n]) {
		f.Layers = with.Layers[:n:n]
		return
	}
	for i := range min(n, len(with.Layers)) {
		internString(&f.Layers[i].Digest, with.Layers[i].Digest)
	}
}

// clipCapacity returns a list without the spare capacity that a decoder leaves: four elements for one file.
func clipCapacity[T any](list []T) []T {
	if len(list) == cap(list) {
		return list
	}
	return append(make([]T, 0, len(list)), list...)
}

func internString(s *string, with string) {
	if *s == with {
		*s = with
	}
}
