package etcd

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"

	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/backup"
)

// opened is a store on a directory or a cluster, with one table.
type opened struct {
	*store.Store
	backend *Backend
	table   *store.Table[crashRecord]
}

func openOn(t *testing.T, b *Backend) *opened {
	t.Helper()
	table := store.NewTable[crashRecord]("c")
	s, err := store.Open(t.Context(), b, store.Options{Tables: []store.AnyTable{table}, Logger: testLogger(t)})
	if err != nil {
		t.Fatal(errors.Join(err, b.Close()))
	}
	return &opened{s, b, table}
}

func (o *opened) put(t *testing.T, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if err := o.Commit(t.Context(),
			store.Put(o.table, fmt.Sprintf("%04d", i), &crashRecord{i}, store.Any)); err != nil {
			t.Fatal(err)
		}
	}
}

func (o *opened) backup(t *testing.T, path string) {
	t.Helper()
	stream, size, err := o.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sum, err := backup.WriteFile(path, stream, backup.KeepExisting)
	if err = errors.Join(err, stream.Close()); err != nil {
		t.Fatal(err)
	}
	if size <= 0 || sum.Size() < size/4 { // the file may be made smaller concurrently
		t.Errorf("the backup has %d bytes, %d were foretold", sum.Size(), size)
	}
}

func (o *opened) close(t *testing.T) {
	t.Helper()
	if err := errors.Join(o.Close(), o.backend.Close()); err != nil {
		t.Error(err)
	}
}

// backedUp makes a backup of 100 records and of a held lease, and then changes the store.
func backedUp(t *testing.T) (dir, file, epoch string, rev int64) {
	t.Helper()
	dir, file = t.TempDir(), filepath.Join(t.TempDir(), "file.backup")
	o := openOn(t, open(t, dir))
	defer o.close(t)
	o.put(t, 0, 100)
	if _, err := o.Campaign(t.Context(), "work"); err != nil {
		t.Fatal(err)
	}
	o.backup(t, file)
	o.put(t, 100, 150)
	if err := o.Commit(t.Context(), store.Delete(o.table, "0007", store.Any)); err != nil {
		t.Fatal(err)
	}
	rev, err := o.backend.Barrier(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return dir, file, o.Epoch(), rev
}

func TestRestore(t *testing.T) {
	_, file, epoch, rev := backedUp(t)
	dir := filepath.Join(t.TempDir(), "new", "store")
	done, err := Restore(t.Context(), RestoreOptions{BackupFile: file, Dir: dir, Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	o := openOn(t, open(t, dir))
	defer o.close(t)
	if o.table.Len() != 100 {
		t.Errorf("%d records, the backup had 100", o.table.Len())
	}
	if o.Epoch() == epoch || o.Epoch() != done.Epoch {
		t.Errorf("epoch %q, it was %q and was promised as %q", o.Epoch(), epoch, done.Epoch)
	}
	if now, err := o.backend.Barrier(t.Context()); err != nil || now < rev+revisionBump/2 || done.FirstRevision > now {
		t.Errorf("revision %d (promised %d, %v), it was %d", now, done.FirstRevision, err, rev)
	}
	began := time.Now()
	if _, err := o.Campaign(t.Context(), "work"); err != nil || time.Since(began) > time.Second {
		t.Errorf("the lease of the backup is still held: %v after %s", err, time.Since(began))
	}
	o.put(t, 200, 210)
	// A watch from an old revision must list again.
	if err := o.backend.Watch(t.Context(), store.DefaultPrefix, rev,
		func(store.WatchBatch) error { return nil }); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("a watch from a revision of before ends with %v", err)
	}
}

func TestRestoreRefuses(t *testing.T) {
	full, file, _, _ := backedUp(t)
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	inUse := t.TempDir()
	holder := open(t, inUse)
	defer func() { _ = holder.Close() }()
	write := func(name string, data []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	flipped := append([]byte{}, good...)
	flipped[len(flipped)/2] ^= 1
	for name, tc := range map[string]struct {
		file, dir, want string
		occupied        ExistingStore
	}{
		"no file":            {file: full + "/none", dir: t.TempDir(), want: "no such file"},
		"a changed byte":     {file: write("f", flipped), dir: t.TempDir(), want: "checksum"},
		"cut short":          {file: write("f", good[:len(good)-100]), dir: t.TempDir(), want: "is cut off after"},
		"cut at a sector":    {file: write("f", good[:len(good)-512]), dir: t.TempDir(), want: "checksum"},
		"empty":              {file: write("f", nil), dir: t.TempDir(), want: "is cut off after"},
		"a full directory":   {file: file, dir: full, want: "a store already exists"},
		"a directory in use": {file: file, dir: inUse, want: "in use by process", occupied: MoveExistingAside},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Restore(t.Context(), RestoreOptions{BackupFile: tc.file, Dir: tc.dir, Existing: tc.occupied})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if _, err := os.Stat(filepath.Join(tc.dir, RestoredSubdir)); !errors.Is(err, fs.ErrNotExist) {
				t.Error("a refused restore left something that a start would use")
			}
		})
	}
	o := openOn(t, open(t, full))
	defer o.close(t)
	if o.table.Len() != 149 {
		t.Errorf("the store that was in the way has %d records, 149 before", o.table.Len())
	}
}

// TestRestoreRefusesNewerData: the schema is checked before the former store is moved aside.
func TestRestoreRefusesNewerData(t *testing.T) {
	b := open(t, t.TempDir())
	key := store.DefaultPrefix + "/v1/meta/schema"
	if _, err := b.Commit(t.Context(),
		store.Txn{Puts: []store.KV{{Key: key, Value: []byte(`{"version":99}`)}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(t.Context(), b, store.Options{}); !errors.Is(err, store.ErrNewerSchema) {
		t.Errorf("newer data was opened: %v", err)
	}
	file := filepath.Join(t.TempDir(), "f")
	stream, _, err := b.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = backup.WriteFile(file, stream, backup.KeepExisting)
	if err = errors.Join(err, stream.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	open(t, dir).Close()
	if _, err := Restore(t.Context(),
		RestoreOptions{BackupFile: file, Dir: dir, Existing: MoveExistingAside}); !errors.Is(err,
		store.ErrNewerSchema) {
		t.Errorf("got %v, want that the schema is newer", err)
	}
	if names, _ := filepath.Glob(filepath.Join(dir, MemberSubdir+".*")); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
}

func TestRestoreMovesTheFormerStoreAside(t *testing.T) {
	dir, file, _, _ := backedUp(t)
	for range 2 { // a second one needs another name for what it moves
		done, err := Restore(t.Context(), RestoreOptions{BackupFile: file, Dir: dir, Existing: MoveExistingAside})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(done.MovedTo, "member", "snap", "db")); err != nil ||
			filepath.Dir(done.MovedTo) != dir {
			t.Errorf("the former store is not in %q: %v", done.MovedTo, err)
		}
	}
	o := openOn(t, open(t, dir))
	defer o.close(t)
	if o.table.Len() != 100 {
		t.Errorf("%d records, the backup had 100", o.table.Len())
	}
}

// TestBackupBecomesAMemberElsewhere: the backup file of a single machine is restored, by etcd's own
// means, into a member of a cluster, and a controller works on that.
func TestBackupBecomesAMemberElsewhere(t *testing.T) {
	_, file, epoch, _ := backedUp(t)
	dir := filepath.Join(t.TempDir(), "member")
	cfg := memberConfig(EmbeddedOptions{Logger: testLogger(t)}, dir)
	peer, client := freeURL(t), freeURL(t)
	cfg.Name = "elsewhere"
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	err := snapshot.NewV3(zapLogger(testLogger(t))).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, Name: cfg.Name, OutputDataDir: dir, PeerURLs: []string{peer.String()},
		InitialCluster: cfg.InitialCluster, InitialClusterToken: cfg.InitialClusterToken,
		RevisionBump: revisionBump, MarkCompacted: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	member, err := startEtcd(cfg, newMemberFailure())
	if err != nil {
		t.Fatal(err)
	}
	defer member.Close()
	if err := awaitReady(t.Context(), member, newMemberFailure()); err != nil {
		t.Fatal(err)
	}
	b, err := ConnectExternal(t.Context(), ExternalOptions{Endpoints: []string{client.String()}, Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	o := openOn(t, b)
	defer o.close(t)
	if o.table.Len() != 100 || o.Epoch() != epoch {
		t.Errorf("%d records of 100, epoch %q of %q", o.table.Len(), o.Epoch(), epoch)
	}
	o.put(t, 0, 10)
	if _, err := o.Campaign(t.Context(), "work"); err != nil { // its lease expires with the seconds
		t.Error(err)
	}
	// And a cluster is backed up through its client.
	again := filepath.Join(t.TempDir(), "again")
	o.backup(t, again)
	if _, err := Restore(t.Context(), RestoreOptions{BackupFile: again, Dir: t.TempDir()}); err != nil {
		t.Error(err)
	}
}

// TestRestoreOfAFullStore: a backup that was made because the store was full can be restored, and
// accepts writes again with a larger quota.
func TestRestoreOfAFullStore(t *testing.T) {
	_, s, live, _ := openSmall(t, t.TempDir(), 8<<20, false)
	n := 0
	for err := error(nil); err == nil && n < 1000; n++ {
		err = s.Commit(t.Context(), store.Put(live, fmt.Sprint(n), &blob{n, body(64 << 10)}, store.Any))
	}
	eventually(t, "the store to say that it is full", func() bool { return s.Healthy() != nil })
	file, dir := filepath.Join(t.TempDir(), "file.backup"), t.TempDir()
	(&opened{Store: s}).backup(t, file)
	if _, err := Restore(t.Context(), RestoreOptions{BackupFile: file, Dir: dir, Logger: testLogger(t)}); err != nil {
		t.Fatal(err)
	}
	o := openOn(t, open(t, dir))
	defer o.close(t)
	o.put(t, 0, 10)
}

// TestRestoreOfAnother: a complete snapshot that is not of a cloud is refused before the existing
// store is moved aside for it.
func TestRestoreOfAnother(t *testing.T) {
	b := open(t, t.TempDir())
	defer func() { _ = b.Close() }()
	if _, err := b.Commit(t.Context(), store.Txn{Puts: []store.KV{{Key: "/other/x", Value: []byte("x")}}}); err != nil {
		t.Fatal(err)
	}
	stream, _, err := b.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file.backup")
	if _, err := backup.WriteFile(file, stream, backup.KeepExisting); errors.Join(err, stream.Close()) != nil {
		t.Fatal(err)
	}
	full, _, _, _ := backedUp(t)
	if _, err := Restore(t.Context(),
		RestoreOptions{BackupFile: file, Dir: full, Existing: MoveExistingAside}); !errors.Is(err,
		store.ErrNoRecords) {
		t.Fatalf("restored: %v", err)
	}
	o := openOn(t, open(t, full))
	defer o.close(t)
	if o.table.Len() != 149 {
		t.Errorf("the former store has %d records, 149 before", o.table.Len())
	}
}
