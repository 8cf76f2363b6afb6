// Package disk stores layer files in the directories of a registry's storage.
//
// It does not manage them: the registry decides which layers are needed, pinned or collected.
//
// Invariant: a file in images_dir or state_file_dir is complete and on stable storage, since it gets there by
// one rename after a sync.
package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/layout"
)

// writebackInterval is the number of bytes after which the kernel is asked to begin writing.
const writebackInterval = 4 << 20

// Store is a blob.Store in the directories of a storage. Uploads are "upload_dir/<session>/<file>.part", so all
// directories must be on one file system.
type Store struct{ dir *layout.Dir }

var _ blob.Store = (*Store)(nil)

// New returns a store in an open storage, which the caller closes.
func New(dir *layout.Dir) *Store { return &Store{dir: dir} }

func uploadPath(u blob.Upload) string {
	return path.Join(layout.UploadDir, u.PushSession, strconv.Itoa(u.FileIndex)+".part")
}

// WritePart implements blob.Store.
func (s *Store) WritePart(ctx context.Context, u blob.Upload, off int64, r io.Reader) (int64, error) {
	f, err := s.openUpload(u)
	if err != nil {
		return 0, err
	}
	w := &asyncWriter{ctx: ctx, file: f, off: off, writebackEnd: off}
	n, err := io.Copy(w, r)
	w.startWriteback()
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return n, err
}

func (s *Store) openUpload(u blob.Upload) (*os.File, error) {
	if err := s.dir.MkdirAll(path.Join(layout.UploadDir, u.PushSession)); err != nil {
		return nil, err
	}
	f, err := s.dir.Root().OpenFile(uploadPath(u), os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, fmt.Errorf("open upload: %w", err)
	}
	return f, nil
}

// asyncWriter writes a part and starts writeback to disk while more data arrives.
type asyncWriter struct {
	ctx          context.Context
	file         *os.File
	off          int64
	writebackEnd int64 // end of the range that the kernel was asked to write
}

func (w *asyncWriter) Write(p []byte) (int, error) {
	if err := context.Cause(w.ctx); err != nil {
		return 0, err
	}
	n, err := w.file.WriteAt(p, w.off)
	w.off += int64(n)
	if w.off-w.writebackEnd >= writebackInterval {
		w.startWriteback()
	}
	return n, err
}

func (w *asyncWriter) startWriteback() {
	if w.off > w.writebackEnd {
		blob.StartWriteback(w.file, w.writebackEnd, w.off-w.writebackEnd)
		w.writebackEnd = w.off
	}
}

// DiscardRange implements blob.Store.
func (s *Store) DiscardRange(_ context.Context, u blob.Upload, off, n int64) error {
	f, err := s.dir.Root().OpenFile(uploadPath(u), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove incomplete part: %w", err)
	}
	return errors.Join(blob.PunchHole(f, off, n), f.Close())
}

// OpenUpload implements blob.Store.
func (s *Store) OpenUpload(_ context.Context, u blob.Upload) (blob.File, error) {
	return s.openFile(uploadPath(u))
}

// openFile returns a nil interface, not an interface with a nil file, after an error.
func (s *Store) openFile(name string) (blob.File, error) {
	f, err := s.dir.Root().Open(name)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// CompleteUpload implements blob.Store.
func (s *Store) CompleteUpload(ctx context.Context, u blob.Upload, x *blob.Index) error {
	target := layerPath(x.Digest(), x.Kind() == blob.KindState)
	if _, err := s.dir.Root().Stat(target); err == nil {
		return s.dir.RemoveAll("layer", uploadPath(u))
	}
	f, err := s.openUpload(u)
	if err != nil {
		return err
	}
	err = s.appendIndex(f, x)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("complete layer %s: %w", x.Digest(), err)
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return s.dir.Rename("layer", uploadPath(u), target)
}

func (s *Store) appendIndex(f *os.File, x *blob.Index) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if st.Size() < x.StoredBytes() {
		return fmt.Errorf("upload has %d bytes: want %d", st.Size(), x.StoredBytes())
	}
	s.dir.AnnounceStep("layer.tail")
	if _, err := f.WriteAt(x.IndexAndFooter(), x.StoredBytes()); err != nil {
		return err
	}
	if err := f.Truncate(x.FileSize()); err != nil {
		return err
	}
	s.dir.AnnounceStep("layer.sync")
	return s.dir.SyncWith(f, blob.SyncData)
}

// DropUploads implements blob.Store. It leaves the session's directory, which also has files of the registry.
func (s *Store) DropUploads(_ context.Context, session string) error {
	dir := path.Join(layout.UploadDir, session)
	entries, err := s.dir.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove uploads: %w", err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".part") {
			err = errors.Join(err, s.dir.RemoveAll("drop", path.Join(dir, e.Name())))
		}
	}
	return err
}

// RemoveUpload removes the received bytes of an upload; it is not an error if there are none.
func (s *Store) RemoveUpload(u blob.Upload) error { return s.dir.RemoveAll("drop", uploadPath(u)) }

// Open implements blob.Store.
func (s *Store) Open(_ context.Context, root blob.Digest) (blob.File, error) {
	f, err := s.openFile(layerPath(root, false))
	if errors.Is(err, fs.ErrNotExist) {
		return s.openFile(layerPath(root, true))
	}
	return f, err
}

func layerPath(root blob.Digest, state bool) string {
	dir := layout.ImagesDir
	if state {
		dir = layout.StateFileDir
	}
	return path.Join(dir, root.String()+layout.LayerSuffix)
}

// List implements blob.Store. It ignores files with other names.
func (s *Store) List(_ context.Context) ([]blob.LayerInfo, error) {
	var out []blob.LayerInfo
	for _, dir := range []string{layout.ImagesDir, layout.StateFileDir} {
		entries, err := s.dir.ReadDir(dir)
		if err != nil {
			return nil, fmt.Errorf("list layers: %w", err)
		}
		for _, e := range entries {
			stem, _ := strings.CutSuffix(e.Name(), layout.LayerSuffix)
			root, err := blob.ParseDigest(stem)
			if err != nil {
				continue
			}
			st, err := e.Info()
			if err != nil {
				continue // removed since then
			}
			stored := blob.LayerInfo{Digest: root, Size: st.Size(), Modified: st.ModTime()}
			if !st.Mode().IsRegular() {
				stored.Problem = "is not a regular file"
			}
			out = append(out, stored)
		}
	}
	return out, nil
}

// Space implements blob.Store.
func (s *Store) Space(context.Context) (free, total int64, err error) {
	return fileSystemSpace(s.dir.Base())
}

// TrashedStatePrefix begins the name that a layer of state_file_dir has in the trash.
const TrashedStatePrefix = "state-"

// damagedPrefix begins the name of a damaged layer in the trash: it is never restored.
const damagedPrefix = "damaged-"

// Trash implements blob.Store.
func (s *Store) Trash(_ context.Context, root blob.Digest, now time.Time) error {
	return s.moveToTrash(root, now, "")
}

// Quarantine implements blob.Store.
func (s *Store) Quarantine(_ context.Context, root blob.Digest, now time.Time) error {
	return s.moveToTrash(root, now, damagedPrefix)
}

func (s *Store) moveToTrash(root blob.Digest, now time.Time, mark string) error {
	for _, state := range []bool{false, true} {
		name := root.String() + layout.LayerSuffix
		if state {
			name = TrashedStatePrefix + name
		}
		name = mark + name
		target := path.Join(layout.TrashDir, layout.TrashName(now.UnixNano(), name))
		err := s.dir.Rename("trash", layerPath(root, state), target)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Restore implements blob.Store.
func (s *Store) Restore(_ context.Context, root blob.Digest) (bool, error) {
	entries, err := s.dir.TrashEntries()
	if err != nil {
		return false, err
	}
	name := root.String() + layout.LayerSuffix
	for _, e := range entries {
		if e.OriginalName == name || e.OriginalName == TrashedStatePrefix+name {
			return true, s.dir.Rename("restore", e.Path(), layerPath(root, e.OriginalName != name))
		}
	}
	return false, nil
}

// PurgeTrash implements blob.Store.
func (s *Store) PurgeTrash(_ context.Context, before time.Time) (int, error) {
	return s.dir.PurgeTrash(before.UnixNano(),
		func(name string) bool { return strings.HasSuffix(name, layout.LayerSuffix) })
}
