package transfer

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/api"
)

// linkLocal links a file of the version to one of this host with the same content; false when it has to be built.
// The existing file was verified when it was pulled, so only its size is checked.
func (p *pull) linkLocal(f api.PullFile) bool {
	d, ok := p.opts.LocalContent[chainIDOf(topLayer(f))]
	if !ok || len(d.Overlays) > 0 && !p.opts.AllowOverlays || !filesExist(d, f.Size) {
		return false
	}
	files := d.Files()
	from := files[len(files)-1]
	source, err := os.Lstat(from)
	if err != nil {
		return false
	}
	if err := p.removeRemains(f.Name, source); err != nil {
		return false
	}
	err = os.Link(from, filepath.Join(p.dir.Name(), f.Name))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return false
	}
	made, err := p.dir.Lstat(f.Name)
	return err == nil && os.SameFile(source, made)
}

// removeRemains removes the remains of an interrupted pull of a file, unless the file is the link itself. It removes
// the journal last, since the journal proves that a file with its final name is complete.
func (p *pull) removeRemains(name string, source fs.FileInfo) error {
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
