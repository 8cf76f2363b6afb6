// Package etcd is the durable store.Backend: one embedded etcd member (Embedded) or an external
// cluster (External), both through the same client and the same code.
//
// It adds nothing to what etcd guarantees, interprets no key, and runs no cluster: several replicas
// need an external one.
//
// Invariant: every call of the server has a deadline, and every failure that may have written is
// reported as store.ErrUnknownOutcome.
package etcd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/buildyard/buildyard/internal/store"
)

const (
	callTimeout = 5 * time.Second
	// A transaction that a cluster lost with its leader never gets an answer. The caller determines
	// its outcome and sends it again, so that a short wait costs nothing.
	clusterTxnTimeout = 1500 * time.Millisecond

	// The pages of List, in keys and bytes: records of some kinds are large.
	firstPageKeys = 64
	minPageKeys   = 8
	maxPageKeys   = 5_000
	pageBytes     = 8 << 20
)

// Backend is a store.Backend on an etcd. Close ends the embedded member too.
type Backend struct {
	client *clientv3.Client // everything but watches
	// watches; a separate connection when external, so that big responses do not delay them
	watchClient    *clientv3.Client
	limits         store.Limits
	prefix         string          // of all keys, without a slash at its end
	ctx            context.Context // ends with Close; renews the leases
	cancel         context.CancelFunc
	closeResources func() error // frees the resources below the clients

	txnTimeout time.Duration // of one transaction

	failure   *memberFailure // of the embedded member; nil: there is none
	diskGuard *diskGuard     // of its disk; nil: there is none
	watches   watchSet

	memberAddrs  []string                                       // addresses of the servers, for calls that concern one
	defragMember func(ctx context.Context, member string) error // rewrites a member's file
	ownsFile     bool                                           // this process may rewrite the file at any time
	isExternal   bool                                           // other programs may use the cluster, too
	tempDir      string                                         // for backups that are being made
	maintainer   *maintainer
	maintenance  sync.WaitGroup
}

var (
	_ store.Backend                       = (*Backend)(nil)
	_ interface{ BlockedReason() string } = (*Backend)(nil) // optional; the store asks for it
)

func newBackend(kv, watcher *clientv3.Client, prefix string, log *slog.Logger) *Backend {
	b := &Backend{
		client: kv, watchClient: watcher, limits: store.DefaultLimits, prefix: prefix,
		txnTimeout: callTimeout,
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.maintainer = newMaintainer(b, log)
	return b
}

// probeKey returns a key that may be read and written; it never exists.
func (b *Backend) probeKey() string { return b.prefix + "/probe" }

// Close ends watches and leases, the connections and the embedded member.
func (b *Backend) Close() error {
	b.cancel()
	b.maintenance.Wait()
	return b.closeResources()
}

// Commit implements store.Backend.
func (b *Backend) Commit(ctx context.Context, txn store.Txn) (int64, error) {
	if err := b.diskGuard.checkWritable(); err != nil {
		return 0, err
	}
	ctx, cancel := b.callContext(ctx, callTimeout)
	defer cancel()
	if ctx.Err() != nil { // nothing was sent
		return 0, fmt.Errorf("%w: %w", store.ErrUnavailable, context.Cause(ctx))
	}
	leave, err := b.maintainer.enterCall(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	conditions, writes := conditionsOf(txn), writesOf(txn)
	for range conflictAttempts {
		resp, err := b.transact(ctx, conditions, writes)
		switch {
		case errors.Is(err, rpctypes.ErrNoSpace):
			b.maintainer.notifyFull()
			return b.resolveRefused(ctx, txn)
		case err != nil:
			return 0, commitError(err)
		case resp.Succeeded:
			return resp.Header.Revision, nil
		}
		keys, err := b.failedCompares(ctx, txn)
		if err != nil || len(keys) > 0 {
			return 0, cmp.Or(err, error(&store.ConflictError{Keys: keys}))
		}
	}
	return 0, fmt.Errorf("%w: a record is created and deleted too fast to read it", store.ErrUnavailable)
}

func (b *Backend) transact(
	ctx context.Context, conditions []clientv3.Cmp, writes []clientv3.Op,
) (*clientv3.TxnResponse, error) {
	ctx, cancel := b.callContext(ctx, b.txnTimeout)
	defer cancel()
	return b.client.Txn(ctx).If(conditions...).Then(writes...).Commit()
}

// conflictAttempts is how often a transaction is tried whose condition failed on a record that was
// created and deleted again before it could be read.
const conflictAttempts = 3

// resolveRefused determines the outcome of a transaction on a full database: etcd returns the same error
// for one that it refused and for one that it applied as the last before the quota. Both are final
// when the error arrives.
func (b *Backend) resolveRefused(ctx context.Context, txn store.Txn) (int64, error) {
	before := map[string]int64{}
	for _, c := range txn.Compares {
		before[c.Key] = c.ModRev
	}
	for _, put := range txn.Puts {
		at, compared := before[put.Key]
		if !compared {
			continue
		}
		resp, err := b.client.Get(ctx, put.Key)
		if err != nil {
			return 0, commitError(err)
		}
		var kv store.KV
		if len(resp.Kvs) > 0 {
			kv = kvOf(resp.Kvs[0])
		}
		switch {
		case kv.ModRev == at:
			return 0, refusalError(fullMessage, nil)
		case bytes.Equal(kv.Value, put.Value):
			return kv.ModRev, nil
		}
	}
	return 0, fmt.Errorf("%w: %s", store.ErrUnknownOutcome, fullMessage)
}

func conditionsOf(txn store.Txn) (conditions []clientv3.Cmp) {
	for _, c := range txn.Compares {
		conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(c.Key), "=", c.ModRev))
	}
	if f := txn.Fence; f != nil {
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(f.Key), "=", f.CreateRev))
	}
	return conditions
}

func writesOf(txn store.Txn) []clientv3.Op {
	ops := make([]clientv3.Op, 0, len(txn.Puts)+len(txn.Deletes))
	for _, kv := range txn.Puts {
		ops = append(ops, clientv3.OpPut(kv.Key, string(kv.Value)))
	}
	for _, key := range txn.Deletes {
		ops = append(ops, clientv3.OpDelete(key))
	}
	return ops
}

// failedCompares returns the keys whose compare fails, after a transaction that wrote nothing. They are
// read only then, and not by the transaction itself, which would carry the reads through the log
// every time. A revision never comes back, so a compare that failed then fails now; only a key that
// had to be absent may be absent again.
func (b *Backend) failedCompares(ctx context.Context, txn store.Txn) (keys []string, err error) {
	var lookups []clientv3.Op
	for _, c := range txn.Compares {
		lookups = append(lookups, clientv3.OpGet(c.Key, clientv3.WithKeysOnly()))
	}
	if f := txn.Fence; f != nil {
		lookups = append(lookups, clientv3.OpGet(f.Key, clientv3.WithKeysOnly()))
	}
	resp, err := b.client.Txn(ctx).Then(lookups...).Commit()
	if err != nil {
		return nil, fmt.Errorf("%w: read the records of a conflict: %w", store.ErrUnavailable, err)
	}
	for i, r := range resp.Responses {
		var mod, created int64
		if kvs := r.GetResponseRange().GetKvs(); len(kvs) > 0 {
			mod, created = kvs[0].ModRevision, kvs[0].CreateRevision
		}
		switch {
		case i == len(txn.Compares):
			if created != txn.Fence.CreateRev {
				keys = append(keys, txn.Fence.Key)
			}
		case mod != txn.Compares[i].ModRev:
			keys = append(keys, txn.Compares[i].Key)
		}
	}
	return keys, nil
}

// commitError classifies a failed write. Only what etcd refuses before it proposes anything is
// definite.
func commitError(err error) error {
	var e rpctypes.EtcdError
	switch {
	case errors.Is(err, rpctypes.ErrTooManyRequests):
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	case errors.Is(err, rpctypes.ErrAuthOldRevision), errors.Is(err, rpctypes.ErrUserEmpty):
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err) // users changed concurrently, or were required since
	case !errors.As(err, &e):
		return fmt.Errorf("%w: %w", store.ErrUnknownOutcome, err)
	}
	switch e.Code() {
	case codes.PermissionDenied, codes.Unauthenticated:
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	case codes.InvalidArgument:
		return fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	return fmt.Errorf("%w: %w", store.ErrUnknownOutcome, err)
}

// readError classifies a failed read.
func readError(err error) error {
	if errors.Is(err, rpctypes.ErrCompacted) {
		return store.ErrCompacted
	}
	return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
}

// Limits implements store.Backend.
func (b *Backend) Limits() store.Limits { return b.limits }

// Get implements store.Backend.
func (b *Backend) Get(ctx context.Context, key string) (store.KV, error) {
	resp, err := b.get(ctx, key)
	if err != nil {
		return store.KV{}, err
	}
	if len(resp.Kvs) == 0 {
		return store.KV{Key: key}, nil
	}
	return kvOf(resp.Kvs[0]), nil
}

func (b *Backend) get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if err := b.failure.callError(); err != nil {
		return nil, err
	}
	ctx, cancel := b.callContext(ctx, callTimeout)
	defer cancel()
	leave, err := b.maintainer.enterCall(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	resp, err := b.client.Get(ctx, key, opts...)
	if err != nil {
		return nil, readError(err)
	}
	return resp, nil
}

// List implements store.Backend.
func (b *Backend) List(ctx context.Context, prefix string, fn func([]store.KV) error) (int64, error) {
	return b.listPages(ctx, prefix, func(page []*mvccpb.KeyValue) error { return fn(kvsOf(page)) })
}

// listPages passes every key with the prefix to fn. The first page is linearizable and fixes the revision of
// the others.
func (b *Backend) listPages(
	ctx context.Context, prefix string, fn func([]*mvccpb.KeyValue) error,
) (int64, error) {
	end := clientv3.GetPrefixRangeEnd(prefix)
	opts := []clientv3.OpOption{clientv3.WithRange(end)}
	var rev int64
	for start, limit := prefix, firstPageKeys; ; {
		resp, err := b.get(ctx, start, append(slices.Clip(opts), clientv3.WithLimit(int64(limit)))...)
		if err != nil {
			return 0, err
		}
		if rev == 0 {
			rev = resp.Header.Revision
			opts = append(opts, clientv3.WithRev(rev))
			if !b.isExternal { // a member of a cluster may not have the revision yet
				opts = append(opts, clientv3.WithSerializable())
			}
		}
		if resp.More {
			start, limit = string(resp.Kvs[len(resp.Kvs)-1].Key)+"\x00", nextPageKeys(resp.Kvs)
		}
		if err := fn(resp.Kvs); err != nil {
			return 0, err
		}
		if !resp.More {
			return rev, nil
		}
	}
}

// nextPageKeys returns how many keys to read after a page: more of them as long as they are small.
func nextPageKeys(page []*mvccpb.KeyValue) int {
	bytes := 1
	for _, kv := range page {
		bytes += len(kv.Value)
	}
	return max(min(4*len(page), len(page)*pageBytes/bytes, maxPageKeys), minPageKeys)
}

func kvsOf(in []*mvccpb.KeyValue) []store.KV {
	out := make([]store.KV, len(in))
	for i, kv := range in {
		out[i] = kvOf(kv)
	}
	return out
}

func kvOf(kv *mvccpb.KeyValue) store.KV {
	return store.KV{Key: string(kv.Key), Value: kv.Value, ModRev: kv.ModRevision}
}

// Barrier implements store.Backend. The read of one key goes through etcd's read index.
func (b *Backend) Barrier(ctx context.Context) (int64, error) {
	resp, err := b.get(ctx, b.probeKey(), clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for _, stream := range b.watches.laggingStreams(resp.Header.Revision) {
		if err := b.watchClient.RequestProgress(withStream(ctx, stream)); err != nil {
			return 0, fmt.Errorf("%w: request watch progress: %w", store.ErrUnavailable, err)
		}
	}
	return resp.Header.Revision, nil
}
