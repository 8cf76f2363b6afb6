package cache

import (
	"context"
	"fmt"
	"sync"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/transfer"
)

// Registry is the Source of a real node: it pulls over HTTP from whatever registry a
// version's Ref names. It may be used from many goroutines.
type Registry struct {
	options transfer.Options

	mu      sync.Mutex
	clients map[string]*transfer.Client // address -> client
}

var _ Source = (*Registry)(nil)

// maxRegistries bounds the clients that are kept: a cloud has one or two.
const maxRegistries = 8

// NewRegistry makes a source. o says how to speak to every registry; its BaseURL is
// not used.
func NewRegistry(o transfer.Options) *Registry {
	return &Registry{options: o, clients: map[string]*transfer.Client{}}
}

// Close drops idle connections.
func (r *Registry) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.clients {
		c.Close()
	}
	clear(r.clients)
	return nil
}

func (r *Registry) client(address string) (*transfer.Client, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.clients[address]; c != nil {
		return c, nil
	}
	if len(r.clients) >= maxRegistries {
		for _, c := range r.clients {
			c.Close()
		}
		clear(r.clients)
	}
	o := r.options
	o.BaseURL = address
	c, err := transfer.New(o)
	if err != nil {
		return nil, err
	}
	r.clients[address] = c
	return c, nil
}

func wanted(ref Ref) transfer.Ref {
	return transfer.Ref{ID: ref.TemplateID, ContentID: ref.ContentID}
}

// Size gives what the version may take on this disk.
func (r *Registry) Size(ctx context.Context, ref Ref) (int64, error) {
	c, err := r.client(ref.Registry)
	if err != nil {
		return 0, err
	}
	m, err := c.Manifest(ctx, wanted(ref))
	if err != nil {
		return 0, err
	}
	if m.ContentID != ref.ContentID {
		return 0, farm.Errorf(farm.CodeNoVersion, "the registry has no version %s of %s any more", ref.ContentID, ref.Name)
	}
	return bytesOnDisk(m), nil
}

// unpacked bounds how much larger than its layer a file may become: the compression
// in use gains 2 at most on real disks, and holes take no room.
const unpacked = 3

// bytesOnDisk estimates from above. The size of a file alone would be far off for a
// raw disk, which is mostly holes.
func bytesOnDisk(m api.PullManifest) int64 {
	var sum int64
	for _, f := range m.Files {
		var stored int64
		for _, l := range f.Layers {
			stored += l.Size
		}
		sum += min(f.Size, unpacked*stored)
	}
	return sum
}

// Fetch pulls the version into dir.
func (r *Registry) Fetch(ctx context.Context, ref Ref, dir string, progress func(float64)) error {
	c, err := r.client(ref.Registry)
	if err != nil {
		return err
	}
	result, err := c.Pull(ctx, transfer.PullOptions{
		Ref: wanted(ref), Dir: dir,
		Progress: func(p transfer.Progress) { progress(p.Fraction()) },
	})
	if err != nil {
		return err
	}
	if got := result.Manifest.ContentID; got != ref.ContentID {
		return fmt.Errorf("the registry gave version %s for %s", got, ref.ContentID)
	}
	return nil
}
