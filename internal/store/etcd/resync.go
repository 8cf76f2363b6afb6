package etcd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// resyncFiles writes the files of a failed member to the disk once more. After a failed sync the kernel
// may consider data written that it could not write: it can be read, and is lost with the next
// power failure.
func resyncFiles(dir string) error {
	mark := filepath.Join(dir, unsyncedFile)
	if _, err := os.Lstat(mark); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err := filepath.WalkDir(filepath.Join(dir, MemberSubdir), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		return rewriteInPlace(path)
	})
	if err != nil {
		return fmt.Errorf("write the store files again and sync them: %w", err)
	}
	if err := syncDirs(filepath.Join(dir, MemberSubdir)); err != nil {
		return err
	}
	if err := os.Remove(mark); err != nil {
		return err
	}
	return syncDirs(dir)
}

// rewriteInPlace writes every block of a file, except empty ones, in place, and syncs it.
func rewriteInPlace(path string) (err error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	block := make([]byte, 1<<20)
	for at := int64(0); ; at += int64(len(block)) {
		n, err := file.ReadAt(block, at)
		if n > 0 && !allZero(block[:n]) {
			if _, err := file.WriteAt(block[:n], at); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return syncFile(file)
		case err != nil:
			return err
		}
	}
}
