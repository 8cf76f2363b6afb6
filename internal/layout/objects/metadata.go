package objects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/layout"
	"github.com/buildyard/buildyard/internal/s3store"
)

const (
	deletedDir       = "deleted_dir"
	templateFile     = "template.json"
	maxTemplateBytes = 64 << 20
	maxVersionBytes  = 16 << 20
	maxFileBytes     = 256 << 20
	maxMarkerBytes   = 4 << 10
)

// Metadata is the layout.Remote in a bucket. Its methods may be called from many goroutines; not concurrently for one
// template.
type Metadata struct {
	ctx    context.Context // ends when the registry closes: the methods of layout.Remote have none
	bucket *s3store.Bucket
	lease  *s3store.Lease
	dir    *layout.Dir

	mu        sync.Mutex // guards the fields below
	templates map[string]*templateObjects
	trash     map[string]trashMarker // by key
}

var _ layout.Remote = (*Metadata)(nil)

// templateObjects is what the bucket has of one template.
type templateObjects struct {
	etag     string          // of template.json; "" when there is none
	trashed  bool            // a marker in the trash names this ETag
	reused   bool            // a push has begun to write a new template in place of the one in the trash
	purging  chan struct{}   // closed when the purge of the one in the trash has ended; nil: none runs
	versions map[string]bool // keys of version objects
}

// trashMarker is the content of a marker in the trash.
type trashMarker struct {
	ID    string `json:"template"`
	ETag  string `json:"etag"` // of the template.json that was deleted
	Stamp int64  `json:"-"`    // epoch nanoseconds

	seen time.Time // when this process wrote or found it
}

// versionObject is the content of a version's object.
type versionObject struct {
	Config json.RawMessage `json:"config"`
	NVRAM  []byte          `json:"nvram,omitempty"`
}

// New returns the metadata below the prefix that a lease is for, of which dir becomes the local copy. ctx ends all
// writes.
func New(ctx context.Context, bucket *s3store.Bucket, lease *s3store.Lease, dir *layout.Dir) *Metadata {
	return &Metadata{
		ctx: ctx, bucket: bucket, lease: lease, dir: dir,
		templates: map[string]*templateObjects{}, trash: map[string]trashMarker{},
	}
}

func templateKey(id string) string { return layout.TemplateFilePath(id) }

// TemplateKey is the key of a template.json.
func TemplateKey(id string) string { return templateKey(id) }

// VersionKey is the key of what a version has in addition to its layers.
func VersionKey(id string, v *layout.Version) string { return versionKey(id, v) }

// EncodeVersion returns the content of that object. config is JSON.
func EncodeVersion(config, nvram []byte) ([]byte, error) {
	raw, err := json.Marshal(versionObject{Config: config, NVRAM: nvram})
	if err != nil {
		return nil, fmt.Errorf("encode version: %w", err)
	}
	return raw, nil
}

func versionKey(id string, v *layout.Version) string {
	return path.Join(layout.TemplatePath(id), fmt.Sprintf("%d-%s.json", v.Number, v.ContentID))
}

// objectsOf returns the objects of a template. The caller holds mu.
func (m *Metadata) objectsOf(id string) *templateObjects {
	t := m.templates[id]
	if t == nil {
		t = &templateObjects{versions: map[string]bool{}}
		m.templates[id] = t
	}
	return t
}

// PutVersion implements layout.Remote.
func (m *Metadata) PutVersion(id string, v *layout.Version, config, nvram []byte) error {
	raw, err := EncodeVersion(config, nvram)
	if err != nil {
		return err
	}
	if err := m.reuse(id); err != nil {
		return err
	}
	key := versionKey(id, v)
	if _, err := m.lease.Put(m.ctx, key, raw, s3store.Condition{}); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.objectsOf(id).versions[key] = true
	return nil
}

// reuse keeps the objects of a template from being purged, since a new version is about to be among them. It waits
// for the end of a purge.
func (m *Metadata) reuse(id string) error {
	for {
		m.mu.Lock()
		t := m.objectsOf(id)
		if t.purging == nil {
			t.reused = t.trashed
			m.mu.Unlock()
			return nil
		}
		ended := t.purging
		m.mu.Unlock()
		select {
		case <-ended:
		case <-m.ctx.Done():
			return context.Cause(m.ctx)
		}
	}
}

// PutTemplate implements layout.Remote.
func (m *Metadata) PutTemplate(t *layout.Template, raw []byte) error {
	id := t.ID
	m.mu.Lock()
	etag := m.objectsOf(id).etag
	m.mu.Unlock()
	etag, err := m.lease.Put(m.ctx, templateKey(id), raw, s3store.Condition{ETag: etag, Absent: etag == ""})
	if errors.Is(err, s3store.ErrConflict) {
		return m.reload(id)
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	known := m.objectsOf(id)
	known.etag, known.trashed, known.reused = etag, false, false
	m.mu.Unlock()
	m.writeETag(id, etag, raw)
	if err := m.pruneVersions(t); err != nil { // the next start removes them
		m.bucket.Options().Logger.Warn("removing the objects of reverted versions failed", "template", id, "error", err)
	}
	return nil
}

// reload makes the local copy of a template equal to the bucket after a write that the condition refused. It was
// changed by hand, or by an earlier write of this process whose response was lost.
func (m *Metadata) reload(id string) error {
	if err := m.lease.Confirm(m.ctx); err != nil {
		return err
	}
	raw, at, err := m.bucket.Get(m.ctx, templateKey(id), maxTemplateBytes)
	if err != nil {
		return err
	}
	if err := m.restoreTemplate(id, raw, at.ETag); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.objectsOf(id)
	t.etag, t.trashed, t.reused = at.ETag, false, false
	return fmt.Errorf("template %s: %w", id, layout.ErrGenerationConflict)
}

// pruneVersions removes the objects of versions that a template does not have.
func (m *Metadata) pruneVersions(t *layout.Template) error {
	wanted := map[string]bool{}
	for i := range t.Versions {
		wanted[versionKey(t.ID, &t.Versions[i])] = true
	}
	m.mu.Lock()
	var stale []string
	for key := range m.objectsOf(t.ID).versions {
		if !wanted[key] {
			stale = append(stale, key)
		}
	}
	m.mu.Unlock()
	for _, key := range stale {
		if err := m.lease.Delete(m.ctx, key); err != nil {
			return err
		}
		m.mu.Lock()
		delete(m.objectsOf(t.ID).versions, key)
		m.mu.Unlock()
	}
	return nil
}

// PutFile implements layout.Remote.
func (m *Metadata) PutFile(name string, data []byte) error {
	_, err := m.lease.Put(m.ctx, name, data, s3store.Condition{})
	return err
}

// RemoveFile implements layout.Remote.
func (m *Metadata) RemoveFile(name string) error { return m.lease.Delete(m.ctx, name) }

// CheckUnchanged returns an error if a template.json in the bucket is not the one that this process wrote or read:
// then its references of layers are unknown here, and nothing may be deleted.
func (m *Metadata) CheckUnchanged(ctx context.Context) error {
	found := map[string]string{}
	err := m.bucket.List(ctx, layout.TemplatesDir+"/", func(o s3store.Object) error {
		if id, ok := templateOfKey(o.Key); ok && path.Base(o.Key) == templateFile {
			found[id] = o.ETag
		}
		return nil
	})
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, etag := range found {
		if t := m.templates[id]; t == nil || !sameETag(t.etag, etag) {
			return fmt.Errorf("template %s was changed in %s by another writer; restart the registry", id, m.bucket)
		}
	}
	return nil
}

func sameETag(a, b string) bool { return strings.Trim(a, `"`) == strings.Trim(b, `"`) }

// templateOfKey returns the template to which a key below vm_dir belongs.
func templateOfKey(key string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(key, layout.TemplatesDir+"/")
	if !ok {
		return "", false
	}
	id, _, ok = strings.Cut(rest, "/")
	clean, valid := layout.ParseID(id)
	return id, ok && valid && clean == id
}
