package treetest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// MostOfAFile limits how many bytes of a file are read: a small image may claim that one is large.
const MostOfAFile = 1 << 20

// Tour is what a walk over a whole file system found, which continues after errors.
type Tour struct {
	Entries int
	Bytes   int64 // of all files, at most 1 MiB of each
	Errs    []string
}

// Linked is a file system with symbolic links, whose entries are opened without a path.
type Linked interface {
	fs.ReadDirFS
	fs.StatFS
	fs.ReadLinkFS
}

// Walk reads all of a file system, entry by entry.
func Walk(fsys Linked) *Tour {
	t := &Tour{}
	list, err := fsys.ReadDir(".")
	t.note(".", err)
	t.walk(fsys, "", list)
	return t
}

func (t *Tour) note(name string, err error) {
	if err != nil {
		t.Errs = append(t.Errs, fmt.Sprintf("%s: %v", name, err))
	}
}

func (t *Tour) walk(fsys Linked, dir string, list []fs.DirEntry) {
	for _, e := range list {
		t.Entries++
		name := dir + "/" + e.Name()
		info, err := e.Info()
		t.note(name, err)
		if err != nil {
			continue
		}
		opener := e.(interface {
			Open() (fs.File, error)
			ReadDir() ([]fs.DirEntry, error)
		})
		switch {
		case e.IsDir():
			below, err := opener.ReadDir()
			t.note(name, err)
			t.walk(fsys, name, below)
		case info.Mode().IsRegular():
			f, err := opener.Open()
			t.note(name, err)
			if err == nil {
				t.read(name, f, info.Size())
			}
		case e.Type() == fs.ModeSymlink:
			_, err := fsys.ReadLink(strings.TrimPrefix(name, "/"))
			t.note(name, err)
			_, _ = fsys.Stat(strings.TrimPrefix(name, "/"))
		}
	}
}

// read reads a file of a size, and a piece at its end.
func (t *Tour) read(name string, f fs.File, size int64) {
	n, err := io.CopyN(io.Discard, f, MostOfAFile)
	if !errors.Is(err, io.EOF) {
		t.note(name, err)
	}
	t.Bytes += n
	_, _ = f.(io.ReaderAt).ReadAt(make([]byte, 10), max(0, size-5))
}
