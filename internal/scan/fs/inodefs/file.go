package inodefs

import (
	"io"
	"io/fs"
	"time"
)

// info is the result of Stat for an inode.
type info struct {
	name  string
	inode Inode
}

// Info describes an inode under one of its names.
func Info(n Inode, name string) fs.FileInfo { return info{name, n} }

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { _, size, _ := i.inode.Attributes(); return size }
func (i info) Mode() fs.FileMode  { mode, _, _ := i.inode.Attributes(); return FileMode(mode) }
func (i info) ModTime() time.Time { _, _, changed := i.inode.Attributes(); return changed }
func (i info) IsDir() bool        { return i.Mode().IsDir() }

// Sys returns the inode: its ID and its number of names.
func (i info) Sys() any { return i.inode }

// file is an open file. ReadAt is safe for concurrent use.
type file struct {
	*io.SectionReader
	info fs.FileInfo
}

var _ interface {
	fs.File
	io.ReaderAt
	io.Seeker
} = (*file)(nil)

// OpenFile returns an open file with a content, of which Read and ReadAt return as much as the file is large.
func OpenFile(info fs.FileInfo, content io.ReaderAt) fs.File {
	return &file{io.NewSectionReader(content, 0, info.Size()), info}
}

func (f *file) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *file) Close() error               { return nil }
