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
	updates []tableUpdate       // what the model does not have at that revision
	seen    map[string]struct{} // every <kind>/<id>
	epoch   string
}

// list reads the backend. It decodes records in parallel, and while the next ones are being read:
// decoding takes most of the time of a start.
func (s *Store) list(ctx context.Context, all bool) (listing, error) {
	for {
		l := listing{seen: map[string]struct{}{}}
		decoding := newParallelDecoder(s)
		rev, err := s.backend.List(ctx, s.recordPrefix, func(kvs []KV) error {
			decoding.add(s.recordPage(&l, kvs, all))
			return nil
		})
		l.rev, l.updates = rev, decoding.wait()
		if !errors.Is(err, ErrCompacted) {
			l.epoch = s.findEpoch(l.updates)
			return l, err
		}
	}
}

// recordPage records the keys of a page and returns those that have to be decoded.
func (s *Store) recordPage(l *listing, kvs []KV, all bool) []encodedRecord {
	wanted := make([]encodedRecord, 0, len(kvs))
	for _, kv := range kvs {
		u, ok := s.updateFor(kv)
		if !ok {
			continue
		}
		l.seen[u.key] = struct{}{}
		own := u.table == AnyTable(s.meta)
		if all || own || u.table.revision(u.id) != u.rev {
			wanted = append(wanted, encodedRecord{u, kv.Value})
		}
	}
	return wanted
}

func (s *Store) findEpoch(updates []tableUpdate) string {
	for _, u := range updates {
		if m, ok := u.record.(*storeMeta); ok && u.id == epochID {
			return m.Epoch
		}
	}
	return ""
}

// encodedRecord is a record that was not decoded yet.
type encodedRecord struct {
	tableUpdate
	data []byte
}

// decodeChunkSize is how many records are decoded at a stretch.
const decodeChunkSize = 500

// parallelDecoder decodes records with every processor and keeps their order. One goroutine uses it.
type parallelDecoder struct {
	store       *Store
	workerSlots chan struct{} // one value a goroutine that decodes
	workers     sync.WaitGroup
	chunks      [][]tableUpdate
}

func newParallelDecoder(s *Store) *parallelDecoder {
	return &parallelDecoder{store: s, workerSlots: make(chan struct{}, runtime.GOMAXPROCS(0))}
}

func (d *parallelDecoder) add(records []encodedRecord) {
	for chunk := range slices.Chunk(records, decodeChunkSize) {
		updates := make([]tableUpdate, len(chunk))
		d.chunks = append(d.chunks, updates)
		d.workerSlots <- struct{}{}
		d.workers.Go(func() {
			for i, r := range chunk {
				updates[i] = r.tableUpdate
				d.store.decodeRecord(&updates[i], r.data)
			}
			<-d.workerSlots
		})
	}
}

func (d *parallelDecoder) wait() []tableUpdate {
	d.workers.Wait()
	return slices.Concat(d.chunks...)
}
