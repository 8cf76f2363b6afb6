package storeadmin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/backup"
	"github.com/buildyard/buildyard/internal/store/etcd"
)

// Cluster is a backend whose records can be written into a backup.
type Cluster interface {
	store.Backend
	store.Snapshotter
}

var _ Cluster = (*etcd.Backend)(nil)

// MigrateToDirectory moves the records of a cluster to the directory of an embedded store, which must
// have none. It is otherwise like Migrate: it may be interrupted at any moment and run again.
func MigrateToDirectory(ctx context.Context, from Side, cluster Cluster, dir string, opts Options) (Result, error) {
	opts = opts.withDefaults()
	epoch, err := store.ReadEpoch(ctx, from.Backend, from.Prefix)
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", from.Name, err)
	}
	state, err := readDirectory(ctx, dir)
	if err != nil {
		return Result{}, err
	}
	complete := isCopyOf(state, epoch)
	if t := state.Transfer(); !complete && state.Exists() && (t == nil || t.State != store.TransferMoved) {
		return Result{}, fmt.Errorf("%s: %w", dir, ErrNotEmpty)
	}

	source, err := closeSource(ctx, from, dir, opts)
	if err != nil {
		return Result{}, err
	}
	var done Result
	if !complete {
		if done, err = restoreFrom(ctx, from, cluster, etcd.RestoreOptions{
			Dir: dir, CopiedFrom: epoch, Logger: opts.Logger,
			Confirm: func(ctx context.Context) error { return from.confirmClosed(ctx, source) },
		}); err != nil {
			return Result{}, err
		}
	}
	if err := markMoved(ctx, from, source, dir, opts); err != nil {
		return Result{}, err
	}
	done.Records, err = from.countRecords(ctx)
	return done, err
}

// readDirectory reads the schema record of the store in a directory; the zero value when there is none.
func readDirectory(ctx context.Context, dir string) (state store.Schema, err error) {
	if !hasStore(dir) {
		return store.Schema{}, nil
	}
	b, err := etcd.StartEmbedded(ctx, etcd.EmbeddedOptions{Dir: dir})
	if err != nil {
		return store.Schema{}, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	return store.ReadSchema(ctx, b, "")
}

// hasStore reports whether a directory has a store, or a restored one that the next start uses.
func hasStore(dir string) bool {
	for _, name := range []string{etcd.MemberSubdir, etcd.RestoredSubdir} {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

// restoreFrom writes a backup of the cluster next to the store of opts.Dir, and restores it there.
func restoreFrom(
	ctx context.Context, from Side, cluster Cluster, opts etcd.RestoreOptions,
) (done Result, err error) {
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return Result{}, fmt.Errorf("create store directory: %w", err)
	}
	file := filepath.Join(opts.Dir, "migration.backup")
	defer func() { err = errors.Join(err, os.RemoveAll(file)) }()
	if err := writeUnchanging(ctx, from, cluster, file); err != nil {
		return Result{}, err
	}

	opts.BackupFile, opts.Prefix, opts.Existing = file, from.Prefix, etcd.MoveExistingAside
	restored, err := etcd.Restore(ctx, opts)
	if err != nil {
		return Result{}, err
	}
	done = Result{Epoch: restored.Epoch, Replaced: restored.MovedTo}
	done.Written, err = from.countRecords(ctx)
	return done, err
}

// confirmClosed fails when another process has changed the state of a source since this one closed it.
func (s Side) confirmClosed(ctx context.Context, closed store.Schema) error {
	now, err := s.schema(ctx)
	if err != nil {
		return err
	}
	if now.Condition(s.Prefix) != closed.Condition(s.Prefix) {
		return fmt.Errorf("%s: another command has canceled or continued this migration", s.Name)
	}
	return nil
}

// writeUnchanging writes a backup during which no record changed.
func writeUnchanging(ctx context.Context, from Side, cluster Cluster, file string) error {
	for range maxCopyRounds {
		rev, err := from.Backend.Barrier(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", from.Name, err)
		}
		if err := WriteBackup(ctx, cluster, file, backup.ReplaceExisting); err != nil {
			return err
		}
		changed, err := from.changedSince(ctx, rev)
		if err != nil || !changed {
			return err
		}
	}
	return fmt.Errorf("%s: %w", from.Name, errChanging)
}

// WriteBackup writes a backup of a store into a file.
func WriteBackup(
	ctx context.Context, from store.Snapshotter, file string, existing backup.OverwritePolicy,
) (err error) {
	stream, _, err := from.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	_, err = backup.WriteFile(file, stream, existing)
	return err
}

// CancelToDirectory opens the records of a cluster again whose migration to a directory is not complete.
// A migration that runs at the same time fails.
func CancelToDirectory(ctx context.Context, from Side, dir string) error {
	source, err := takeOver(ctx, from, dir)
	if err != nil {
		return err
	}
	epoch, err := store.ReadEpoch(ctx, from.Backend, from.Prefix)
	if err != nil {
		return fmt.Errorf("%s: %w", from.Name, err)
	}
	state, err := readDirectory(ctx, dir)
	if err != nil {
		return err
	}
	if isCopyOf(state, epoch) {
		return fmt.Errorf("%s: the copy is complete and may be in use; run the migration again to end it", dir)
	}
	if _, err := source.Reopen(ctx, from.Backend, from.Prefix); err != nil {
		return fmt.Errorf("%s: %w", from.Name, err)
	}
	return nil
}

// takeOver closes the source of an incomplete migration again, while no other process uses the directory.
// After that, a migration that began earlier cannot complete its copy.
func takeOver(ctx context.Context, from Side, dir string) (source store.Schema, err error) {
	if source, err = from.schema(ctx); err != nil {
		return source, err
	}
	t := source.Transfer()
	if t == nil || t.State != store.TransferOutgoing || !samePeer(t.Peer, dir) {
		return source, fmt.Errorf("%s: no incomplete migration to %s found", from.Name, dir)
	}
	lock, err := etcd.LockDirectory(dir)
	if err != nil {
		return source, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if source, err = source.Close(ctx, from.Backend, from.Prefix, *t); err != nil {
		return source, fmt.Errorf("%s: %w", from.Name, err)
	}
	return source, nil
}
