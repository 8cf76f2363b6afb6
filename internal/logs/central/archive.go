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
	logs    *Logs
	service string
	files   []archivedFile
	events  *View // the only file that may be renamed in the meantime; nil: none
}

// archivedFile is a file of an archive, up to its size at the beginning.
type archivedFile struct {
	file string
	size int64
}

// Archive begins an archive of a service.
func (l *Logs) Archive(service string) (*Archive, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.sortedFiles(service)
	if len(all) == 0 {
		return nil, farm.NotFound()
	}
	if l.runningArchives >= maxArchives {
		return nil, farm.Errorf(farm.CodeBusy, "Limit of concurrent log archives (%d) reached; try again", maxArchives)
	}
	a := &Archive{logs: l, service: service}
	for _, f := range all {
		if service == EventService && f.name == eventFile {
			v, err := l.openView(f)
			if err != nil {
				return nil, err
			}
			a.events = v
			continue
		}
		a.files = append(a.files, archivedFile{f.name, f.size})
	}
	l.runningArchives++
	return a, nil
}

// Close ends the archive.
func (a *Archive) Close() error {
	a.logs.mu.Lock()
	defer a.logs.mu.Unlock()
	a.logs.runningArchives--
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
		if err := a.addFile(out, p); err != nil {
			return err
		}
	}
	if a.events != nil {
		if err := a.copyView(out, a.events); err != nil {
			return err
		}
	}
	if err := errors.Join(out.Close(), zip.Close()); err != nil {
		return fmt.Errorf("create log archive: %w", err)
	}
	return nil
}

func (a *Archive) addFile(out *tar.Writer, p archivedFile) error {
	v, err := a.logs.View(a.service, p.file)
	if farm.CodeOf(err) == farm.CodeNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = v.Close() }()
	v.Size = min(v.Size, p.size)
	return a.copyView(out, v)
}

func (a *Archive) copyView(out *tar.Writer, v *View) error {
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
