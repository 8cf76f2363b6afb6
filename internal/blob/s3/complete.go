package s3

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/s3store"
)

func newStreamID() string { return strings.ToLower(rand.Text()) }

// CompleteUpload implements blob.Store. A small layer is one object under its own name. For others, the parts that
// were not uploaded yet follow, and an empty object names the layer.
func (s *Store) CompleteUpload(ctx context.Context, u blob.Upload, x *blob.Index) error {
	up := s.upload(u)
	if err := up.complete(ctx); err != nil {
		return err
	}
	if _, there := s.find(x.Digest()); there {
		return errors.Join(s.abort(ctx, u, up), s.endUpload(u))
	}
	src, err := s.openSource(ctx, u, x)
	if err != nil {
		return fmt.Errorf("complete layer %s: %w", x.Digest(), err)
	}
	l := layerObject{state: x.Kind() == blob.KindState, size: x.FileSize(), modified: time.Now()}
	l.key = layerKey(x.Digest(), l.state)
	if up.object == (s3store.UploadID{}) && l.size <= s.Bucket.Options().PartSize {
		err = s.putLayer(ctx, l, src)
	} else {
		err = s.completeParts(ctx, u, up, src, &l)
	}
	if err = errors.Join(err, src.Close()); err != nil {
		return fmt.Errorf("complete layer %s: %w", x.Digest(), err)
	}
	s.mu.Lock()
	s.layers[x.Digest()] = l
	s.mu.Unlock()
	return s.endUpload(u)
}

// endUpload removes what is local of an upload.
func (s *Store) endUpload(u blob.Upload) error {
	s.mu.Lock()
	up := s.uploads[u]
	delete(s.uploads, u)
	s.mu.Unlock()
	if up != nil && up.cancel != nil {
		up.cancel()
	}
	return errors.Join(s.removeRecord(u), s.Staging.RemoveUpload(u))
}

// putLayer writes a layer in one request.
func (s *Store) putLayer(ctx context.Context, l layerObject, src *layerSource) error {
	if err := s.detachTrash(ctx, l.key); err != nil {
		return err
	}
	if err := s.Lease.Valid(); err != nil {
		return err
	}
	_, err := s.Bucket.PutReader(ctx, l.key, src, l.size)
	return err
}

// completeParts completes the object of a layer and names it. The key of the layer is its own name before.
func (s *Store) completeParts(
	ctx context.Context, u blob.Upload, up *upload, src *layerSource, l *layerObject,
) error {
	err := s.completeObject(ctx, u, up, src)
	if errors.Is(err, fs.ErrNotExist) { // a rule of the bucket has ended the upload since it began
		up.object, up.parts = s3store.UploadID{}, map[int]*part{}
		err = s.completeObject(ctx, u, up, src)
	}
	if err != nil {
		return err
	}
	l.alias = l.key + "@" + strings.TrimPrefix(up.object.Key, streamDir+"/")
	l.key = up.object.Key
	_, err = s.Lease.Put(ctx, l.alias, nil, s3store.Condition{})
	return err
}

// completeObject uploads the parts that are missing and makes the object of all.
func (s *Store) completeObject(ctx context.Context, u blob.Upload, up *upload, src *layerSource) error {
	if err := s.prepareParts(ctx, u, up, src.size); err != nil {
		return err
	}
	parts, err := s.uploadMissing(ctx, up, src)
	if err != nil {
		return err
	}
	if err := s.Lease.Valid(); err != nil {
		return err
	}
	_, err = s.Bucket.CompleteUpload(ctx, up.object, parts)
	return err
}

// prepareParts begins the object unless it was begun with parts that fit the size of the layer.
func (s *Store) prepareParts(ctx context.Context, u blob.Upload, up *upload, size int64) error {
	if need := s.Bucket.PartSizeFor(size); up.partSize < need {
		if up.object != (s3store.UploadID{}) {
			if err := s.Bucket.AbortUpload(ctx, up.object); err != nil {
				return err
			}
		}
		up.object, up.partSize, up.parts = s3store.UploadID{}, need, map[int]*part{}
	}
	if up.object != (s3store.UploadID{}) {
		return nil
	}
	object, err := s.Bucket.BeginUpload(ctx, streamDir+"/"+newStreamID())
	if err != nil {
		return err
	}
	up.object = object
	return s.writeRecord(u, object, up.partSize)
}

// uploadMissing uploads every part that the server does not have with the bytes of src. No other goroutine uses up.
func (s *Store) uploadMissing(ctx context.Context, up *upload, src *layerSource) ([]s3store.UploadedPart, error) {
	var mu sync.Mutex
	var parts []s3store.UploadedPart
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(s.Bucket.Options().UploadConcurrency)
	for number := 1; up.partRange(number).start < src.size; number++ {
		at := up.partRange(number)
		at.end = min(at.end, src.size)
		group.Go(func() error {
			p, err := s.uploadUnlessDone(ctx, up, number, src, at)
			mu.Lock()
			defer mu.Unlock()
			parts = append(parts, p)
			return err
		})
	}
	return parts, group.Wait()
}

func (s *Store) uploadUnlessDone(
	ctx context.Context, up *upload, number int, src *layerSource, at byteRange,
) (s3store.UploadedPart, error) {
	up.mu.Lock()
	p := up.parts[number]
	up.mu.Unlock()
	if p != nil && p.done && !p.dirty && p.uploaded.Size == at.end-at.start && at.end <= src.frames {
		if !p.verify {
			return p.uploaded, nil
		}
		if same, err := p.uploaded.MatchesPart(src, at.start); same || err != nil {
			return p.uploaded, err
		}
	}
	uploaded, err := s.Bucket.PutPart(ctx, up.object, number, io.NewSectionReader(src, at.start, at.end-at.start))
	if err == nil {
		up.mu.Lock()
		up.parts[number] = &part{uploaded: uploaded, done: true, verify: true} // for another attempt of the commit
		up.mu.Unlock()
	}
	return uploaded, err
}

// layerSource is the bytes of a layer: the received frames, and the index and footer that follow.
type layerSource struct {
	staged blob.File // nil: the layer has no frames
	frames int64     // bytes of the frames
	tail   []byte
	size   int64
}

func (s *Store) openSource(ctx context.Context, u blob.Upload, x *blob.Index) (*layerSource, error) {
	src := &layerSource{frames: x.StoredBytes(), tail: x.IndexAndFooter(), size: x.FileSize()}
	if src.frames == 0 {
		return src, nil
	}
	f, err := s.Staging.OpenUpload(ctx, u)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("upload has 0 bytes: want %d", src.frames)
	}
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && st.Size() < src.frames {
		err = fmt.Errorf("upload has %d bytes: want %d", st.Size(), src.frames)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	src.staged = f
	return src, nil
}

var _ io.ReaderAt = (*layerSource)(nil)

// ReadAt reads the layer.
func (l *layerSource) ReadAt(p []byte, off int64) (int, error) {
	n := 0
	if off < l.frames {
		want := p[:min(int64(len(p)), l.frames-off)]
		read, err := l.staged.ReadAt(want, off)
		if read < len(want) {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return read, err
		}
		n, off = read, off+int64(read)
	}
	if rest := off - l.frames; rest >= 0 && rest < int64(len(l.tail)) {
		n += copy(p[n:], l.tail[rest:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Close closes the staged bytes.
func (l *layerSource) Close() error {
	if l.staged == nil {
		return nil
	}
	return l.staged.Close()
}
