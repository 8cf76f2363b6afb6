package registry

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
)

// IndexChunk describes one chunk of an index that is sent in several requests.
type IndexChunk struct {
	Digest     string // of the whole index
	Off        int64
	TotalBytes int64 // bytes of the whole index
}

const (
	// maxIndexMemory bounds the bytes of indexes of all pushes in memory; further ones wait. A commit has a copy for
	// a while.
	maxIndexMemory = blob.MaxIndexSize
	// indexReadSize is the number of bytes of an index in memory while it is received.
	indexReadSize = 64 << 10

	// File name suffixes of an index that is being received, and of a complete one.
	partialIndexSuffix = ".idx.part"
	indexSuffix        = ".idx"
)

// PutIndex receives the index of a file whose parts are complete.
func (r *Registry) PutIndex(ctx context.Context, session, file, root string, body io.Reader) (err error) {
	defer setDiskFull(&err)
	_, u, err := r.openUpload(session, file)
	if err != nil {
		return err
	}
	if _, err := r.writeIndexChunk(u, 0, io.LimitReader(body, blob.MaxIndexSize+1)); err != nil {
		return err
	}
	return r.acceptIndex(ctx, u, root)
}

// PutIndexChunk receives a chunk of an index; the last one completes the index. Chunks come in order, and each
// may be sent again. They are not synced: after a crash they are sent again.
func (r *Registry) PutIndexChunk(ctx context.Context, session, file string, p IndexChunk, body io.Reader) (err error) {
	defer setDiskFull(&err)
	if p.TotalBytes > blob.MaxIndexSize || p.Off < 0 || p.Off >= p.TotalBytes {
		return farm.Invalid("off",
			"the part at offset %d of a frame index of %d bytes is out of range (maximum size %d bytes)", p.Off,
			p.TotalBytes, blob.MaxIndexSize)
	}
	_, u, err := r.openUpload(session, file)
	if err == nil {
		err = r.refuseWhenFull()
	}
	if err != nil {
		return err
	}
	end, err := r.writeIndexChunk(u, p.Off, io.LimitReader(body, p.TotalBytes-p.Off))
	if err != nil || end < p.TotalBytes {
		return err
	}
	err = r.acceptIndex(ctx, u, p.Digest)
	if farm.CodeOf(err) == farm.CodeInvalid {
		// Chunks of two indexes are mixed: the client reads the state and sends all of it again.
		return farm.Errorf(farm.CodeConflict,
			"The parts of the frame index of %s are of different indexes: send all of them again",
			file)
	}
	return err
}

// writeIndexChunk writes a chunk of an index at off and returns the offset of its end. No lock is held while a body
// is read: two concurrent bodies may mix, which acceptIndex detects.
func (r *Registry) writeIndexChunk(u *upload, off int64, body io.Reader) (end int64, err error) {
	f, err := r.dir.Root().OpenFile(u.filePath(partialIndexSuffix), os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return 0, fmt.Errorf("store frame index: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = io.CopyBuffer(writerFunc(func(step []byte) (int, error) {
		if err := u.writeIndexStep(f, off, step); err != nil {
			return 0, err
		}
		off += int64(len(step))
		return len(step), nil
	}), body, make([]byte, indexReadSize))
	return off, partError(err)
}

// writeIndexStep writes a step at off and truncates the received part of the index behind it.
func (u *upload) writeIndexStep(f *os.File, off int64, step []byte) error {
	u.indexMu.Lock()
	defer u.indexMu.Unlock()
	st, err := f.Stat()
	switch {
	case err != nil:
		return fmt.Errorf("store frame index: %w", err)
	case off > st.Size():
		return farm.Errorf(farm.CodeConflict,
			"Only %d bytes of the frame index of %s were received: send it again from its beginning",
			st.Size(), u.pushFile.Name)
	}
	_, err = f.WriteAt(step, off)
	end := off + int64(len(step))
	if err != nil {
		end = off // the partial step does no harm, but the disk may be full
	}
	if err := errors.Join(err, f.Truncate(end)); err != nil {
		return fmt.Errorf("store frame index: %w", err)
	}
	return nil
}

// acceptIndex accepts a received index for its file after validation.
func (r *Registry) acceptIndex(ctx context.Context, u *upload, root string) error {
	x, release, err := r.readUploadedIndex(ctx, u.filePath(partialIndexSuffix))
	if err != nil {
		return partError(err)
	}
	defer release()
	if x.Digest().String() != root {
		return farm.Invalid("index", "does not match its digest")
	}
	if err := checkLayerFits(x, u.pushFile); err != nil {
		return err
	}
	if err := u.checkMatches(x); err != nil {
		return err
	}
	u.indexMu.Lock()
	defer u.indexMu.Unlock()
	if err := r.dir.WriteFile("index", u.filePath(indexSuffix), x.Encoded()); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.indexDigest = x.Digest()
	return nil
}

// readUploadedIndex reads an index that was received. release returns the memory that it takes.
func (r *Registry) readUploadedIndex(ctx context.Context, name string) (x *blob.Index, release func(), err error) {
	f, err := r.dir.Root().Open(name)
	if err != nil {
		return nil, nil, fmt.Errorf("read frame index: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, nil, fmt.Errorf("read frame index: %w", err)
	}
	return r.readBoundedIndex(ctx, st.Size(), func() (*blob.Index, error) {
		raw := make([]byte, st.Size())
		if _, err := f.ReadAt(raw, 0); err != nil {
			return nil, fmt.Errorf("read frame index: %w", err)
		}
		return blob.ParseIndex(raw)
	})
}

// readStoredIndex reads the index of a stored layer. release returns the memory that it takes.
func (r *Registry) readStoredIndex(ctx context.Context, root blob.Digest) (x *blob.Index, release func(), err error) {
	f, err := r.store.Open(ctx, root)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	foot := make([]byte, blob.FooterSize)
	if _, err := f.ReadAt(foot, max(0, st.Size()-blob.FooterSize)); err != nil {
		return nil, nil, fmt.Errorf("read layer footer: %w", err)
	}
	place, err := blob.ParseFooter(foot, st.Size())
	if err != nil {
		return nil, nil, err
	}
	return r.readBoundedIndex(ctx, place.IndexLength, func() (*blob.Index, error) {
		l, err := blob.OpenLayer(f, st.Size(), root)
		if err != nil {
			return nil, err
		}
		return l.Index(), nil
	})
}

// readBoundedIndex reads an index of size bytes once enough memory is available. A caller must not call it again
// before it has released the index.
func (r *Registry) readBoundedIndex(
	ctx context.Context, size int64, read func() (*blob.Index, error),
) (*blob.Index, func(), error) {
	if size > blob.MaxIndexSize {
		return nil, nil, farm.Invalid("index", "frame index has %d bytes: want at most %d", size, blob.MaxIndexSize)
	}
	if err := r.indexMemory.Acquire(ctx, size); err != nil {
		return nil, nil, fmt.Errorf("wait for memory to read a frame index: %w", err)
	}
	release := func() { r.indexMemory.Release(size) }
	x, err := read()
	if err != nil {
		release()
		return nil, nil, err
	}
	return x, release, nil
}

// indexFileDigest returns the digest of the index that an earlier process received; the zero digest without one.
func (r *Registry) indexFileDigest(name string) (blob.Digest, error) {
	f, err := r.dir.Root().Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return blob.Digest{}, nil
	}
	if err != nil {
		return blob.Digest{}, fmt.Errorf("read frame index: %w", err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return blob.Digest{}, fmt.Errorf("read frame index: %w", err)
	}
	return blob.Digest(sum.Sum(nil)), nil
}
