package hfsplus

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"

	"github.com/buildyard/buildyard/internal/scan/fs/decmpfs"
	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

// FS is a file system as io/fs. It is safe for concurrent use.
//
// Symbolic links are followed within the tree. For a damaged directory, ReadDir returns the readable part together
// with the error. A directory with several names is read by its first one; the others have the type ModeIrregular.
type FS struct {
	header      *header
	disk        *inodefs.Pages // reads only what its caller asks for
	extents     *tree          // nil without it
	catalog     *tree
	attributes  *tree  // nil without attributes
	linkedFiles uint32 // the directory of files with several names; 0 = there are none
	linkedDirs  uint32
	root        *inode
	dirs        *inodefs.Cache[uint32, []dirEntry] // of lookups, by number
	blocks      *decmpfs.Cache
	label       string
	notes       []string
}

var (
	_ fs.ReadDirFS  = (*FS)(nil)
	_ fs.StatFS     = (*FS)(nil)
	_ fs.ReadLinkFS = (*FS)(nil)
)

// Open reads the header of the file system in the size bytes of r, which the caller owns and
// which must not change, or its copy at the end. It returns ErrNotHFSPlus when there is none.
func Open(r io.ReaderAt, size int64) (*FS, error) {
	r, size = embedded(r, size)
	f, err := openAt(r, size, headerOffset)
	if err == nil {
		return f, nil
	}
	if f, e := openAt(r, size, size&^(headerSize-1)-headerOffset); e == nil {
		f.notes = append([]string{fmt.Sprintf("the copy of its header is used: %v", err)}, f.notes...)
		return f, nil
	}
	return nil, err
}

// openAt opens the file system with the header at an offset.
func openAt(r io.ReaderAt, size, at int64) (*FS, error) {
	h, err := readHeader(r, at)
	if err != nil {
		return nil, err
	}
	f := &FS{
		header: h, disk: inodefs.NewPages(r, size, h.blockSize), blocks: decmpfs.NewCache(),
		dirs: inodefs.NewCache[uint32](dirCacheBytes, inodefs.DirBytes[*inode, place]),
	}
	// This tree has no further extents. Linux lets it grow beyond them on a volume in many pieces.
	if h.extents.size = min(h.extents.size, h.extents.firstBlocks()<<h.blockLog); h.extents.size > 0 {
		if f.extents, err = f.openTree("further extents", extentsFile, h.extents); err != nil {
			return nil, err
		}
	}
	if f.catalog, err = f.openTree("the catalog", catalogFile, h.catalog); err != nil {
		return nil, err
	}
	f.catalog.isExact = f.catalog.isExact && h.isX
	f.addNotes(size)
	if h.attributed.size > 0 {
		if f.attributes, err = f.openTree("attributes", attributesFile, h.attributed); err != nil {
			f.notes = append(f.notes, fmt.Sprintf("its compressed files cannot be read: %v", err))
		}
	}
	if err := f.openRoot(); err != nil {
		return nil, fmt.Errorf("root: %w", err)
	}
	return f, nil
}

// openRoot reads the root, whose name is that of the volume, and finds the directories of what has several names.
func (f *FS) openRoot() error {
	_, key, err := f.findThread(rootDir)
	if err != nil {
		return err
	}
	f.label = inodefs.CString(appendName(nil, []byte(key.name)))
	p, err := f.findRoot(key)
	if err == nil {
		f.root, err = f.readInode(p)
	}
	if err == nil && (!f.root.isDir() || f.root.number != rootDir || key.dir != rootParent) {
		err = damaged("it is not a directory")
	}
	if err != nil {
		return err
	}
	f.linkedFiles, err = f.findHidden(linkedFilesName)
	if err == nil {
		f.linkedDirs, err = f.findHidden(linkedDirsName)
	}
	return err
}

// findRoot returns the record of the root, which is the only one of its parent, so that its name need not be compared.
func (f *FS) findRoot(key catalogKey) (position, error) {
	p, err := f.catalog.find(func(b []byte) (int, error) {
		dir, _, err := splitCatalogKey(b)
		return cmp.Compare(dir, key.dir), err
	})
	if err == nil && (p.node == nil || !p.isExact) {
		err = damaged("there is none")
	}
	return p, err
}

// findHidden returns the number of a directory of the root; 0 without it.
func (f *FS) findHidden(name string) (uint32, error) {
	p, ok, err := f.findRecord(catalogKey{rootDir, asciiName(name)})
	if err != nil || !ok {
		return 0, err
	}
	n, err := f.readInode(p)
	if err != nil || !n.isDir() {
		return 0, err
	}
	return n.number, nil
}

// addNotes adds notes for the reader of a report.
func (f *FS) addNotes(size int64) {
	h := f.header
	if h.attributes&headerUnmount == 0 || h.attributes&headerJournal != 0 && !f.isJournalEmpty() {
		what := "what was not written yet is not seen"
		if h.attributes&headerJournal != 0 {
			what = "what is only in its journal is not seen"
		}
		f.notes = append(f.notes, "it was not unmounted: "+what)
	}
	if h.attributes&headerUnsound != 0 {
		f.notes = append(f.notes, "it is marked as inconsistent: check it with fsck_hfs")
	}
	if int64(h.blockCount) > size/h.blockSize {
		f.notes = append(f.notes, fmt.Sprintf("it has %d blocks of %d bytes and its disk only %d bytes", h.blockCount,
			h.blockSize, size))
	}
}

// Notes returns sentences about possible errors in what is read.
func (f *FS) Notes() []string { return f.notes }

// Label returns the name of the file system.
func (f *FS) Label() string { return f.label }

// Open opens a file or a directory.
func (f *FS) Open(name string) (fs.File, error) { return inodefs.Open(volume{f}, name) }

// ReadDir reads a directory.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) { return inodefs.ReadDir(volume{f}, name) }

// Stat describes the file of a path, and follows links.
func (f *FS) Stat(name string) (fs.FileInfo, error) { return inodefs.Stat(volume{f}, name) }

// Lstat describes the file of a path, possibly a symbolic link.
func (f *FS) Lstat(name string) (fs.FileInfo, error) { return inodefs.Lstat(volume{f}, name) }

// ReadLink returns the unresolved target of a symbolic link.
func (f *FS) ReadLink(name string) (string, error) { return inodefs.ReadLink(volume{f}, name) }

// volume reads the file system for paths.
type volume struct{ fs *FS }

var _ inodefs.Volume[*inode] = volume{}

func (v volume) Root() (*inode, error)           { return v.fs.root, nil }
func (v volume) Target(n *inode) (string, error) { return v.fs.readLinkTarget(n) }
func (v volume) Lookup(n *inode, _ uint64, name string) (*inode, error) {
	return v.fs.lookup(n, name)
}

func (v volume) Open(n *inode, _ uint64, name string) (fs.File, error) {
	return v.fs.openInode(n, name)
}

func (v volume) ReadDir(n *inode, _ uint64, name string) ([]fs.DirEntry, error) {
	return v.fs.readDir(n, name)
}
