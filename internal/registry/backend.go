package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/blob/disk"
	"github.com/buildyard/buildyard/internal/layout"
)

// Backend is a shared storage of which the directory of a registry is a local copy. One registry at a time owns it.
type Backend interface {
	// Attach becomes the owner of the storage, makes dir its local copy, marks it with LocalCopyMark and returns the
	// store of its layers. address is that of the registry, for operators.
	Attach(ctx context.Context, dir *layout.Dir, address string) (blob.Store, error)
	// Close ends the ownership. It may be called after Attach failed.
	Close() error
}

// LocalCopyFile is the file that marks a directory as the local copy of a shared storage.
const LocalCopyFile = "backend.json"

// LocalCopyMark is the content of that file.
type LocalCopyMark struct {
	Storage string `json:"storage"` // its name in messages
}

// LocalCopyOf returns the shared storage of which a directory is a local copy; "" when it is none.
func LocalCopyOf(base string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(base, LocalCopyFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	var mark LocalCopyMark
	if err == nil {
		err = json.Unmarshal(raw, &mark)
	}
	if err == nil && mark.Storage == "" {
		err = errors.New("it names no storage")
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", LocalCopyFile, err)
	}
	return mark.Storage, nil
}

// refuseLocalCopy returns an error for a directory that must not be opened as a storage: its layers are elsewhere.
func refuseLocalCopy(base string) error {
	storage, err := LocalCopyOf(base)
	if err != nil || storage == "" {
		return err
	}
	return fmt.Errorf("%s is the working directory of a registry with the storage %s: start the registry with the "+
		"settings SVC_BACKEND_*, or call the running registry with --registry", base, storage)
}

// openStore opens the store of layers.
func (o Options) openStore(ctx context.Context, dir *layout.Dir) (blob.Store, error) {
	if o.Backend == nil {
		if err := refuseLocalCopy(o.Base); err != nil {
			return nil, err
		}
		return disk.New(dir), nil
	}
	return o.Backend.Attach(ctx, dir, o.Address)
}

func (o Options) closeBackend() error {
	if o.Backend == nil {
		return nil
	}
	return o.Backend.Close()
}

// trashSizer is a store whose trash is not in the directory.
type trashSizer interface {
	TrashSizes(before time.Time) []int64
}

// presigner is a store from which clients can read layers directly.
type presigner interface {
	// PresignLayer returns a URL of the layer's bytes that is valid for a while; "" for none.
	PresignLayer(ctx context.Context, root blob.Digest) (string, error)
}

// LayerURL returns a URL outside the registry at which the bytes of a layer can be read for a while; "" when there is
// none.
func (r *Registry) LayerURL(ctx context.Context, root string) string {
	store, ok := r.store.(presigner)
	if !ok {
		return ""
	}
	parsed, err := blob.ParseDigest(root)
	if err != nil {
		return ""
	}
	address, err := store.PresignLayer(ctx, parsed)
	if err != nil {
		r.log.WarnContext(ctx, "presigning a layer failed; it goes through the registry", "layer", root, "error", err)
	}
	return address
}
