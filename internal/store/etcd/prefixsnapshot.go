package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/buildyard/buildyard/internal/store/etcd/recordfile"
)

// temporaryBackup is the pattern of the names of backups that are being made.
const temporaryBackup = "buildyard-backup-*"

// RemoveTemporaryBackups removes backups in a directory whose process was killed while it made them: they
// have all secrets of a store. One that is being made stays: its process has locked it.
func RemoveTemporaryBackups(dir string) error {
	return recordfile.RemoveUnfinished(filepath.Join(dir, temporaryBackup))
}

// snapshotPrefix writes the records below the prefix, all of one revision, into a temporary file, and
// returns a stream of it. The file has no name by then, so that it ends with the process. What a lease
// holds is left out for the same reason.
func (b *Backend) snapshotPrefix(ctx context.Context) (stream io.ReadCloser, size int64, err error) {
	file, err := os.CreateTemp(b.tempDir, temporaryBackup)
	if err != nil {
		return nil, 0, fmt.Errorf("make a file for the backup: %w", err)
	}
	path := file.Name()
	defer func() { err = errors.Join(err, os.Remove(path)) }()
	if err := file.Close(); err != nil {
		return nil, 0, err
	}

	if err := b.writeRecordFile(ctx, path); err != nil {
		return nil, 0, fmt.Errorf("write the records into a backup: %w", err)
	}
	opened, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	info, err := opened.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, opened.Close())
	}
	return opened, info.Size(), nil
}

// writeRecordFile writes the records below the prefix into a backup file.
func (b *Backend) writeRecordFile(ctx context.Context, path string) error {
	return recordfile.Write(path, func(add func([]*mvccpb.KeyValue) error) error {
		_, err := b.listPages(ctx, b.prefix+"/", func(page []*mvccpb.KeyValue) error {
			kept := page[:0]
			for _, kv := range page {
				if kv.Lease == int64(clientv3.NoLease) {
					kept = append(kept, kv)
				}
			}
			return add(kept)
		})
		return err
	})
}
