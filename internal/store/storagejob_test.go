package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
)

// upkept is a backend that maintains itself, as etcd's does.
type upkept struct {
	store.Backend
	busy   string
	fail   error // of a snapshot
	oldest func(n int) []string
}

func (u *upkept) BlockedReason() string                     { return u.busy }
func (u *upkept) SetExpendable(oldest func(n int) []string) { u.oldest = oldest }
func (u *upkept) Snapshot(context.Context) (io.ReadCloser, int64, error) {
	return io.NopCloser(strings.NewReader("all")), 3, u.fail
}

var (
	_ store.HistoryTrimmer = (*upkept)(nil)
	_ store.Snapshotter    = (*upkept)(nil)
)

func TestStorageJob(t *testing.T) {
	b := &upkept{Backend: mem.New()}
	old := store.NewTable[car]("old")
	s, err := store.Open(t.Context(), b, store.Options{Tables: []store.AnyTable{old}, Expendable: old})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for i := range 5 {
		if err := s.Commit(t.Context(), store.Put(old, fmt.Sprint(i), &car{}, store.Any)); err != nil {
			t.Fatal(err)
		}
	}
	prefix := store.DefaultPrefix + "/v1/old/"
	if got := b.oldest(2); !slices.Equal(got, []string{prefix + "3", prefix + "4"}) {
		t.Errorf("the first to go are %v", got)
	}
	if got := b.oldest(100); len(got) != 5 {
		t.Errorf("all that may go are %v", got)
	}
	b.busy = "The store is full"
	if err := s.Healthy(); s.BlockedReason() != b.busy || !errors.Is(err, store.ErrUnavailable) ||
		!strings.Contains(err.Error(), b.busy) {
		t.Errorf("busy %q, healthy: %v", s.BlockedReason(), err)
	}
	b.busy = ""
	if err := s.Healthy(); s.BlockedReason() != "" || err != nil {
		t.Errorf("busy %q, healthy: %v", s.BlockedReason(), err)
	}
	stream, size, err := s.Snapshot(t.Context())
	if err != nil || size != 3 {
		t.Fatal(size, err)
	}
	if all, err := io.ReadAll(stream); err != nil || string(all) != "all" {
		t.Errorf("%q, %v", all, err)
	}
}

// TestOneBackupAtATime: one backup runs at a time, whatever the result of the one before.
func TestOneBackupAtATime(t *testing.T) {
	b := &upkept{Backend: mem.New()}
	s, err := store.Open(t.Context(), b, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	first, size, err := s.Snapshot(t.Context())
	if err != nil || size != 3 {
		t.Fatal(size, err)
	}
	if _, _, err := s.Snapshot(t.Context()); farm.CodeOf(err) != farm.CodeBusy {
		t.Errorf("a second backup during the first: %v", err)
	}
	if err := errors.Join(first.Close(), first.Close()); err != nil {
		t.Error(err)
	}
	b.fail = errors.New("no snapshot")
	if _, _, err := s.Snapshot(t.Context()); !errors.Is(err, b.fail) {
		t.Error(err)
	}
	b.fail = nil
	again, _, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatalf("after one that ended and one that failed: %v", err)
	}
	_ = first.Close() // for the third time: it must not end the running backup
	if _, _, err := s.Snapshot(t.Context()); farm.CodeOf(err) != farm.CodeBusy {
		t.Errorf("a late close of an earlier backup let another one in: %v", err)
	}
	_ = again.Close()
}

func TestBackendWithoutMaintenance(t *testing.T) {
	s, _, _ := openCars(t)
	if _, _, err := s.Snapshot(t.Context()); farm.CodeOf(err) != farm.CodeRefused {
		t.Errorf("a backup of what has none: %v", err)
	}
	if s.BlockedReason() != "" {
		t.Error(s.BlockedReason())
	}
}

// TestRenew: the leases and transactions of a backup's writers are removed, and a newer schema is
// refused.
func TestRenew(t *testing.T) {
	b := mem.New()
	s, err := store.Open(t.Context(), b, store.Options{Replica: "old"})
	if err != nil {
		t.Fatal(err)
	}
	before := s.Epoch()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	left := []string{store.DefaultPrefix + "/lease/schedule", store.DefaultPrefix + "/slot/a/0"}
	for _, key := range left {
		if _, err := b.Commit(t.Context(), store.Txn{Puts: []store.KV{{Key: key, Value: []byte("x")}}}); err != nil {
			t.Fatal(err)
		}
	}
	epoch, err := store.StartNewEpoch(t.Context(), b, "", "")
	if err != nil || epoch == before || epoch == "" {
		t.Errorf("epoch %q after %q: %v", epoch, before, err)
	}
	for _, key := range left {
		if kv, err := b.Get(t.Context(), key); err != nil || kv.ModRev != 0 {
			t.Errorf("%s is left: %v", key, err)
		}
	}
	if s, err = store.Open(t.Context(), b, store.Options{}); err != nil || s.Epoch() != epoch {
		t.Errorf("opened with epoch %q: %v", s.Epoch(), err)
	}
	_ = s.Close()
	if _, err := store.StartNewEpoch(t.Context(), mem.New(), "", ""); !errors.Is(err, store.ErrNoRecords) {
		t.Errorf("an empty backend: %v", err)
	}
	newer := store.KV{Key: store.DefaultPrefix + "/v1/meta/schema", Value: []byte(`{"version":2}`)}
	if _, err := b.Commit(t.Context(), store.Txn{Puts: []store.KV{newer}}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.StartNewEpoch(t.Context(), b, "", ""); !errors.Is(err, store.ErrNewerSchema) {
		t.Errorf("a newer schema: %v", err)
	}
}

// refusing is a backend that accepts no transaction.
type refusing struct{ store.Backend }

func (refusing) Commit(context.Context, store.Txn) (int64, error) { return 0, store.ErrUnavailable }

// TestOpenReportsWhatItCannotWrite: a new store needs its schema and epoch, a renewed one its epoch.
func TestOpenReportsWhatItCannotWrite(t *testing.T) {
	b := mem.New()
	if s, err := store.Open(t.Context(), refusing{b}, store.Options{}); !errors.Is(err, store.ErrUnavailable) ||
		s != nil {
		t.Errorf("opened: %v", err)
	}
	old := store.NewTable[car]("old")
	s, err := store.Open(t.Context(), b, store.Options{Replica: "one", Tables: []store.AnyTable{old}, Expendable: old})
	if err != nil {
		t.Fatal(err)
	}
	commit(t, s, store.Put(old, "x", &car{}, store.IfAbsent))
	used := 0
	for _, no := range []string{"0", "1"} {
		kv, err := b.Get(t.Context(), store.DefaultPrefix+"/slot/one/"+no)
		if err == nil && kv.ModRev > 0 {
			used++
		}
	}
	if used == 0 {
		t.Error("a commit used no slot of its replica")
	}
	shared, _, _ := old.Get("x")
	if got, rev, err := old.GetLinearizable(t.Context(), "x"); got != shared || rev == 0 || err != nil {
		t.Errorf("the backend's own answer is not the record of the table: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := store.StartNewEpoch(t.Context(), refusing{b}, "", ""); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("renewed: %v", err)
	}
}

// TestWaitDeliveredEndsWithItsContext: the wait ends with its context, however long a subscriber takes.
func TestWaitDeliveredEndsWithItsContext(t *testing.T) {
	s, cars, _ := openCars(t)
	release := make(chan struct{})
	defer s.Subscribe(func([]store.Event) { <-release })()
	commit(t, s, store.Put(cars, "x", &car{}, store.IfAbsent))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.WaitDelivered(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("told before the subscriber is done: %v", err)
	}
	close(release)
	if err := s.WaitDelivered(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestSchemaIsReadFirst: neither newer data nor unreadable data is decoded.
func TestSchemaIsReadFirst(t *testing.T) {
	for value, want := range map[string]error{
		`{"version":2}`: store.ErrNewerSchema, `{"version":2,"oldest_program":2}`: store.ErrNewerSchema,
		`{"version":-1}`: store.ErrNewerSchema, `{"version":`: nil,
	} {
		b := mem.New()
		puts := []store.KV{
			{Key: store.DefaultPrefix + "/v1/meta/schema", Value: []byte(value)},
			{Key: store.DefaultPrefix + "/v1/k/x", Value: []byte("x")},
		}
		if _, err := b.Commit(t.Context(), store.Txn{Puts: puts}); err != nil {
			t.Fatal(err)
		}
		decoded := 0
		table := store.NewTable("k", store.WithCodec(
			func(*car) ([]byte, error) { return nil, nil },
			func([]byte) (*car, error) { decoded++; return &car{}, nil }))
		_, err := store.Open(t.Context(), b, store.Options{Tables: []store.AnyTable{table}})
		if err == nil || want != nil && !errors.Is(err, want) || decoded != 0 {
			t.Errorf("%s: %v, %d records decoded", value, err, decoded)
		}
	}
}

// TestSchemaOfTheNextRelease: a newer program may allow this one to read and write its records.
func TestSchemaOfTheNextRelease(t *testing.T) {
	b := mem.New()
	mark := store.KV{Key: store.DefaultPrefix + "/v1/meta/schema", Value: []byte(`{"version":2,"oldest_program":1}`)}
	if _, err := b.Commit(t.Context(), store.Txn{Puts: []store.KV{mark}}); err != nil {
		t.Fatal(err)
	}
	cars := store.NewTable[car]("k")
	s, err := store.Open(t.Context(), b, store.Options{Tables: []store.AnyTable{cars}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	commit(t, s, store.Put(cars, "x", &car{}, store.IfAbsent))
	if kv, err := b.Get(t.Context(), mark.Key); err != nil || string(kv.Value) != string(mark.Value) {
		t.Errorf("the mark is %s, %v", kv.Value, err)
	}
}

// stubborn is a backend whose leases cannot be resigned.
type stubborn struct {
	store.Backend
	err error
}

func (s stubborn) Campaign(ctx context.Context, key string) (store.Lease, error) {
	lease, err := s.Backend.Campaign(ctx, key)
	return kept{lease, s.err}, err
}

type kept struct {
	store.Lease
	err error
}

func (k kept) Resign(ctx context.Context) error { return errors.Join(k.err, k.Lease.Resign(ctx)) }

func TestCloseReportsWhatItCouldNotResign(t *testing.T) {
	errAway := errors.New("away")
	s, err := store.Open(t.Context(), stubborn{mem.New(), errAway}, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} { // the second one does not push the first out
		if _, err := s.Campaign(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); strings.Count(fmt.Sprint(err), "away") != 2 {
		t.Errorf("closed: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
}

// TestUpdateCommitsOnce: a change that was applied is not made again.
func TestUpdateCommitsOnce(t *testing.T) {
	s, cars, _ := openCars(t)
	commit(t, s, store.Put(cars, "x", &car{Colour: "red"}, store.IfAbsent))
	called := 0
	got, err := store.Update(t.Context(), s, cars, "x", func(old *car) (*car, error) {
		called++
		return &car{Colour: old.Colour + "der"}, nil
	})
	if err != nil || called != 1 || got.Colour != "redder" {
		t.Errorf("%+v after %d calls, %v", got, called, err)
	}
	for row := range cars.Snapshot().RowsOrderedBy("colour", 0) { // may be left at any row
		if row.ID() == "x" {
			break
		}
	}
}
