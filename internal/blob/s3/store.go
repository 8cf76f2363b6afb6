package s3

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/layout"
	"github.com/buildyard/buildyard/internal/s3store"
)

// streamDir has the objects of layers whose name was not known when their upload began.
const streamDir = "stream_dir"

// Staging receives the parts of pushes in a local directory.
type Staging interface {
	blob.Store
	// RemoveUpload removes the received bytes of an upload; it is not an error if there are none.
	RemoveUpload(u blob.Upload) error
}

// Options configures a Store.
type Options struct {
	Bucket  *s3store.Bucket
	Lease   *s3store.Lease
	Dir     *layout.Dir // has the records of uploads, next to the staged bytes
	Staging Staging     // only its uploads and its space are used
	// ConfirmPurge returns an error if objects must not be deleted now. It is called before each batch of deletes.
	ConfirmPurge func(ctx context.Context) error
	// MinTrashAge is how long a layer stays in the trash at least after this process saw it there. It must be two
	// leases: then the requests of an earlier owner have ended.
	MinTrashAge time.Duration
}

// Store is a blob.Store in a bucket.
type Store struct {
	Options
	ctx context.Context // ends all uploads in the background

	mu      sync.Mutex // guards the fields below
	layers  map[blob.Digest]layerObject
	trash   map[string]trashedLayer // by the key of the marker
	uploads map[blob.Upload]*upload

	trashMu sync.Mutex     // held while a layer is trashed, restored or purged
	work    sync.WaitGroup // uploads in the background
}

var _ blob.Store = (*Store)(nil)

// layerObject is where a layer is.
type layerObject struct {
	key      string // of the bytes
	alias    string // key of the empty object that names the layer; "" when key does
	state    bool   // the layer is in state_file_dir
	size     int64
	modified time.Time
}

// Open lists the layers of the bucket. The uploads of a process that has ended are resumed, and those of other
// registries are aborted: only the owner of the lease has any. ctx ends the uploads in the background.
func Open(ctx context.Context, o Options) (*Store, error) {
	s := &Store{
		Options: o, ctx: ctx, layers: map[blob.Digest]layerObject{}, trash: map[string]trashedLayer{},
		uploads: map[blob.Upload]*upload{},
	}
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	return s, s.recoverUploads(ctx)
}

// Wait waits for the uploads in the background after their context has ended.
func (s *Store) Wait() { s.work.Wait() }

func layerDir(state bool) string {
	if state {
		return layout.StateFileDir
	}
	return layout.ImagesDir
}

func layerKey(root blob.Digest, state bool) string {
	return path.Join(layerDir(state), root.String()+layout.LayerSuffix)
}

// parseLayerKey returns the layer that a key names, and the ID of the object with its bytes; "" when it has them.
func parseLayerKey(key string) (root blob.Digest, state bool, stream string, ok bool) {
	dir, name := path.Split(key)
	switch dir {
	case layout.ImagesDir + "/":
	case layout.StateFileDir + "/":
		state = true
	default:
		return root, false, "", false
	}
	name, stream, aliased := strings.Cut(name, "@")
	stem, ok := strings.CutSuffix(name, layout.LayerSuffix)
	root, err := blob.ParseDigest(stem)
	return root, state, stream, ok && err == nil && aliased == (stream != "")
}

// found is what a listing of the bucket has: a layer may be there several times, if a damaged one was replaced.
type found struct {
	layers  map[blob.Digest][]layerObject
	orphans map[string]s3store.Object // objects of stream_dir that no layer has, by ID
}

func (s *Store) list(ctx context.Context) (found, error) {
	f := found{layers: map[blob.Digest][]layerObject{}, orphans: map[string]s3store.Object{}}
	// Names before bytes: a layer that is completed between the listings must not look like an orphan.
	var named []s3store.Object
	for _, dir := range []string{layout.ImagesDir, layout.StateFileDir} {
		err := s.Bucket.List(ctx, dir+"/", func(o s3store.Object) error {
			named = append(named, o)
			return nil
		})
		if err != nil {
			return f, err
		}
	}
	err := s.Bucket.List(ctx, streamDir+"/", func(o s3store.Object) error {
		f.orphans[path.Base(o.Key)] = o
		return nil
	})
	for _, o := range named {
		f.add(o)
	}
	return f, err
}

func (f found) add(o s3store.Object) {
	root, state, stream, ok := parseLayerKey(o.Key)
	if !ok {
		return
	}
	l := layerObject{key: o.Key, state: state, size: o.Size, modified: o.Modified}
	if stream != "" {
		data, there := f.orphans[stream]
		if !there {
			return
		}
		delete(f.orphans, stream)
		l.key, l.alias, l.size = data.Key, o.Key, data.Size
	}
	f.layers[root] = append(f.layers[root], l)
}

// load reads the layers and the trash of the bucket.
func (s *Store) load(ctx context.Context) error {
	f, err := s.list(ctx)
	if err != nil {
		return err
	}
	if s.trash, err = s.readTrash(ctx); err != nil {
		return err
	}
	markers := map[string]string{} // key of the bytes -> key of the marker
	for marker, t := range s.trash {
		markers[t.Key] = marker
	}
	for root, objects := range f.layers {
		for _, l := range objects {
			marker, trashed := markers[l.key]
			if !trashed {
				s.layers[root] = l
				continue
			}
			t := s.trash[marker]
			t.layer = l
			s.trash[marker] = t
		}
	}
	for _, o := range f.orphans { // uploads that ended before the layer got its name
		s.trash[orphanMark+o.Key] = trashedLayer{
			Key: o.Key, stamp: o.Modified.UnixNano(), seen: time.Now(),
			orphan: true,
		}
	}
	return nil
}

// find returns where a layer is.
func (s *Store) find(root blob.Digest) (layerObject, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.layers[root]
	return l, ok
}

// Open implements blob.Store. It sends no request.
func (s *Store) Open(_ context.Context, root blob.Digest) (blob.File, error) {
	l, ok := s.find(root)
	if !ok {
		return nil, fmt.Errorf("layer %s: %w", root, fs.ErrNotExist)
	}
	//nolint:contextcheck // the file outlives ctx
	return newFile(s.ctx, s.Bucket, root.String(), l), nil
}

// List implements blob.Store. It reads the bucket again, and so finds objects that an operator has added.
func (s *Store) List(ctx context.Context) ([]blob.LayerInfo, error) {
	f, err := s.list(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	trashed := map[string]bool{}
	for _, t := range s.trash {
		trashed[t.layer.key] = true
	}
	out := make([]blob.LayerInfo, 0, len(f.layers))
	for root, objects := range f.layers {
		for _, l := range objects {
			if trashed[l.key] {
				continue
			}
			if _, known := s.layers[root]; !known {
				s.layers[root] = l
			}
			out = append(out, blob.LayerInfo{Digest: root, Size: l.size, Modified: l.modified})
			break
		}
	}
	return out, nil
}

// Space implements blob.Store. A bucket has no limit: it is the space in which pushes are received.
func (s *Store) Space(ctx context.Context) (free, total int64, err error) {
	if err := s.Lease.Valid(); err != nil {
		return 0, 0, err
	}
	return s.Staging.Space(ctx)
}

// PresignLayer returns a URL at which the bytes of a layer can be read for a while; "" when pulls go through the
// registry.
func (s *Store) PresignLayer(ctx context.Context, root blob.Digest) (string, error) {
	l, ok := s.find(root)
	if !ok || s.Bucket.Options().ProxyPulls {
		return "", nil
	}
	return s.Bucket.PresignGet(ctx, l.key)
}
