package objects

import (
	"encoding/json"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/layout"
	"github.com/buildyard/buildyard/internal/s3store"
)

// TrashTemplate implements layout.Remote. The marker is the commit point of the deletion.
func (m *Metadata) TrashTemplate(id string, stamp int64) error {
	m.mu.Lock()
	t := m.objectsOf(id)
	marker := trashMarker{ID: id, ETag: t.etag, Stamp: stamp, seen: time.Now()}
	done := t.trashed || t.etag == ""
	m.mu.Unlock()
	if done {
		return nil // an earlier call that failed later
	}
	raw, err := json.Marshal(marker)
	if err != nil {
		return fmt.Errorf("encode trash marker: %w", err)
	}
	key := path.Join(layout.TrashDir, layout.TrashName(stamp, id))
	if _, err := m.lease.Put(m.ctx, key, raw, s3store.Condition{}); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trash[key] = marker
	m.objectsOf(id).trashed = true
	return nil
}

// PurgeTrash implements layout.Remote. It removes only what this process has seen as deleted for two leases: then the
// requests of an earlier owner have ended.
func (m *Metadata) PurgeTrash(before int64) error {
	m.mu.Lock()
	old := map[string]trashMarker{}
	for key, marker := range m.trash {
		if marker.Stamp < before && time.Since(marker.seen) >= 2*m.lease.Duration() {
			old[key] = marker
		}
	}
	m.mu.Unlock()
	if len(old) == 0 {
		return nil
	}
	if err := m.lease.Confirm(m.ctx); err != nil {
		return err
	}
	if err := m.CheckUnchanged(m.ctx); err != nil {
		return err
	}
	for key, marker := range old {
		if err := m.purge(key, marker); err != nil {
			return err
		}
	}
	return nil
}

// purge removes the objects of a deleted template and then its marker. When a new template has its ID, only the marker
// is removed, and while a push is replacing the deleted one, nothing.
func (m *Metadata) purge(key string, marker trashMarker) error {
	m.mu.Lock()
	t := m.templates[marker.ID]
	if t == nil || !t.trashed || !sameETag(t.etag, marker.ETag) {
		m.mu.Unlock()
		return m.removeMarker(key)
	}
	if t.reused {
		m.mu.Unlock()
		return nil
	}
	t.purging = make(chan struct{})
	m.mu.Unlock()

	err := m.removeTemplate(marker.ID)
	m.mu.Lock()
	close(t.purging)
	if t.purging = nil; err == nil {
		delete(m.templates, marker.ID)
	}
	m.mu.Unlock()
	if err != nil {
		return err
	}
	return m.removeMarker(key)
}

// removeMarker removes a marker from the trash.
func (m *Metadata) removeMarker(key string) error {
	if err := m.lease.Delete(m.ctx, key); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.trash, key)
	return nil
}

// removeTemplate removes the objects of a template.
func (m *Metadata) removeTemplate(id string) error {
	prefix := layout.TemplatePath(id) + "/"
	var keys []string
	err := m.bucket.List(m.ctx, prefix, func(o s3store.Object) error {
		if o.Key != templateKey(id) {
			keys = append(keys, o.Key)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, key := range append(keys, templateKey(id)) { // last: it shows that there is something to purge
		if err := m.lease.Delete(m.ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// parseMarkerKey returns template and time of the key of a marker; false for the markers of layers.
func parseMarkerKey(key string) (id string, stamp int64, ok bool) {
	name, ok := strings.CutPrefix(key, layout.TrashDir+"/")
	if !ok {
		return "", 0, false
	}
	when, id, ok := strings.Cut(name, "-")
	stamp, err := strconv.ParseInt(when, 10, 64)
	clean, valid := layout.ParseID(id)
	return id, stamp, ok && err == nil && valid && clean == id
}
