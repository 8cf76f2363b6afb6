package central

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/buildyard/buildyard/internal/farm"
)

// maxArchives is the number of concurrent archives: each uses a processor.
const maxArchives = 4

// Archive is a snapshot of all logs of a service. It must be closed.
type Archive struct {
	l       *Logs
	service string
	files   []part
	events  *View // the only file that may be renamed in the meantime; nil: none
}

// part is a file of an archive, up to its size at the beginning.
type part struct {
	file string
	size int64
}

// Archive begins an archive of a service.
func (l *Logs) Archive(service string) (*Archive, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.sorted(service)
	if len(all) == 0 {
		return nil, farm.NotFound()
	}
	if l.archives >= maxArchives {
		return nil, farm.Errorf(farm.CodeBusy, "Limit of concurrent log archives (%d) reached; try again", maxArchives)
	}
	a := &Archive{l: l, service: service}
	for _, f := range all {
		if service == EventService && f.name == eventFile {
			v, err := l.view(f)
			if err != nil {
				return nil, err
			}
			a.events = v
			continue
		}
		a.files = append(a.files, part{f.name, f.size})
	}
	l.archives++
	return a, nil
}

// Close ends the archive.
func (a *Archive) Close() error {
	a.l.mu.Lock()
	defer a.l.mu.Unlock()
	a.l.archives--
	if a.events == nil {
		return nil
	}
	return a.events.Close()
}

// Write writes the archive as a compressed tar. Rows written to the logs in the meantime are not
// part of it, and files removed in the meantime are left out.
func (a *Archive) Write(w io.Writer) error {
	zip, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return fmt.Errorf("create log archive: %w", err)
	}
	out := tar.NewWriter(zip)
	for _, p := range a.files {
		if err := a.add(out, p); err != nil {
			return err
		}
	}
	if a.events != nil {
		if err := a.copy(out, a.events); err != nil {
			return err
		}
	}
	if err := errors.Join(out.Close(), zip.Close()); err != nil {
		return fmt.Errorf("create log archive: %w", err)
	}
	return nil
}

func (a *Archive) add(out *tar.Writer, p part) error {
	v, err := a.l.View(a.service, p.file)
	if farm.CodeOf(err) == farm.CodeNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = v.Close() }()
	v.Size = min(v.Size, p.size)
	return a.copy(out, v)
}

func (a *Archive) copy(out *tar.Writer, v *View) error {
	err := out.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: a.service + "/" + v.Name, Size: v.Size, Mode: 0o644, ModTime: v.Modified,
	})
	if err == nil {
		_, err = io.Copy(out, v.Content())
	}
	if err != nil {
		return fmt.Errorf("archive %s: %w", v.Name, err)
	}
	return nil
}
