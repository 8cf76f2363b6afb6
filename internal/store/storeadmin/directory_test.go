package storeadmin

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/backup"
	"github.com/buildyard/buildyard/internal/store/etcd"
	"github.com/buildyard/buildyard/internal/store/mem"
)

// open starts an embedded store, which also stands for a cluster: it has the same interface.
func open(t *testing.T, dir string) *etcd.Backend {
	t.Helper()
	b, err := etcd.StartEmbedded(t.Context(), etcd.EmbeddedOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestThereAndBack: records go to another store, back to a directory, and are the same.
func TestThereAndBack(t *testing.T) {
	ctx := t.Context()
	original := filled(t, 30)
	home, away := t.TempDir(), t.TempDir()
	cluster := open(t, away)
	defer func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := Migrate(ctx, Side{original, "", home}, Side{cluster, "", "etcd"}, noSettle()); err != nil {
		t.Fatal(err)
	}
	wantSame(t, cluster, original)

	left := 1 // the source is closed, and nothing more happens at it
	side := Side{killed{cluster, &left}, "", "etcd"}
	if _, err := MigrateToDirectory(ctx, side, cluster, home, noSettle()); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	if err := CancelToDirectory(ctx, Side{cluster, "", "etcd"}, home); err == nil ||
		!strings.Contains(err.Error(), "complete") {
		t.Errorf("a complete copy was undone: %v", err)
	}
	done, err := MigrateToDirectory(ctx, Side{cluster, "", "etcd"}, cluster, home, noSettle())
	if err != nil || done.Records != 30 || done.Written != 0 {
		t.Fatalf("again: %+v, %v", done, err)
	}
	if err := opens(t, cluster); !errors.Is(err, store.ErrClosedForTransfer) {
		t.Errorf("the cluster opens: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(home, "*.backup")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
	back := open(t, home)
	wantSame(t, back, original)
	if err := opens(t, back); err != nil {
		t.Error(err)
	}
	if err := back.Close(); err != nil {
		t.Error(err)
	}

	// A directory with records is no target, and the records that were moved may return.
	if _, err := MigrateToDirectory(ctx, Side{cluster, "", "etcd"}, cluster, home, noSettle()); err == nil {
		t.Error("moved twice")
	}
}

// beforeCopy is a cluster at which something happens before a backup of it.
type beforeCopy struct {
	*etcd.Backend
	do func()
}

// Snapshot implements store.Snapshotter.
func (b beforeCopy) Snapshot(ctx context.Context) (io.ReadCloser, int64, error) {
	b.do()
	return b.Backend.Snapshot(ctx)
}

// TestCancelDuringMigration: a cancel while the directory does not have a store yet ends the migration, and a
// cancel while another process uses the directory changes nothing.
func TestCancelDuringMigration(t *testing.T) {
	ctx, dir := t.Context(), filepath.Join(t.TempDir(), "store")
	cluster := open(t, t.TempDir())
	defer func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := opens(t, cluster); err != nil {
		t.Fatal(err)
	}
	side := Side{cluster, "", "etcd"}

	during := beforeCopy{cluster, sync.OnceFunc(func() {
		lock, err := etcd.LockDirectory(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := CancelToDirectory(ctx, side, dir); err == nil || !strings.Contains(err.Error(), "in use") {
			t.Errorf("canceled while the directory is used: %v", err)
		}
		if err := lock.Close(); err != nil {
			t.Fatal(err)
		}
		if err := CancelToDirectory(ctx, side, dir); err != nil {
			t.Errorf("cancel: %v", err)
		}
	})}
	if _, err := MigrateToDirectory(ctx, side, during, dir, noSettle()); err == nil ||
		!strings.Contains(err.Error(), "another command has canceled") {
		t.Errorf("a canceled migration: %v", err)
	}
	if hasStore(dir) {
		t.Error("two stores are open")
	}
	if err := opens(t, cluster); err != nil {
		t.Errorf("the cluster is not open: %v", err)
	}
	if _, err := MigrateToDirectory(ctx, side, cluster, dir, noSettle()); err != nil || !hasStore(dir) {
		t.Errorf("the next migration: %v", err)
	}
}

// TestReopenByRestore: a backup of a store whose records were moved opens it again.
func TestReopenByRestore(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	b := open(t, dir)
	if err := opens(t, b); err != nil {
		t.Fatal(err)
	}
	if _, err := Migrate(ctx, Side{b, "", dir}, Side{mem.New(), "", "etcd"}, noSettle()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "b")
	if err := errors.Join(WriteBackup(ctx, b, file, backup.KeepExisting), b.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.Restore(ctx, etcd.RestoreOptions{
		BackupFile: file, Dir: dir, Existing: etcd.MoveExistingAside,
	}); err != nil {
		t.Fatal(err)
	}
	again := open(t, dir)
	if err := errors.Join(opens(t, again), again.Close()); err != nil {
		t.Error(err)
	}
}

// TestCheck: a healthy store has no other level than OK; a closed one fails with its reason.
func TestCheck(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	b := open(t, dir)
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	side := Side{b, "", dir}
	for _, state := range []string{"none", "schema version"} {
		found := false
		for _, f := range Check(ctx, side, b) {
			found = found || strings.Contains(f.Detail, state)
			if f.Level == LevelFail {
				t.Errorf("%+v", f)
			}
		}
		if !found {
			t.Errorf("no finding about records: want %q", state)
		}
		if err := opens(t, b); err != nil {
			t.Fatal(err)
		}
	}
	if kv, err := b.Get(ctx, "/buildyard/store-check"); err != nil || kv.ModRev != 0 {
		t.Errorf("left behind: %+v, %v", kv, err)
	}
	if _, err := Migrate(ctx, side, Side{mem.New(), "", "etcd"}, noSettle()); err != nil {
		t.Fatal(err)
	}
	failed := false
	for _, f := range Check(ctx, side, b) {
		failed = failed || f.Level == LevelFail && strings.Contains(f.Detail, "moved to etcd")
	}
	if !failed {
		t.Error("that the records were moved is not found")
	}
}

// TestCheckMembers: each state of a member has its level.
func TestCheckMembers(t *testing.T) {
	for name, tc := range map[string]struct {
		member etcd.MemberReport
		want   Level
	}{
		"healthy":   {etcd.MemberReport{FileBytes: 1, QuotaBytes: 100}, LevelOK},
		"nearly":    {etcd.MemberReport{FileBytes: 80, QuotaBytes: 100}, LevelWarn},
		"full":      {etcd.MemberReport{FileBytes: 80, QuotaBytes: 100, IsFull: true}, LevelFail},
		"away":      {etcd.MemberReport{Err: errKilled}, LevelFail},
		"no quota?": {etcd.MemberReport{FileBytes: 80}, LevelOK},
	} {
		if got := checkMembers([]etcd.MemberReport{tc.member})[0]; got.Level != tc.want {
			t.Errorf("%s: %+v, want %s", name, got, tc.want)
		}
	}
	two := checkMembers(make([]etcd.MemberReport, 2))
	if last := two[len(two)-1]; last.Level != LevelWarn || !strings.Contains(last.Remedy, "three or five") {
		t.Errorf("two members: %+v", last)
	}
}
