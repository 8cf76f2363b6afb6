package etcd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/store/backup"
)

// The files of the children that back up and restore, in their directory.
const (
	crashBackup = "crash.backup"
	crashStore  = "store"
)

// backupOnAndOn replaces one backup without a pause.
func backupOnAndOn(dir string) error {
	ctx := context.Background()
	b, err := StartEmbedded(ctx, EmbeddedOptions{Dir: filepath.Join(dir, crashStore)})
	if err != nil {
		return err
	}
	for {
		stream, _, err := b.Snapshot(ctx)
		if err != nil {
			return err
		}
		_, err = backup.WriteFile(filepath.Join(dir, crashBackup), stream, backup.ReplaceExisting)
		if err = errors.Join(err, stream.Close()); err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, "backup")
	}
}

// restoreOnAndOn restores the backup over the store without a pause.
func restoreOnAndOn(dir string) error {
	for {
		done, err := Restore(context.Background(), RestoreOptions{
			BackupFile: filepath.Join(dir, crashBackup), Dir: filepath.Join(dir, crashStore),
			Existing: MoveExistingAside,
		})
		if err != nil {
			return err
		}
		if err := os.RemoveAll(done.MovedTo); err != nil {
			return err
		}
	}
}

// runFor kills a child after a time, at whatever step it is then.
func runFor(t *testing.T, work, dir string, d time.Duration) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), crashDir+"="+dir, crashName+"="+work)
	child.Stderr = os.Stderr
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(d)
	if err := child.Process.Kill(); err != nil {
		t.Errorf("the child ended by itself: %v", err)
	}
	_ = child.Wait() // it was killed
}

// TestKilledBackup: a file with the name of a backup is one, whenever the process was killed.
func TestKilledBackup(t *testing.T) {
	dir := t.TempDir()
	o := openOn(t, open(t, filepath.Join(dir, crashStore)))
	o.put(t, 0, 100)
	o.close(t)
	for round := range often(4) {
		runFor(t, "backup", dir, time.Second+rand.N(700*time.Millisecond))
		if _, err := backup.VerifyFile(filepath.Join(dir, crashBackup)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("round %d: %v", round, err)
		}
	}
	// The store that was read concurrently is unchanged.
	o = openOn(t, open(t, filepath.Join(dir, crashStore)))
	defer o.close(t)
	if o.table.Len() != 100 {
		t.Errorf("%d records of 100", o.table.Len())
	}
}

// TestKilledRestore: whenever a restore is killed, the directory can be opened, with the former
// store or with the restored one.
func TestKilledRestore(t *testing.T) {
	dir := t.TempDir()
	storeDir := filepath.Join(dir, crashStore)
	o := openOn(t, open(t, storeDir))
	o.put(t, 0, 100)
	o.backup(t, filepath.Join(dir, crashBackup))
	o.put(t, 100, 120)
	o.close(t)
	for round := range often(5) {
		runFor(t, "restore", dir, 100*time.Millisecond+rand.N(1500*time.Millisecond))
		o := openOn(t, open(t, storeDir))
		if n := o.table.Len(); n != 100 && n != 120 {
			t.Errorf("round %d: %d records", round, n)
		}
		o.close(t)
	}
}

// TestRestoreIsFinishedAtTheStart: if a restore is killed between moving the former store and
// renaming the new one, the next process that opens the store completes it.
func TestRestoreIsFinishedAtTheStart(t *testing.T) {
	dir, file, _, _ := backedUp(t)
	other := t.TempDir()
	if _, err := Restore(t.Context(), RestoreOptions{BackupFile: file, Dir: other}); err != nil {
		t.Fatal(err)
	}
	for name, kill := range map[string]func() error{
		"before the former store makes way": func() error { return nil },
		"after": func() error {
			return os.Rename(filepath.Join(dir, MemberSubdir), filepath.Join(dir, asideSubdir+"x"))
		},
	} {
		if err := os.CopyFS(filepath.Join(dir, RestoredSubdir),
			os.DirFS(filepath.Join(other, MemberSubdir))); err != nil {
			t.Fatal(err)
		}
		if err := kill(); err != nil {
			t.Fatal(err)
		}
		o := openOn(t, open(t, dir))
		if o.table.Len() != 100 {
			t.Errorf("%s: %d records, the backup had 100", name, o.table.Len())
		}
		o.close(t)
	}
}
