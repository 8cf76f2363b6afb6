package objects

import (
	"math"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/layout"
	"github.com/buildyard/buildyard/internal/s3store"
	"github.com/buildyard/buildyard/internal/s3store/s3test"
)

// newDeleted returns the metadata of a bucket with a template that was deleted long ago.
func newDeleted(t *testing.T) (*Metadata, *s3test.Server) {
	t.Helper()
	server := s3test.Start(t)
	bucket, err := s3store.New(server.Options())
	if err != nil {
		t.Fatal(err)
	}
	lease, err := bucket.Acquire(t.Context(), s3store.Owner{ID: "test"})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := layout.Create(t.TempDir(), layout.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() }) // nothing was written
	m := New(t.Context(), bucket, lease, dir)
	commit(t, m, "old")
	if err := m.TrashTemplate(templateID, 1); err != nil {
		t.Fatal(err)
	}
	for key, marker := range m.trash {
		marker.seen = marker.seen.Add(-time.Hour)
		m.trash[key] = marker
	}
	return m, server
}

func version(content string) *layout.Version {
	return &layout.Version{Tag: content, ContentID: content}
}

// commit pushes a version of the template.
func commit(t *testing.T, m *Metadata, content string) {
	t.Helper()
	v := version(content)
	if err := m.PutVersion(templateID, v, []byte(`{}`), nil); err != nil {
		t.Fatal(err)
	}
	pushed := &layout.Template{ID: templateID, Versions: []layout.Version{*v}}
	if err := m.PutTemplate(pushed, []byte(`{"content":"`+content+`"}`)); err != nil {
		t.Fatal(err)
	}
}

func purgeAll(t *testing.T, m *Metadata) {
	t.Helper()
	if err := m.PurgeTrash(math.MaxInt64); err != nil {
		t.Fatal(err)
	}
}

func TestPurge(t *testing.T) {
	m, server := newDeleted(t)
	purgeAll(t, m)
	left := slices.DeleteFunc(server.Keys(""), func(key string) bool { return key == s3store.OwnerKey })
	if len(left) != 0 || len(m.trash) != 0 {
		t.Errorf("objects %v, markers %v", left, m.trash)
	}
	commit(t, m, "new")
}

// TestPurgeSparesAPush: the objects of a push that has begun stay, and the deleted template does not come back if the
// push fails.
func TestPurgeSparesAPush(t *testing.T) {
	m, server := newDeleted(t)
	if err := m.PutVersion(templateID, version("new"), []byte(`{}`), nil); err != nil {
		t.Fatal(err)
	}
	purgeAll(t, m)
	key := versionKey(templateID, version("new"))
	if server.Get(key) == nil {
		t.Error("the object of the new version was purged")
	}
	if len(server.Keys(layout.TrashDir+"/")) != 1 || server.Get(templateKey(templateID)) == nil {
		t.Errorf("the deleted template: %v", server.Keys(""))
	}
	commit(t, m, "new")
	purgeAll(t, m)
	if server.Get(key) == nil || len(server.Keys(layout.TrashDir+"/")) != 0 {
		t.Errorf("after the push: %v", server.Keys(""))
	}
}

// TestPushWaitsForAPurge: a push that begins during the purge of its template writes after it.
func TestPushWaitsForAPurge(t *testing.T) {
	m, server := newDeleted(t)
	pushed := make(chan error, 1)
	began := false
	server.SetFault(func(r *http.Request) s3test.Fault {
		if began || r.URL.Query().Get("prefix") != layout.TemplatePath(templateID)+"/" {
			return s3test.Fault{}
		}
		began = true
		return s3test.Fault{Before: func() {
			go func() { pushed <- m.PutVersion(templateID, version("new"), []byte(`{}`), nil) }()
			time.Sleep(50 * time.Millisecond) // a push that does not wait would write now
		}}
	})
	purgeAll(t, m)
	if err := <-pushed; err != nil || !began {
		t.Fatal(err)
	}
	if server.Get(versionKey(templateID, version("new"))) == nil {
		t.Errorf("the new version is lost: %v", server.Keys(""))
	}
}
