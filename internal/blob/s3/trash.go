package s3

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/layout"
	"github.com/buildyard/buildyard/internal/s3store"
)

const (
	// damagedPrefix begins the name of a damaged layer in the trash: it is never restored.
	damagedPrefix = "damaged-"
	// statePrefix begins the name of a layer of state_file_dir in the trash.
	statePrefix = "state-"
	// orphanMark begins the keys under which orphaned objects are kept in memory. They have no marker.
	orphanMark = "orphan "

	maxMarkerBytes  = 4 << 10
	loadConnections = 16
)

// trashedLayer is a deleted layer. Its exported fields are the content of its marker.
type trashedLayer struct {
	Key string `json:"key"` // of the bytes; "" when another upload has replaced them

	digest  blob.Digest
	stamp   int64     // epoch nanoseconds
	seen    time.Time // when this process moved it there, or found it there
	damaged bool
	orphan  bool        // an object without a layer and without a marker
	layer   layerObject // zero when the objects are gone
}

func (s *Store) readTrash(ctx context.Context) (map[string]trashedLayer, error) {
	out := map[string]trashedLayer{}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(loadConnections)
	var mu sync.Mutex
	err := s.Bucket.List(ctx, layout.TrashDir+"/", func(o s3store.Object) error {
		t, ok := parseMarkerKey(o.Key)
		if !ok {
			return nil
		}
		group.Go(func() error {
			raw, _, err := s.Bucket.Get(groupCtx, o.Key, maxMarkerBytes)
			if err != nil {
				return err
			}
			if json.Unmarshal(raw, &t) != nil {
				t.Key = ""
			}
			mu.Lock()
			defer mu.Unlock()
			out[o.Key] = t
			return nil
		})
		return nil
	})
	return out, errors.Join(err, group.Wait())
}

// parseMarkerKey returns what the key of a layer's marker says; false for the markers of templates.
func parseMarkerKey(key string) (trashedLayer, bool) {
	var t trashedLayer
	name, ok := strings.CutPrefix(key, layout.TrashDir+"/")
	if !ok {
		return t, false
	}
	when, name, ok := strings.Cut(name, "-")
	stamp, err := strconv.ParseInt(when, 10, 64)
	if !ok || err != nil {
		return t, false
	}
	t.stamp, t.seen = stamp, time.Now()
	name, t.damaged = strings.CutPrefix(name, damagedPrefix)
	name = strings.TrimPrefix(name, statePrefix)
	stem, ok := strings.CutSuffix(name, layout.LayerSuffix)
	t.digest, err = blob.ParseDigest(stem)
	return t, ok && err == nil
}

// Trash implements blob.Store.
func (s *Store) Trash(ctx context.Context, root blob.Digest, now time.Time) error {
	return s.moveToTrash(ctx, root, now, false)
}

// Quarantine implements blob.Store.
func (s *Store) Quarantine(ctx context.Context, root blob.Digest, now time.Time) error {
	return s.moveToTrash(ctx, root, now, true)
}

func (s *Store) moveToTrash(ctx context.Context, root blob.Digest, now time.Time, damaged bool) error {
	s.trashMu.Lock()
	defer s.trashMu.Unlock()
	l, ok := s.find(root)
	if !ok {
		return nil
	}
	t := trashedLayer{Key: l.key, digest: root, stamp: now.UnixNano(), seen: time.Now(), damaged: damaged, layer: l}
	name := root.String() + layout.LayerSuffix
	if l.state {
		name = statePrefix + name
	}
	if damaged {
		name = damagedPrefix + name
	}
	key := path.Join(layout.TrashDir, layout.TrashName(t.stamp, name))
	if err := s.putMarker(ctx, key, t); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trash[key] = t
	delete(s.layers, root)
	return nil
}

func (s *Store) putMarker(ctx context.Context, key string, t trashedLayer) error {
	raw, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("encode trash marker: %w", err)
	}
	_, err = s.Lease.Put(ctx, key, raw, s3store.Condition{})
	return err
}

// Restore implements blob.Store: the layer is there again when its marker is gone.
func (s *Store) Restore(ctx context.Context, root blob.Digest) (bool, error) {
	s.trashMu.Lock()
	defer s.trashMu.Unlock()
	marker := ""
	s.mu.Lock()
	for key, t := range s.trash {
		if t.digest == root && !t.damaged && !t.orphan && t.layer.key != "" {
			marker = key
		}
	}
	t := s.trash[marker]
	s.mu.Unlock()
	if marker == "" {
		return false, nil
	}
	if err := s.Lease.Delete(ctx, marker); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.trash, marker)
	if _, there := s.layers[root]; !there {
		s.layers[root] = t.layer
	}
	return true, nil
}

// detachTrash makes the trash forget the object of a key, which an upload is about to replace.
func (s *Store) detachTrash(ctx context.Context, key string) error {
	s.trashMu.Lock()
	defer s.trashMu.Unlock()
	s.mu.Lock()
	found := map[string]trashedLayer{}
	for marker, t := range s.trash {
		if t.Key == key && !t.orphan {
			found[marker] = t
		}
	}
	s.mu.Unlock()
	for marker, t := range found {
		t.Key, t.layer = "", layerObject{}
		if err := s.putMarker(ctx, marker, t); err != nil {
			return err
		}
		s.mu.Lock()
		s.trash[marker] = t
		s.mu.Unlock()
	}
	return nil
}

// PurgeTrash implements blob.Store. What is in the trash for less than two leases stays.
func (s *Store) PurgeTrash(ctx context.Context, before time.Time) (int, error) {
	s.trashMu.Lock()
	defer s.trashMu.Unlock()
	old := s.trashBefore(before)
	if len(old) == 0 {
		return 0, nil
	}
	if err := s.ConfirmPurge(ctx); err != nil {
		return 0, err
	}
	n := 0
	for marker, t := range old {
		if err := s.purge(ctx, marker, t); err != nil {
			return n, err
		}
		if !t.orphan {
			n++
		}
	}
	return n, nil
}

// trashBefore returns what may be purged.
func (s *Store) trashBefore(before time.Time) map[string]trashedLayer {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := map[string]trashedLayer{}
	for marker, t := range s.trash {
		if t.stamp < before.UnixNano() && time.Since(t.seen) >= s.MinTrashAge {
			old[marker] = t
		}
	}
	return old
}

// purge removes the objects of one layer, unless the layer is in use again, and then its marker. The name goes before
// the bytes: a crash in between leaves an object that the next start finds.
func (s *Store) purge(ctx context.Context, marker string, t trashedLayer) error {
	current, _ := s.find(t.digest)
	keys := []string{t.layer.alias, t.layer.key}
	if t.orphan {
		keys = []string{t.Key}
	} else if t.layer.key == "" || current.key == t.layer.key {
		keys = nil
	}
	if !t.orphan {
		keys = append(keys, marker)
	}
	for _, key := range keys {
		if key == "" {
			continue
		}
		if err := s.Lease.Delete(ctx, key); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.trash, marker)
	return nil
}

// TrashSizes returns the sizes of the deleted layers that were moved to the trash before a time.
func (s *Store) TrashSizes(before time.Time) []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sizes []int64
	for _, t := range s.trash {
		if t.stamp < before.UnixNano() && !t.orphan {
			sizes = append(sizes, t.layer.size)
		}
	}
	return sizes
}
