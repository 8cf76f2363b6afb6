package imagescan

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/buildyard/buildyard/internal/scan/vulndb/atomicfile"
)

// destination is where a report goes. It is checked before the scan, which may take long. A regular
// file is replaced as a whole; anything else, a pipe or a terminal, is written to.
type destination struct {
	file *atomicfile.File // nil for anything but a regular file
	path string
}

// openDestination returns the destination of --report-file.
func openDestination(path string) (*destination, error) {
	path = linkTarget(path)
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() && !st.IsDir() {
		if err := unix.Access(path, unix.W_OK); err != nil {
			return nil, &fs.PathError{Op: "write", Path: path, Err: err}
		}
		return &destination{path: path}, nil
	}
	f, err := atomicfile.Create(path)
	if err != nil {
		return nil, err
	}
	return &destination{file: f, path: path}, nil
}

// checkNotInput rejects a report file that is an input of the report.
func checkNotInput(to, from string) error {
	a, err := os.Stat(to)
	if err != nil {
		return nil //nolint:nilerr // a missing file is fine, and other errors occur again at the write
	}
	if b, err := os.Stat(from); err == nil && a.Mode().IsRegular() && os.SameFile(a, b) {
		return &fs.PathError{
			Op: "replace", Path: to, Err: errors.New("it is also an input of this command; choose another file"),
		}
	}
	return nil
}

// linkTarget returns the target of a link, which may not exist yet: a link stays one.
func linkTarget(path string) string {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	to, err := os.Readlink(path)
	if err != nil {
		return path
	}
	if filepath.IsAbs(to) {
		return to
	}
	return filepath.Join(filepath.Dir(path), to)
}

func (d *destination) write(ctx context.Context, text string) error {
	if d.file == nil {
		return writeStream(ctx, d.path, text)
	}
	if _, err := d.file.WriteString(text); err != nil {
		return err
	}
	return d.file.Commit()
}

// writeStream writes to anything but a regular file. A pipe blocks until another process reads it; ctx
// ends that.
func writeStream(ctx context.Context, path, text string) error {
	done := make(chan error, 1)
	go func() { done <- os.WriteFile(path, []byte(text), 0o644) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// close leaves the old file unchanged when nothing was written.
func (d *destination) close() {
	if d != nil && d.file != nil {
		d.file.Discard()
	}
}
