package authfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// Dir is a directory that holds the files of this package, for its owner only.
type Dir struct {
	root *os.Root
	// beforeStep is called with the name of the next change of the disk; tests end the process there.
	beforeStep func(string)
}

// OpenDir opens a directory, and creates it when it does not exist.
func OpenDir(dir string) (*Dir, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create directory of API keys: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open directory of API keys: %w", err)
	}
	return &Dir{root: root, beforeStep: func(string) {}}, nil
}

// Close closes the directory.
func (f *Dir) Close() error { return f.root.Close() }

// temporary is the suffix of an incomplete file; it is never read.
const temporary = ".tmp"

// replaceFile replaces a file: after a crash it has its old or its new content, and after a success the
// new one.
func (f *Dir) replaceFile(name string, data []byte) error {
	temp := name + temporary
	f.beforeStep("create")
	file, err := f.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	f.beforeStep("write")
	_, err = file.Write(data)
	if err == nil {
		f.beforeStep("sync")
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		_ = f.root.Remove(temp) // nothing reads it
		return fmt.Errorf("write %s: %w", name, err)
	}
	f.beforeStep("rename")
	if err := f.root.Rename(temp, name); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	f.beforeStep("dirsync")
	return f.syncNames()
}

// syncNames makes the names in the directory durable.
func (f *Dir) syncNames() error {
	dir, err := f.root.Open(".")
	if err != nil {
		return fmt.Errorf("sync directory of API keys: %w", err)
	}
	defer func() { _ = dir.Close() }()
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("sync directory of API keys: %w", err)
	}
	return nil
}

// readFile returns a file of at most limit bytes; nil when there is none.
func (f *Dir) readFile(name string, limit int64) ([]byte, error) {
	file, err := f.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	defer func() { _ = file.Close() }()
	raw, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if int64(len(raw)) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, limit)
	}
	if raw == nil {
		raw = []byte{}
	}
	return raw, nil
}

// filesWithPrefix lists the files whose name has a prefix.
func (f *Dir) filesWithPrefix(prefix string) ([]string, error) {
	dir, err := f.root.Open(".")
	if err != nil {
		return nil, fmt.Errorf("list directory of API keys: %w", err)
	}
	defer func() { _ = dir.Close() }()
	all, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list directory of API keys: %w", err)
	}
	var out []string
	for _, name := range all {
		if strings.HasPrefix(name, prefix) {
			out = append(out, name)
		}
	}
	return out, nil
}
