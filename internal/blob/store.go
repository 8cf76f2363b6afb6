package blob

import (
	"context"
	"io"
	"io/fs"
	"time"
)

// Upload names one file of a push while its parts arrive.
type Upload struct {
	PushSession string // letters and digits
	FileIndex   int    // index in the push
}

// DiskFullMessage begins every error of a store without free space. Both ends of a push know it: an immediate retry
// does not help.
const DiskFullMessage = "The registry's disk is full"

// File is an open layer file or upload.
type File interface {
	io.ReadSeekCloser
	io.ReaderAt
	Stat() (fs.FileInfo, error)
}

// LayerInfo is a layer file of a store.
type LayerInfo struct {
	Digest   Digest
	Size     int64
	Modified time.Time
	Problem  string // why it cannot be a layer, begins with a verb; "": no problem known
}

// Store stores layer files. Its methods may be called from many goroutines. The caller must not complete or
// drop an upload while a part of it is being written, and must not call Trash and Restore concurrently for one
// layer. blobtest is its conformance suite.
type Store interface {
	// WritePart writes the bytes of r at off of an upload; the first part creates the upload. Parts may come in
	// any order and repeatedly. Bytes written before an error may stay.
	WritePart(ctx context.Context, u Upload, off int64, r io.Reader) (int64, error)
	// DiscardRange frees the space of a range of an upload, as far as the file system can; later reads of the range
	// return unspecified bytes. Bytes outside the range stay. A missing upload is not an error.
	DiscardRange(ctx context.Context, u Upload, off, n int64) error
	// OpenUpload opens the received bytes of an upload; fs.ErrNotExist when there are none.
	OpenUpload(ctx context.Context, u Upload) (File, error)
	// CompleteUpload makes an upload that holds all frames of x the layer file of x. When it returns, the layer
	// survives a crash. A layer that already exists is kept and the upload removed.
	CompleteUpload(ctx context.Context, u Upload, x *Index) error
	// DropUploads removes a session's uploads. It is not an error if there are none.
	DropUploads(ctx context.Context, session string) error

	// Open opens a layer file; fs.ErrNotExist when there is none.
	Open(ctx context.Context, root Digest) (File, error)
	// List names all layer files.
	List(ctx context.Context) ([]LayerInfo, error)
	// Trash moves a layer file to the trash; now is the time for Purge.
	Trash(ctx context.Context, root Digest, now time.Time) error
	// Quarantine moves a damaged layer file away: as Trash does, but Restore never restores it.
	Quarantine(ctx context.Context, root Digest, now time.Time) error
	// Restore moves a layer file back from the trash; false when it is not there.
	Restore(ctx context.Context, root Digest) (bool, error)
	// PurgeTrash removes files that were moved to the trash before a time, and returns their number.
	PurgeTrash(ctx context.Context, before time.Time) (int, error)
	// Space returns the free and the total bytes of the store.
	Space(ctx context.Context) (free, total int64, err error)
}
