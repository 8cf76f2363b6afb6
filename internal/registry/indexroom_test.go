package registry

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// TestFewIndexesAtATime: an index is read once enough memory is available, and one that is still being received
// uses none.
func TestFewIndexesAtATime(t *testing.T) {
	r := open(t, t.TempDir(), newClock())
	c := makeContent("disk", api.FileDisk, "room")
	begin := func(id string) api.PushSession {
		s, err := r.Negotiate(t.Context(), request(id, "v1", c))
		must(t, err)
		must(t, r.PutPart(t.Context(), s.Session, "disk", 0, c.part()))
		return s
	}
	slow, quick := begin(idA), begin(idB)
	body, feed := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- r.PutIndex(t.Context(), slow.Session, "disk", c.root(), body) }()
	raw := c.index.Encoded()
	_, err := feed.Write(raw[:len(raw)/2])
	must(t, err)
	put := func(ctx context.Context) error {
		return r.PutIndex(ctx, quick.Session, "disk", c.root(), bytes.NewReader(raw))
	}
	must(t, put(t.Context())) // concurrently with the one that is being received

	must(t, r.indexMemory.Acquire(t.Context(), maxIndexMemory))
	waiting, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	commit := func(ctx context.Context) error {
		_, err := r.CommitPush(ctx, quick.Session, api.PushCommit{Roots: map[string]string{"disk": c.root()}})
		return err
	}
	for name, err := range map[string]error{"an index": put(waiting), "a commit": commit(waiting)} {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s without room: %v", name, err)
		}
	}
	r.indexMemory.Release(maxIndexMemory)
	must(t, commit(t.Context()))
	_, err = feed.Write(raw[len(raw)/2:])
	must(t, err)
	must(t, feed.Close())
	must(t, <-ended)
	if !r.indexMemory.TryAcquire(maxIndexMemory) {
		t.Error("room is not given back")
	}
}

// TestIndexIsReadAtTheCommit: an open push keeps the digest of its index and not the index, which is checked
// again when it is needed.
func TestIndexIsReadAtTheCommit(t *testing.T) {
	r := open(t, t.TempDir(), newClock())
	c := makeContent("disk", api.FileDisk, "read again")
	s, err := r.Negotiate(t.Context(), request(idA, "v1", c))
	must(t, err)
	roots, err := send(r, s, []content{c})
	must(t, err)
	_, u, err := r.openUpload(s.Session, "disk")
	must(t, err)
	other := makeContent("disk", api.FileDisk, "another one")
	for name, spoil := range map[string]func() error{
		"gone":    func() error { return r.dir.RemoveAll("test", u.filePath(indexSuffix)) },
		"damaged": func() error { return r.dir.WriteFile("test", u.filePath(indexSuffix), c.index.Encoded()[1:]) },
		"another": func() error { return r.dir.WriteFile("test", u.filePath(indexSuffix), other.index.Encoded()) },
	} {
		must(t, spoil())
		if _, err := r.CommitPush(t.Context(), s.Session,
			api.PushCommit{Roots: roots}); farm.CodeOf(err) != farm.CodeConflict {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !r.indexMemory.TryAcquire(maxIndexMemory) {
		t.Error("room is not given back")
	}
	r.indexMemory.Release(maxIndexMemory)
	must(t, r.PutIndex(t.Context(), s.Session, "disk", c.root(), bytes.NewReader(c.index.Encoded())))
	_, err = r.CommitPush(t.Context(), s.Session, api.PushCommit{Roots: roots})
	must(t, err)
	mustBeClean(t, r)
}
