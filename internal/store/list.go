package store

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
)

// listing is every record at one revision.
type listing struct {
	rev     int64
	updates []update            // what the model does not have at that revision
	seen    map[string]struct{} // every <kind>/<id>
	epoch   string
}

// list reads the backend. It decodes records in parallel, and while the next ones are being read:
// decoding takes most of the time of a start.
func (s *Store) list(ctx context.Context, all bool) (listing, error) {
	for {
		l := listing{seen: map[string]struct{}{}}
		decoding := newDecoding(s)
		rev, err := s.backend.List(ctx, s.root, func(kvs []KV) error {
			decoding.add(s.enlist(&l, kvs, all))
			return nil
		})
		l.rev, l.updates = rev, decoding.wait()
		if !errors.Is(err, ErrCompacted) {
			l.epoch = s.epochIn(l.updates)
			return l, err
		}
	}
}

// enlist records the keys of a page and returns those that have to be decoded.
func (s *Store) enlist(l *listing, kvs []KV, all bool) []encoded {
	wanted := make([]encoded, 0, len(kvs))
	for _, kv := range kvs {
		u, ok := s.locate(kv)
		if !ok {
			continue
		}
		l.seen[u.key] = struct{}{}
		own := u.table == AnyTable(s.meta)
		if all || own || u.table.rev(u.id) != u.rev {
			wanted = append(wanted, encoded{u, kv.Value})
		}
	}
	return wanted
}

func (s *Store) epochIn(updates []update) string {
	for _, u := range updates {
		if m, ok := u.val.(*meta); ok && u.id == epochID {
			return m.Epoch
		}
	}
	return ""
}

// encoded is a record that was not decoded yet.
type encoded struct {
	update
	data []byte
}

// decodeChunk is how many records are decoded at a stretch.
const decodeChunk = 500

// decoding decodes records with every processor and keeps their order. One goroutine uses it.
type decoding struct {
	store  *Store
	free   chan struct{} // one value a goroutine that decodes
	done   sync.WaitGroup
	chunks [][]update
}

func newDecoding(s *Store) *decoding {
	return &decoding{store: s, free: make(chan struct{}, runtime.GOMAXPROCS(0))}
}

func (d *decoding) add(records []encoded) {
	for chunk := range slices.Chunk(records, decodeChunk) {
		updates := make([]update, len(chunk))
		d.chunks = append(d.chunks, updates)
		d.free <- struct{}{}
		d.done.Go(func() {
			for i, r := range chunk {
				updates[i] = r.update
				d.store.fill(&updates[i], r.data)
			}
			<-d.free
		})
	}
}

func (d *decoding) wait() []update {
	d.done.Wait()
	return slices.Concat(d.chunks...)
}
