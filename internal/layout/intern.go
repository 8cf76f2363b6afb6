package layout

import "slices"

// share makes equal parts of a template's versions share memory. The chain of a version is mostly that of the
// next one without its last layer, so that thousands of templates would take many times their need. The
// template was just read and is not shared yet.
func (t *Template) share() {
	t.Versions = tight(t.Versions)
	for i := range t.Versions {
		t.Versions[i].Files = tight(t.Versions[i].Files)
	}
	for i := len(t.Versions) - 2; i >= 0; i-- {
		v, next := &t.Versions[i], &t.Versions[i+1]
		shareText(&v.Arch, next.Arch)
		for j := range v.Files {
			for k := range next.Files {
				if v.Files[j].Name == next.Files[k].Name {
					v.Files[j].share(&next.Files[k])
				}
			}
		}
	}
}

func (f *File) share(with *File) {
	f.Name = with.Name
	shareText(&f.Kind, with.Kind)
	shareText(&f.Format, with.Format)
	n := len(f.Layers)
	if n <= len(with.Layers) && slices.Equal(f.Layers, with.Layers[:n]) {
		f.Layers = with.Layers[:n:n]
		return
	}
	for i := range min(n, len(with.Layers)) {
		shareText(&f.Layers[i].Root, with.Layers[i].Root)
	}
}

// tight returns a list without the spare capacity that a decoder leaves: four elements for one file.
func tight[T any](list []T) []T {
	if len(list) == cap(list) {
		return list
	}
	return append(make([]T, 0, len(list)), list...)
}

func shareText(s *string, with string) {
	if *s == with {
		*s = with
	}
}
