package transfer

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/api"
)

// link makes a file of the version from one of this host that has the same layer; false when it has to be
// moved. The file that is linked to was verified when it came here, so only its size is looked at.
func (p *pull) link(f api.PullFile) bool {
	from := p.have[f.Layers[0].Root]
	if from == "" {
		return false
	}
	source, err := os.Lstat(from)
	if err != nil || !source.Mode().IsRegular() || source.Size() != f.Size {
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
