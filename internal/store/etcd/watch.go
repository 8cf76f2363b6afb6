package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/buildyard/buildyard/internal/store"
)

// watchSet has the progress of each running watch, so that a barrier requests progress only from
// those that lag.
type watchSet struct {
	mu  sync.Mutex
	all map[*runningWatch]struct{}
}

// runningWatch is one running Watch call; watchSet.mu guards deliveredRev.
type runningWatch struct {
	streamNumber int // number of its stream: no two running watches share one
	deliveredRev int64
}

func (w *watchSet) add(from int64) *runningWatch {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[*runningWatch]struct{}{}
	}
	one := &runningWatch{deliveredRev: from - 1}
	for w.isTakenLocked(one.streamNumber) {
		one.streamNumber++
	}
	w.all[one] = struct{}{}
	return one
}

func (w *watchSet) isTakenLocked(stream int) bool {
	for other := range w.all {
		if other.streamNumber == stream {
			return true
		}
	}
	return false
}

func (w *watchSet) remove(one *runningWatch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, one)
}

func (w *watchSet) advance(one *runningWatch, rev int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one.deliveredRev = max(one.deliveredRev, rev)
}

// passedByAll returns the newest revision that every running watch has passed; now without any watch.
func (w *watchSet) passedByAll(now int64) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.all {
		now = min(now, max(one.deliveredRev, 1))
	}
	return now
}

// laggingStreams returns the streams of the watches that have not passed rev.
func (w *watchSet) laggingStreams(rev int64) []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	var streams []int
	for one := range w.all {
		if one.deliveredRev < rev {
			streams = append(streams, one.streamNumber)
		}
	}
	return streams
}

// withStream assigns a call to a stream: the client opens a stream for each set of metadata. An etcd
// reports progress for a whole stream, and only when no watch of it begins after the newest
// revision: a watch that shares its stream with one that begins later would get no progress until
// the next write.
func withStream(ctx context.Context, stream int) context.Context {
	return metadata.AppendToOutgoingContext(clientv3.WithRequireLeader(ctx), "buildyard-watch", strconv.Itoa(stream))
}

// Watch implements store.Backend.
func (b *Backend) Watch(ctx context.Context, prefix string, from int64, fn func(store.WatchBatch) error) error {
	one := b.watches.add(from)
	defer b.watches.remove(one)
	wctx, cancel := context.WithCancel(withStream(ctx, one.streamNumber))
	defer cancel()
	stream := b.watchClient.Watch(wctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(from),
		clientv3.WithCreatedNotify(), clientv3.WithProgressNotify())
	for resp := range stream {
		if err := watchError(&resp); err != nil {
			return err
		}
		for _, batch := range batchesOf(&resp, from) {
			if err := fn(batch); err != nil {
				return err
			}
			b.watches.advance(one, batch.Rev)
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: the watch ended", store.ErrUnavailable)
}

func watchError(resp *clientv3.WatchResponse) error {
	err := resp.Err()
	switch {
	case err == nil:
		return nil
	case resp.CompactRevision != 0, errors.Is(err, rpctypes.ErrCompacted):
		return store.ErrCompacted
	}
	return fmt.Errorf("%w: watch: %w", store.ErrUnavailable, err)
}

// batchesOf splits a response into revisions. etcd never spreads one revision over two responses,
// as long as fragments are not requested.
func batchesOf(resp *clientv3.WatchResponse, from int64) []store.WatchBatch {
	switch {
	case resp.Created:
		return []store.WatchBatch{{Rev: from - 1}}
	case resp.IsProgressNotify():
		return []store.WatchBatch{{Rev: resp.Header.Revision}}
	}
	var batches []store.WatchBatch
	for _, ev := range resp.Events {
		kv := kvOf(ev.Kv)
		if n := len(batches); n == 0 || batches[n-1].Rev != kv.ModRev {
			batches = append(batches, store.WatchBatch{Rev: kv.ModRev})
		}
		last := &batches[len(batches)-1]
		last.Events = append(last.Events, store.RawEvent{KV: kv, Deleted: ev.Type == clientv3.EventTypeDelete})
	}
	return batches
}
