package objects

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/buildyard/buildyard/internal/layout"
	"github.com/buildyard/buildyard/internal/s3store"
)

const (
	// loadConnections is the number of objects that are read concurrently.
	loadConnections = 16
	// etagFile has the ETag of a template.json object and the sha256 of its text. It applies to a local copy with the
	// same text, so its loss or age costs one read.
	etagFile = ".etag"
)

// listing is what a listing of the bucket found.
type listing struct {
	files map[string]s3store.Object // scan reports, logs of pulls and tombstones, by key
}

// Load makes the local copy equal to the bucket. It reads only what the copy lacks.
func (m *Metadata) Load(ctx context.Context) error {
	found := listing{files: map[string]s3store.Object{}}
	if err := m.list(ctx, &found); err != nil {
		return err
	}
	if err := m.removeUnlisted(&found); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(loadConnections)
	for id, t := range m.templates {
		if t.etag == "" || t.trashed {
			continue
		}
		group.Go(func() error { return m.loadTemplate(ctx, id, t.etag) })
	}
	for key, o := range found.files {
		group.Go(func() error { return m.loadFile(ctx, key, o) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return m.removeLeftovers()
}

// list lists the metadata of the bucket.
func (m *Metadata) list(ctx context.Context, found *listing) error {
	err := m.bucket.List(ctx, layout.TemplatesDir+"/", func(o s3store.Object) error {
		id, ok := templateOfKey(o.Key)
		switch name := path.Base(o.Key); {
		case !ok:
		case name == templateFile:
			m.objectsOf(id).etag = o.ETag
		case strings.Count(o.Key, "/") == 2 && strings.HasSuffix(name, ".json"):
			m.objectsOf(id).versions[o.Key] = true
		default:
			found.files[o.Key] = o
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = m.bucket.List(ctx, deletedDir+"/", func(o s3store.Object) error {
		if id, ok := layout.ParseID(path.Base(o.Key)); ok && o.Key == path.Join(deletedDir, id) {
			found.files[o.Key] = o
		}
		return nil
	})
	if err != nil {
		return err
	}
	return m.listTrash(ctx)
}

func (m *Metadata) listTrash(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(loadConnections)
	var mu sync.Mutex
	err := m.bucket.List(ctx, layout.TrashDir+"/", func(o s3store.Object) error {
		id, stamp, ok := parseMarkerKey(o.Key)
		if !ok {
			return nil
		}
		group.Go(func() error {
			raw, _, err := m.bucket.Get(groupCtx, o.Key, maxMarkerBytes)
			if err != nil {
				return err
			}
			var marker trashMarker
			if json.Unmarshal(raw, &marker) != nil || marker.ID != id {
				return nil // written by something else: the template stays visible
			}
			marker.Stamp, marker.seen = stamp, time.Now()
			mu.Lock()
			defer mu.Unlock()
			m.trash[o.Key] = marker
			return nil
		})
		return nil
	})
	if err = errors.Join(err, group.Wait()); err != nil {
		return err
	}
	for _, marker := range m.trash {
		if t := m.templates[marker.ID]; t != nil && sameETag(t.etag, marker.ETag) {
			t.trashed = true
		}
	}
	return nil
}

// removeUnlisted removes from the local copy what the bucket does not have.
func (m *Metadata) removeUnlisted(found *listing) error {
	entries, err := m.dir.ReadDir(layout.TemplatesDir)
	if err != nil {
		return fmt.Errorf("read the local copy: %w", err)
	}
	for _, e := range entries {
		if t := m.templates[e.Name()]; t != nil && t.etag != "" && !t.trashed {
			continue
		}
		if err := m.removeLocal(layout.TemplatePath(e.Name())); err != nil {
			return err
		}
	}
	entries, err = m.dir.ReadDir(deletedDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the local copy: %w", err)
	}
	for _, e := range entries {
		if _, ok := found.files[path.Join(deletedDir, e.Name())]; !ok {
			if err := m.removeLocal(path.Join(deletedDir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeLocal removes a part of the local copy. It need not survive a crash: the next Load repeats it.
func (m *Metadata) removeLocal(name string) error {
	if err := m.dir.Root().RemoveAll(name); err != nil {
		return fmt.Errorf("remove %s from the local copy: %w", name, err)
	}
	return nil
}

// loadTemplate reads a template whose local copy is missing or old.
func (m *Metadata) loadTemplate(ctx context.Context, id, etag string) error {
	if m.isCurrent(id, etag) {
		if t, err := m.dir.Template(id); err == nil {
			return errors.Join(m.restoreVersions(ctx, &t), m.pruneVersions(&t))
		}
	}
	raw, at, err := m.bucket.Get(ctx, templateKey(id), maxTemplateBytes)
	if err != nil {
		return err
	}
	if !sameETag(at.ETag, etag) {
		return fmt.Errorf("template %s was changed while it was read: another registry writes to %s", id, m.bucket)
	}
	return m.restoreTemplate(id, raw, etag)
}

// restoreTemplate writes the local copy of a template.
func (m *Metadata) restoreTemplate(id string, raw []byte, etag string) error {
	if err := m.dir.MkdirAll(layout.TemplatePath(id)); err != nil {
		return err
	}
	if err := m.dir.WriteFile("copy", templateKey(id), raw); err != nil {
		return err
	}
	t, err := m.dir.Template(id)
	if err != nil {
		return nil // damaged in the bucket: the registry reports it
	}
	if err := errors.Join(m.restoreVersions(m.ctx, &t), m.pruneVersions(&t)); err != nil {
		return err
	}
	m.writeETag(id, etag, raw)
	return nil
}

// isCurrent reports whether the local template.json is the object with an ETag.
func (m *Metadata) isCurrent(id, etag string) bool {
	held, err := m.dir.Root().ReadFile(path.Join(layout.TemplatePath(id), etagFile))
	if err != nil {
		return false
	}
	text, err := m.dir.Root().ReadFile(templateKey(id))
	return err == nil && string(held) == etagLine(etag, text)
}

func etagLine(etag string, text []byte) string {
	return fmt.Sprintf("%s %x\n", strings.Trim(etag, `"`), sha256.Sum256(text))
}

// writeETag records of which object the local copy is one. A failure costs a read at the next start.
func (m *Metadata) writeETag(id, etag string, text []byte) {
	name := path.Join(layout.TemplatePath(id), etagFile)
	if err := m.dir.Root().WriteFile(name, []byte(etagLine(etag, text)), 0o640); err != nil {
		_ = m.dir.Root().Remove(name)
	}
}

// restoreVersions reads the files of versions that the local copy lacks. A version whose object is damaged or missing
// is left out: the registry reports it.
func (m *Metadata) restoreVersions(ctx context.Context, t *layout.Template) error {
	for i := range t.Versions {
		v := &t.Versions[i]
		if m.dir.HasVersionFiles(t.ID, v) {
			continue
		}
		raw, _, err := m.bucket.Get(ctx, versionKey(t.ID, v), maxVersionBytes)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		var o versionObject
		if json.Unmarshal(raw, &o) != nil || len(o.NVRAM) > layout.MaxNVRAM || len(o.Config) > layout.MaxConfigJSON {
			continue
		}
		if err := m.dir.RestoreVersion(t.ID, v, o.Config, o.NVRAM); err != nil {
			return err
		}
	}
	return nil
}

// loadFile reads a file that the local copy lacks. Files of one size are the same unless they are logs of pulls.
func (m *Metadata) loadFile(ctx context.Context, key string, o s3store.Object) error {
	if id, ok := templateOfKey(key); ok {
		if t := m.templates[id]; t == nil || t.etag == "" || t.trashed {
			return nil
		}
	}
	if st, err := m.dir.Root().Stat(key); err == nil && st.Size() == o.Size && !strings.HasSuffix(key, ".log") {
		return nil
	}
	raw, _, err := m.bucket.Get(ctx, key, maxFileBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if strings.HasSuffix(key, ".log") {
		if st, err := m.dir.Root().Stat(key); err == nil && !st.ModTime().Before(o.Modified) {
			return nil // the local log has newer lines
		}
	}
	if err := m.dir.MkdirAll(path.Dir(key)); err != nil {
		return err
	}
	return m.dir.WriteFile("copy", key, raw)
}

// removeLeftovers removes the version objects of templates whose first push ended before its commit.
func (m *Metadata) removeLeftovers() error {
	for id, t := range m.templates {
		if t.etag == "" && len(t.versions) > 0 {
			if err := m.pruneVersions(&layout.Template{ID: id}); err != nil {
				return err
			}
		}
	}
	return nil
}
