package apfs

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
)

const (
	attrFirmlink         = "com.apple.fs.firmlink"
	firmlinkFile         = "usr/share/firmlinks"
	maxFirmlinkFileBytes = 1 << 20 // bytes of the file that lists them
)

// Firmlink is a directory of a system volume that leads to one of the data volume. Once the system
// runs, it shows that directory of the data volume in its group.
type Firmlink struct {
	Path   string // in the system volume
	Target string // in the data volume
}

// Firmlinks lists the firmlinks of a volume, sorted by path: those that its file
// /usr/share/firmlinks names, and directories of the root that are marked as such. On disk a
// firmlink is a separate directory, usually empty, and is read as that: a walk of both volumes
// reads every file once.
func (f *FS) Firmlinks() ([]Firmlink, error) {
	out := map[string]string{}
	bad := f.listedFirmlinks(out)
	list, err := f.ReadDir(".")
	for _, e := range list {
		if !e.IsDir() {
			continue
		}
		target, ok, err := f.Firmlink(e.Name())
		bad = errors.Join(bad, err)
		if ok {
			out[e.Name()] = target
		}
	}
	var links []Firmlink
	for p, target := range out {
		links = append(links, Firmlink{p, target})
	}
	slices.SortFunc(links, func(a, b Firmlink) int { return strings.Compare(a.Path, b.Path) })
	return links, errors.Join(bad, err)
}

// listedFirmlinks reads the file that lists firmlinks: lines of a path from the root, a
// tabulator, and a path in the data volume.
func (f *FS) listedFirmlinks(out map[string]string) error {
	st, err := f.Stat(firmlinkFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() || st.Size() > maxFirmlinkFileBytes {
		return &fs.PathError{Op: "read", Path: firmlinkFile, Err: ErrUnsupported}
	}
	text, err := fs.ReadFile(f, firmlinkFile)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		from, to, ok := strings.Cut(strings.TrimRight(line, "\r\n"), "\t")
		from = strings.TrimPrefix(path.Clean(from), "/")
		to = strings.TrimPrefix(path.Clean(to), "/")
		if ok && fs.ValidPath(from) && fs.ValidPath(to) && from != "." {
			out[from] = to
		}
	}
	return nil
}

// Firmlink returns the target of a directory that is marked as a firmlink, as a path in the
// data volume.
func (f *FS) Firmlink(name string) (target string, ok bool, err error) {
	b, err := f.Xattr(name, attrFirmlink)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	target, _, _ = strings.Cut(string(b), "\x00")
	return strings.TrimPrefix(path.Clean(target), "/"), true, nil
}
