package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// fakeCluster answers as a test requires, records its calls, and fails at one of them.
type fakeCluster struct {
	clientv3.KV
	clientv3.Lease
	clientv3.Maintenance
	clientv3.Watcher

	mu      sync.Mutex
	calls   []string
	failAt  int              // the number of the call that fails, from 0 on; -1: none
	fails   map[string]error // by call
	after   map[string]func()
	sizes   map[string]memberStatus // by member
	kvs     map[string]*mvccpb.KeyValue
	lost    bool // conditions of transactions fail
	more    int  // lists have that many more pages
	leases  []clientv3.LeaseStatus
	alarms  []*etcdserverpb.AlarmMember
	watched chan clientv3.WatchResponse
}

var errFake = errors.New("the fake cluster failed")

const fakeRev = 7 // of every response

func (f *fakeCluster) called(format string, args ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	call := fmt.Sprintf(format, args...)
	f.calls = append(f.calls, call)
	if do := f.after[call]; do != nil {
		do()
	}
	if len(f.calls)-1 == f.failAt {
		return errFake
	}
	return f.fails[call]
}

// newFake returns a backend on a fake cluster of these members.
func newFake(t *testing.T, members map[string]memberStatus) (*fakeCluster, *Backend) {
	t.Helper()
	f := &fakeCluster{
		failAt: -1, fails: map[string]error{}, after: map[string]func(){}, sizes: members,
		kvs: map[string]*mvccpb.KeyValue{},
	}
	client := clientv3.NewCtxClient(context.Background())
	client.KV, client.Lease, client.Maintenance, client.Watcher = f, f, f, f
	b := newBackend(client, client, "/p", nil)
	b.memberAddrs = slices.Sorted(maps.Keys(members))
	b.closeResources = func() error { return f.called("shut") }
	b.defragMember = func(_ context.Context, member string) error {
		err := f.called("defrag %s", member)
		s := f.sizes[member]
		s.fileBytes = s.usedBytes
		f.sizes[member] = s
		return err
	}
	t.Cleanup(func() {
		b.cancel()
		_ = client.Close()
	})
	return f, b
}

func (f *fakeCluster) Close() error { return nil }

func fakeHeader() *etcdserverpb.ResponseHeader {
	return &etcdserverpb.ResponseHeader{Revision: fakeRev, MemberId: 1}
}

func (f *fakeCluster) Get(_ context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	op := clientv3.OpGet(key, opts...)
	call := "get " + key
	if op.Rev() != 0 {
		call += fmt.Sprintf(" at %d", op.Rev())
	}
	if err := f.called("%s", call); err != nil {
		return nil, err
	}
	resp := &clientv3.GetResponse{Header: fakeHeader()}
	if kv := f.kvs[key]; kv != nil && !op.IsCountOnly() {
		resp.Kvs = []*mvccpb.KeyValue{kv}
	}
	if f.more > 0 {
		f.more--
		resp.More = true
	}
	return resp, nil
}

func (f *fakeCluster) Compact(
	_ context.Context, rev int64, _ ...clientv3.CompactOption,
) (*clientv3.CompactResponse, error) {
	return &clientv3.CompactResponse{}, f.called("compact %d", rev)
}

func (f *fakeCluster) Status(_ context.Context, member string) (*clientv3.StatusResponse, error) {
	err := f.called("status %s", member)
	s := f.sizes[member]
	resp := &clientv3.StatusResponse{
		Header: fakeHeader(), DbSize: s.fileBytes, DbSizeInUse: s.usedBytes, DbSizeQuota: s.quotaBytes,
	}
	if s.isLeader {
		resp.Leader = 1
	}
	if s.noSpace {
		resp.Errors = []string{"memberID:1 alarm:NOSPACE"}
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}

func (f *fakeCluster) AlarmList(context.Context) (*clientv3.AlarmResponse, error) {
	return &clientv3.AlarmResponse{Alarms: f.alarms}, f.called("alarms")
}

func (f *fakeCluster) AlarmDisarm(_ context.Context, m *clientv3.AlarmMember) (*clientv3.AlarmResponse, error) {
	return nil, f.called("disarm %s of %d", m.Alarm, m.MemberID)
}

func (f *fakeCluster) Snapshot(context.Context) (io.ReadCloser, error) {
	return &fakeStream{strings.NewReader("snapshot"), f}, f.called("snapshot")
}

// fakeStream is a snapshot of a fake cluster.
type fakeStream struct {
	io.Reader
	cluster *fakeCluster
}

func (s *fakeStream) Close() error { return s.cluster.called("close") }

func (f *fakeCluster) Grant(context.Context, int64) (*clientv3.LeaseGrantResponse, error) {
	return &clientv3.LeaseGrantResponse{ID: 5}, f.called("grant")
}

func (f *fakeCluster) Revoke(_ context.Context, id clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	return nil, f.called("revoke %d", id)
}

func (f *fakeCluster) Leases(context.Context) (*clientv3.LeaseLeasesResponse, error) {
	return &clientv3.LeaseLeasesResponse{Leases: f.leases}, f.called("leases")
}

func (f *fakeCluster) KeepAlive(
	ctx context.Context, _ clientv3.LeaseID,
) (<-chan *clientv3.LeaseKeepAliveResponse, error) {
	alive := make(chan *clientv3.LeaseKeepAliveResponse)
	context.AfterFunc(ctx, func() { close(alive) })
	return alive, f.called("keep alive")
}

func (f *fakeCluster) Watch(_ context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	op := clientv3.OpGet(key, opts...)
	_ = f.called("watch %s from %d", key, op.Rev())
	return f.watched
}

func (f *fakeCluster) RequestProgress(context.Context) error { return f.called("progress") }

// fakeTxn is a transaction on a fake cluster.
type fakeTxn struct {
	cluster *fakeCluster
	ops     []clientv3.Op
}

func (f *fakeCluster) Txn(context.Context) clientv3.Txn { return &fakeTxn{cluster: f} }

func (t *fakeTxn) If(...clientv3.Cmp) clientv3.Txn { return t }
func (t *fakeTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.ops = ops
	return t
}
func (t *fakeTxn) Else(...clientv3.Op) clientv3.Txn { return t }

func (t *fakeTxn) Commit() (*clientv3.TxnResponse, error) {
	f, name := t.cluster, "read"
	resp := &clientv3.TxnResponse{Header: fakeHeader(), Succeeded: true}
	for _, op := range t.ops {
		one := &etcdserverpb.ResponseOp{}
		switch {
		case op.IsDelete():
			name = fmt.Sprintf("delete %d", len(t.ops))
			one.Response = &etcdserverpb.ResponseOp_ResponseDeleteRange{
				ResponseDeleteRange: &etcdserverpb.DeleteRangeResponse{Deleted: 1},
			}
		case op.IsPut():
			name = "put"
			one.Response = &etcdserverpb.ResponseOp_ResponsePut{ResponsePut: &etcdserverpb.PutResponse{}}
		default:
			found := &etcdserverpb.RangeResponse{}
			if kv := f.kvs[string(op.KeyBytes())]; kv != nil {
				found.Kvs = []*mvccpb.KeyValue{kv}
			}
			one.Response = &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: found}
		}
		resp.Responses = append(resp.Responses, one)
	}
	if name != "read" {
		resp.Succeeded = !f.lost
	}
	if err := f.called("%s", name); err != nil {
		return nil, err
	}
	return resp, nil
}
