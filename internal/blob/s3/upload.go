package s3

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/layout"
	"github.com/buildyard/buildyard/internal/s3store"
)

// maxStreamedParts bounds the parts that are uploaded before the size of a layer is known.
const maxStreamedParts = 8000

// upload is one file of a push: its received ranges, and the parts of its object that were uploaded concurrently.
type upload struct {
	mu       sync.Mutex // guards the fields below
	received byteRanges
	object   s3store.UploadID // zero: not begun
	partSize int64
	parts    map[int]*part
	running  int  // parts that are being uploaded
	stopped  bool // no further part is begun: the upload ends, or a part failed
	idle     *sync.Cond

	ctx    context.Context // of the parts in the background; nil: none was begun
	cancel context.CancelFunc
	begin  func() (s3store.UploadID, error) // begins the object once
}

// part is one part of an object.
type part struct {
	uploaded s3store.UploadedPart
	done     bool
	dirty    bool // its bytes were written again since its upload began
	verify   bool // it was uploaded by an earlier process: its checksum has to be compared
}

func (s *Store) upload(u blob.Upload) *upload {
	s.mu.Lock()
	defer s.mu.Unlock()
	up := s.uploads[u]
	if up == nil {
		up = newUpload(s.Bucket.Options().PartSize)
		s.uploads[u] = up
	}
	return up
}

func newUpload(partSize int64) *upload {
	up := &upload{partSize: partSize, parts: map[int]*part{}}
	up.idle = sync.NewCond(&up.mu)
	return up
}

// partRange returns the bytes of a part of a streamed prefix.
func (up *upload) partRange(number int) byteRange {
	return byteRange{int64(number-1) * up.partSize, int64(number) * up.partSize}
}

// invalidate marks parts whose bytes may have changed. The caller holds mu.
func (up *upload) invalidate(r byteRange) {
	for number, p := range up.parts {
		if at := up.partRange(number); at.start < r.end && r.start < at.end {
			p.dirty = true
		}
	}
}

// WritePart implements blob.Store.
func (s *Store) WritePart(ctx context.Context, u blob.Upload, off int64, r io.Reader) (int64, error) {
	n, err := s.Staging.WritePart(ctx, u, off, r)
	up := s.upload(u)
	up.mu.Lock()
	written := byteRange{off, off + n}
	up.invalidate(written)
	if err == nil {
		up.received = up.received.add(written)
	}
	up.mu.Unlock()
	s.uploadPrefix(u, up)
	return n, err
}

// DiscardRange implements blob.Store.
func (s *Store) DiscardRange(ctx context.Context, u blob.Upload, off, n int64) error {
	up := s.upload(u)
	up.mu.Lock()
	up.invalidate(byteRange{off, off + n})
	up.received = up.received.remove(byteRange{off, off + n})
	up.mu.Unlock()
	return s.Staging.DiscardRange(ctx, u, off, n)
}

// OpenUpload implements blob.Store.
func (s *Store) OpenUpload(ctx context.Context, u blob.Upload) (blob.File, error) {
	return s.Staging.OpenUpload(ctx, u)
}

// uploadPrefix begins to upload the parts of the received beginning, as many concurrently as the options permit.
func (s *Store) uploadPrefix(u blob.Upload, up *upload) {
	up.mu.Lock()
	defer up.mu.Unlock()
	for !up.stopped && up.running < s.Bucket.Options().UploadConcurrency {
		number := up.nextPart()
		if number == 0 {
			return
		}
		p := &part{}
		up.parts[number] = p
		up.running++
		if up.cancel == nil {
			s.startUpload(up)
		}
		s.work.Go(func() { s.uploadInBackground(u, up, number, p) })
	}
}

func (s *Store) startUpload(up *upload) {
	ctx, cancel := context.WithCancel(s.ctx)
	up.cancel = cancel
	up.begin = sync.OnceValues(func() (s3store.UploadID, error) {
		// It is not canceled: an object that has begun without a known ID would stay.
		return s.Bucket.BeginUpload(s.ctx, path.Join(streamDir, newStreamID()))
	})
	up.ctx = ctx
}

// nextPart returns the first part that is received and not uploaded; 0 when there is none. The caller holds mu.
func (up *upload) nextPart() int {
	for number := 1; number <= maxStreamedParts && up.partRange(number).end <= up.received.prefix(); number++ {
		if up.parts[number] == nil {
			return number
		}
	}
	return 0
}

// uploadInBackground uploads one part. After a failure the parts that are missing wait for CompleteUpload.
func (s *Store) uploadInBackground(u blob.Upload, up *upload, number int, p *part) {
	uploaded, err := s.uploadStaged(u, up, number)
	up.mu.Lock()
	up.running--
	p.uploaded, p.done = uploaded, err == nil
	if err != nil {
		up.stopped = true
		if up.ctx.Err() == nil {
			s.Bucket.Options().Logger.Warn("upload of a part failed; it is repeated at the commit", "session",
				u.PushSession, "part", number, "error", err)
		}
	}
	up.idle.Broadcast()
	up.mu.Unlock()
	s.uploadPrefix(u, up)
}

func (s *Store) uploadStaged(u blob.Upload, up *upload, number int) (s3store.UploadedPart, error) {
	object, err := up.begin()
	if err != nil {
		return s3store.UploadedPart{}, err
	}
	up.mu.Lock()
	first := up.object == s3store.UploadID{}
	up.object = object
	up.mu.Unlock()
	if first {
		if err := s.writeRecord(u, object, up.partSize); err != nil {
			return s3store.UploadedPart{}, err
		}
	}
	f, err := s.Staging.OpenUpload(up.ctx, u)
	if err != nil {
		return s3store.UploadedPart{}, err
	}
	at := up.partRange(number)
	uploaded, err := s.Bucket.PutPart(up.ctx, object, number, io.NewSectionReader(f, at.start, at.end-at.start))
	return uploaded, errors.Join(err, f.Close())
}

// complete waits until the parts that are being uploaded in the background are complete. No further ones begin.
func (up *upload) complete(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() {
		up.mu.Lock()
		defer up.mu.Unlock()
		up.idle.Broadcast()
	})()
	up.mu.Lock()
	defer up.mu.Unlock()
	up.stopped = true
	for up.running > 0 && ctx.Err() == nil {
		up.idle.Wait()
	}
	if up.running > 0 {
		return context.Cause(ctx)
	}
	return nil
}

// cancelParts cancels the uploads in the background and waits until they have ended.
func (up *upload) cancelParts() {
	up.mu.Lock()
	defer up.mu.Unlock()
	up.stopped = true
	if up.cancel != nil {
		up.cancel()
	}
	for up.running > 0 {
		up.idle.Wait()
	}
}

// DropUploads implements blob.Store.
func (s *Store) DropUploads(ctx context.Context, session string) error {
	s.mu.Lock()
	dropped := map[blob.Upload]*upload{}
	for u, up := range s.uploads {
		if u.PushSession == session {
			dropped[u] = up
			delete(s.uploads, u)
		}
	}
	s.mu.Unlock()
	var errs []error
	for u, up := range dropped {
		errs = append(errs, s.abort(ctx, u, up))
	}
	return errors.Join(append(errs, s.Staging.DropUploads(ctx, session))...)
}

// abort ends an upload without a layer. An object that stays incomplete is removed by the next start, or by the rule
// of the bucket.
func (s *Store) abort(ctx context.Context, u blob.Upload, up *upload) error {
	up.cancelParts()
	if up.object != (s3store.UploadID{}) {
		if err := s.Bucket.AbortUpload(ctx, up.object); err != nil {
			s.Bucket.Options().Logger.WarnContext(ctx, "abort of an upload failed", "session", u.PushSession, "error",
				err)
		}
	}
	return s.removeRecord(u)
}

// uploadRecord is the content of the file that lets the next process resume an upload.
type uploadRecord struct {
	Object   s3store.UploadID `json:"object"`
	PartSize int64            `json:"part_size"`
}

const recordSuffix = ".s3"

func recordPath(u blob.Upload) string {
	return path.Join(layout.UploadDir, u.PushSession, strconv.Itoa(u.FileIndex)+recordSuffix)
}

// writeRecord need not survive a loss of power: then the upload is aborted and begins again.
func (s *Store) writeRecord(u blob.Upload, object s3store.UploadID, partSize int64) error {
	raw, err := json.Marshal(uploadRecord{Object: object, PartSize: partSize})
	if err != nil {
		return fmt.Errorf("encode upload: %w", err)
	}
	if err := s.Dir.Root().WriteFile(recordPath(u), raw, 0o640); err != nil {
		return fmt.Errorf("record upload: %w", err)
	}
	return nil
}

func (s *Store) removeRecord(u blob.Upload) error {
	if err := s.Dir.Root().Remove(recordPath(u)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the record of an upload: %w", err)
	}
	return nil
}

// recoverUploads takes the uploads over whose records are in the directory, and aborts all others.
func (s *Store) recoverUploads(ctx context.Context) error {
	records, err := s.readRecords()
	if err != nil {
		return err
	}
	open, err := s.Bucket.ListUploads(ctx, streamDir+"/")
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(loadConnections)
	for _, object := range open {
		if _, mine := records[object]; !mine {
			group.Go(func() error { return s.Bucket.AbortUpload(ctx, object) })
		}
	}
	for object, r := range records {
		group.Go(func() error { return s.recoverUpload(ctx, r.upload, object, r.partSize) })
	}
	return group.Wait()
}

// recordedUpload is an upload of an earlier process.
type recordedUpload struct {
	upload   blob.Upload
	partSize int64
}

func (s *Store) readRecords() (map[s3store.UploadID]recordedUpload, error) {
	sessions, err := s.Dir.ReadDir(layout.UploadDir)
	if err != nil {
		return nil, fmt.Errorf("list uploads: %w", err)
	}
	out := map[s3store.UploadID]recordedUpload{}
	for _, session := range sessions {
		files, err := s.Dir.ReadDir(path.Join(layout.UploadDir, session.Name()))
		if err != nil {
			continue // a file
		}
		for _, f := range files {
			stem, ok := strings.CutSuffix(f.Name(), recordSuffix)
			index, err := strconv.Atoi(stem)
			if !ok || err != nil {
				continue
			}
			u := blob.Upload{PushSession: session.Name(), FileIndex: index}
			raw, err := s.Dir.Root().ReadFile(recordPath(u))
			var r uploadRecord
			if err != nil || json.Unmarshal(raw, &r) != nil || r.PartSize < s3store.MinPartSize ||
				!strings.HasPrefix(r.Object.Key, streamDir+"/") {
				continue
			}
			out[r.Object] = recordedUpload{u, r.PartSize}
		}
	}
	return out, nil
}

// recoverUpload reads which parts the server has. Their checksums are compared when the upload is completed.
func (s *Store) recoverUpload(ctx context.Context, u blob.Upload, object s3store.UploadID, partSize int64) error {
	parts, err := s.Bucket.ListParts(ctx, object)
	if errors.Is(err, fs.ErrNotExist) {
		return s.removeRecord(u)
	}
	if err != nil {
		return err
	}
	up := newUpload(partSize)
	up.object = object
	ctx, up.cancel = context.WithCancel(s.ctx)
	up.ctx = ctx
	up.begin = func() (s3store.UploadID, error) { return object, nil }
	for _, p := range parts {
		if p.Size == partSize {
			up.parts[p.Number] = &part{uploaded: p, done: true, verify: true}
		}
	}
	for number := 1; up.parts[number] != nil; number++ {
		up.received = up.received.add(up.partRange(number))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uploads[u] = up
	return nil
}
