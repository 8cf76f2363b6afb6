package etcd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"

	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/backup"
)

const (
	// revisionBump is far more than any store writes between two backups: a process that has
	// followed the old store sees revisions that only grow, and none that is used twice.
	revisionBump = 1_000_000_000

	// RestoredSubdir is the directory of a restored member that only has to be renamed.
	RestoredSubdir = MemberSubdir + ".restored"
	// The directories of a member that is being restored, and of the former store that was moved aside.
	stagedSubdir = MemberSubdir + ".restoring"
	asideSubdir  = MemberSubdir + ".before-restore-" // and the time
)

// ExistingStore selects what Restore does with a store that is already in its directory.
type ExistingStore int

// The values of ExistingStore.
const (
	RefuseExisting    ExistingStore = iota // fail and leave it as it is
	MoveExistingAside                      // rename it within the directory
)

// RestoreOptions configures a restore.
type RestoreOptions struct {
	BackupFile string // a backup
	Dir        string // as EmbeddedOptions.Dir; created if missing
	Prefix     string // of the records; empty: store.DefaultPrefix
	Existing   ExistingStore
	CopiedFrom string       // epoch of the store that was moved here; empty: a backup is restored
	Logger     *slog.Logger // nil: silent

	// Confirm is called when all but the last step is done, while the directory is locked: an error of it
	// undoes the restore. nil: it is not needed.
	Confirm func(ctx context.Context) error
}

// RestoreResult is the result of Restore.
type RestoreResult struct {
	Epoch         string // of the restored data
	FirstRevision int64  // the first revision
	MovedTo       string // where the former store is now; empty: there was none
}

// Restore creates the directory of an embedded member from a backup. The restored data has a new
// epoch, its revisions are far above those of the backup, and no lease is held. If it is killed at
// any moment, it leaves either the former store or the restored one.
func Restore(ctx context.Context, opts RestoreOptions) (done RestoreResult, err error) {
	if err := checkBackup(opts.BackupFile); err != nil {
		return RestoreResult{}, err
	}
	if err := os.MkdirAll(opts.Dir, storeDirMode); err != nil {
		return RestoreResult{}, fmt.Errorf("create store directory: %w", err)
	}
	lock, err := lockDir(opts.Dir)
	if err != nil {
		return RestoreResult{}, err
	}
	defer func() { err = errors.Join(err, lock.release()) }()
	if _, err := finishRestore(opts.Dir); err != nil {
		return RestoreResult{}, err
	}
	if _, err := os.Lstat(filepath.Join(opts.Dir, MemberSubdir)); opts.Existing == RefuseExisting &&
		!errors.Is(err, fs.ErrNotExist) {
		return RestoreResult{}, fmt.Errorf("a store already exists in %s: %w", opts.Dir, fs.ErrExist)
	}
	if done, err = stageMember(ctx, opts); err != nil {
		return RestoreResult{}, fmt.Errorf("restore %s: %w", opts.BackupFile, err)
	}
	done.MovedTo, err = finishRestore(opts.Dir)
	return done, err
}

// checkBackup reads a whole backup and its checksum.
func checkBackup(path string) error {
	if _, err := backup.VerifyFile(path); err != nil {
		return err
	}
	return inspectBackup(path)
}

// OpenBackup starts a member with the content of a backup, as a source of its records. dir is an empty or
// missing directory, which the caller removes after Close.
func OpenBackup(ctx context.Context, path, dir string, log *slog.Logger) (*Backend, error) {
	if err := checkBackup(path); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, storeDirMode); err != nil {
		return nil, fmt.Errorf("create a directory for the backup: %w", err)
	}
	opts := RestoreOptions{BackupFile: path, Logger: log}
	member := filepath.Join(dir, MemberSubdir)
	if err := unpackBackup(opts, member); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	b, err := startMember(ctx, EmbeddedOptions{Logger: log}, member)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return b, nil
}

// stageMember creates the member under the name that finishRestore looks for.
func stageMember(ctx context.Context, opts RestoreOptions) (done RestoreResult, err error) {
	dir := filepath.Join(opts.Dir, stagedSubdir)
	if err := os.RemoveAll(dir); err != nil {
		return RestoreResult{}, fmt.Errorf("remove leftovers of a restore: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if err := unpackBackup(opts, dir); err != nil {
		return RestoreResult{}, err
	}
	if done, err = beginEpoch(ctx, opts, dir); err != nil {
		return RestoreResult{}, err
	}
	if err := syncDirs(dir); err != nil {
		return RestoreResult{}, err
	}
	if opts.Confirm != nil {
		if err := opts.Confirm(ctx); err != nil {
			return RestoreResult{}, err
		}
	}
	return done, renameDurably(dir, filepath.Join(opts.Dir, RestoredSubdir))
}

// unpackBackup converts the backup into the files of a member that is the only one of its cluster.
func unpackBackup(opts RestoreOptions, dir string) (err error) {
	defer func() { // as in startEtcd
		if p := recover(); p != nil {
			err = fmt.Errorf("etcd cannot read the backup: %v", p)
		}
	}()
	cfg := memberConfig(EmbeddedOptions{}, dir)
	return snapshot.NewV3(zapLogger(opts.Logger)).Restore(snapshot.RestoreConfig{
		SnapshotPath:        opts.BackupFile,
		Name:                cfg.Name,
		OutputDataDir:       dir,
		PeerURLs:            []string{cfg.AdvertisePeerUrls[0].String()},
		InitialCluster:      cfg.InitialCluster,
		InitialClusterToken: cfg.InitialClusterToken,
		RevisionBump:        revisionBump,
		MarkCompacted:       true,
	})
}

// beginEpoch runs the member one time, to begin a new epoch in it. That also proves that it can run.
func beginEpoch(ctx context.Context, opts RestoreOptions, dir string) (done RestoreResult, err error) {
	b, err := startMember(ctx, EmbeddedOptions{Logger: opts.Logger}, dir)
	if err != nil {
		return RestoreResult{}, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if err := b.maintainer.maintain(ctx); err != nil { // the store that was backed up may have been full
		return RestoreResult{}, err
	}
	if done.Epoch, err = store.StartNewEpoch(ctx, b, opts.Prefix, opts.CopiedFrom); err != nil {
		return RestoreResult{}, err
	}
	done.FirstRevision, err = b.Barrier(ctx)
	return done, err
}

// finishRestore moves a completed restore to its final name, also one that was killed just before
// that. The caller holds the directory's lock.
func finishRestore(dir string) (aside string, err error) {
	restored, place := filepath.Join(dir, RestoredSubdir), filepath.Join(dir, MemberSubdir)
	if _, err := os.Lstat(restored); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if _, err := os.Lstat(place); !errors.Is(err, fs.ErrNotExist) {
		aside = filepath.Join(dir, asideSubdir+time.Now().UTC().Format("20060102T150405.000000000Z"))
		if err := renameDurably(place, aside); err != nil {
			return "", err
		}
	}
	return aside, renameDurably(restored, place)
}

// renameDurably renames a directory durably.
func renameDurably(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return fmt.Errorf("move the restored store to its final directory: %w", err)
	}
	return syncDirs(filepath.Dir(to))
}

// syncDirs makes the names of all files below a directory durable; etcd has synced their content.
func syncDirs(root string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		dir, err := os.Open(path) //nolint:gosec // in our own directory, which is locked
		if err != nil {
			return err
		}
		return errors.Join(syncFile(dir), dir.Close())
	})
}
