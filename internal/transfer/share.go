package transfer

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/api"
)

// link makes a file of the version from one of this host that has the same content; false when it has to be
// built. The file that is linked to was verified when it came here, so only its size is looked at.
func (p *pull) link(f api.PullFile) bool {
	d, ok := p.o.Have[tipOf(topOf(f))]
	if !ok || len(d.Overlays) > 0 && !p.o.Overlays || !present(d, f.Size) {
		return false
	}
	files := d.files()
	from := files[len(files)-1]
	source, err := os.Lstat(from)
	if err != nil {
		return false
	}
	if err := p.clear(f.Name, source); err != nil {
		return false
	}
	err = os.Link(from, filepath.Join(p.dir.Name(), f.Name))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return false
	}
	made, err := p.dir.Lstat(f.Name)
	return err == nil && os.SameFile(source, made)
}

// clear removes what an interrupted pull left of a file, unless it is the link itself. The journal goes last,
// since it says that a file which has its final name is whole.
func (p *pull) clear(name string, source fs.FileInfo) error {
	left := []string{name, name + partialSuffix, name + journalSuffix}
	if there, err := p.dir.Lstat(name); err == nil && os.SameFile(source, there) {
		left = left[1:]
	}
	for _, l := range left {
		if err := p.dir.Remove(l); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
