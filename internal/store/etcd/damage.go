package etcd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	"go.uber.org/zap"
)

// DamagedError means that a file of the store is not as it was written. The store is not opened
// then: it would lack records, or end in the middle of its work.
type DamagedError struct {
	File string
	Err  error
}

// Error implements error, in one line.
func (e *DamagedError) Error() string { return fmt.Sprintf("%s is damaged: %v", e.File, e.Err) }

// Unwrap returns the reason.
func (e *DamagedError) Unwrap() error { return e.Err }

// checkMember reads all files of a member before etcd does. On damaged ones etcd faults or panics
// in its own goroutine, or repairs its log by leaving out what it cannot read. A log that ends in
// the middle of a record is the result of a crash, not of damage.
func checkMember(dir string) error {
	path := filepath.Join(dir, "member", "snap", "db")
	at, err := checkDatabase(path)
	if err != nil {
		return err
	}
	logs, err := checkWAL(filepath.Join(dir, "member", "wal"))
	if err != nil {
		return err
	}
	if err := checkSnapshots(filepath.Join(dir, "member", "snap"), logs); err != nil {
		return err
	}
	switch {
	case at > logs.lastIndex:
		return &DamagedError{
			logs.lastFile,
			fmt.Errorf("the log ends with entry %d, but the database has applied entry %d",
				logs.lastIndex, at),
		}
	case at < logs.snapshotIndex:
		return &DamagedError{path, fmt.Errorf("the database has applied entry %d, but the log requires entry %d",
			at, logs.snapshotIndex)}
	}
	return nil
}

// checkDatabase reads a whole database and returns the index of the log's entry that it applied last.
func checkDatabase(path string) (applied uint64, err error) {
	file, size, err := openWithSize(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("database: %w", err)
	}
	defer func() { _ = file.Close() }()
	if size == 0 { // a crash right after it was created
		return 0, nil
	}
	c := dbContents{}
	if err := walkDatabase(file, size, c.checkPair); err != nil {
		return 0, &DamagedError{path, err}
	}
	return c.appliedIndex, nil
}

// checkSnapshots reads the snapshot files that the log names: a crash can leave an incomplete one
// only before the log names it.
func checkSnapshots(dir string, logs walState) error {
	for _, path := range matchingFiles(dir, "*.snap") {
		var at snapshotID
		if _, err := fmt.Sscanf(filepath.Base(path), "%016x-%016x.snap", &at.term, &at.index); err != nil ||
			!slices.Contains(logs.snapshots, at) {
			continue
		}
		if s, err := snap.Read(zap.NewNop(), path); err != nil {
			return &DamagedError{path, err}
		} else if s.Metadata.GetIndex() != at.index || s.Metadata.GetTerm() != at.term {
			return &DamagedError{path, fmt.Errorf("the snapshot is of entry %d instead", s.Metadata.GetIndex())}
		}
	}
	return nil
}

// matchingFiles returns the paths of a directory's files that match, in order.
func matchingFiles(dir, pattern string) []string {
	names, _ := fs.Glob(os.DirFS(dir), pattern) // only a wrong pattern is an error
	for i, name := range names {
		names[i] = filepath.Join(dir, name)
	}
	return names
}

// openWithSize opens a file and returns its length.
func openWithSize(path string) (*os.File, int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, info.Size(), nil
}

func decodeUint64(value []byte) uint64 {
	if len(value) != numberSize {
		return 0
	}
	return binary.BigEndian.Uint64(value)
}
