package etcd

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// sealFile has the checksums of all files of a stopped member. etcd's database has none, so a
// changed record could not be distinguished from the right one otherwise. The next start verifies
// and removes it.
const sealFile = "sealed"

// maxSealBytes is the size of the longest file that gets a checksum; of a longer one only the form is
// checked. Tests make it smaller.
var maxSealBytes int64 = 1 << 30

// seal is the content of sealFile.
type seal struct {
	// Opened is when the store was opened last, according to its lock. Another time means that a
	// program without support for checksums has opened it since then, and nothing is known of the
	// files.
	Opened time.Time            `json:"opened"`
	Files  map[string]sealEntry `json:"files"` // by the path below the member's directory
}

type sealEntry struct {
	Bytes int64  `json:"bytes"`
	Sum   uint32 `json:"crc32c"`
}

// lockedAt returns when the store was opened last; zero: never.
func lockedAt(dir string) time.Time {
	info, err := os.Stat(filepath.Join(dir, lockFile))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// writeSeal stores the checksums of the files of a stopped member, whose lock is still held.
func writeSeal(dir string) error {
	s := seal{Opened: lockedAt(dir), Files: map[string]sealEntry{}}
	root := filepath.Join(dir, Subdir)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || strings.HasSuffix(path, ".tmp") {
			return err
		}
		info, err := entry.Info()
		if err != nil || info.Size() > maxSealBytes {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err == nil {
			s.Files[name], err = checksum(path)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("record the checksums of the store: %w", err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	text = fmt.Appendf(text, "\n%08x\n", crc32.Checksum(text, castagnoli))
	path := filepath.Join(dir, sealFile)
	if err := writeSynced(path+".tmp", text); err != nil {
		return errors.Join(fmt.Errorf("record the checksums of the store: %w", err), os.Remove(path+".tmp"))
	}
	return os.Rename(path+".tmp", path)
}

// readSeal returns the stored checksums of a store; nil without a valid one.
func readSeal(dir string) *seal {
	data, _ := os.ReadFile(filepath.Join(dir, sealFile)) // what cannot be read lacks its checksum
	text, sum, _ := strings.Cut(string(data), "\n")
	var s seal
	if strings.TrimSpace(sum) != fmt.Sprintf("%08x", crc32.Checksum([]byte(text), castagnoli)) ||
		json.Unmarshal([]byte(text), &s) != nil {
		return nil
	}
	if !s.Opened.Equal(lockedAt(dir)) {
		return nil
	}
	return &s
}

// verify compares the files of a member, whose lock is held, with the stored checksums and removes those. A file
// that does not match stays, so that the next start returns the same error.
func (s *seal) verify(dir string) error {
	if s != nil {
		if err := os.Chtimes(filepath.Join(dir, lockFile), s.Opened, s.Opened); err != nil {
			return err
		}
		for name, want := range s.Files {
			path := filepath.Join(dir, Subdir, name)
			got, err := checksum(path)
			switch {
			case err != nil:
				return &DamagedError{path, err}
			case got.Bytes != want.Bytes:
				return &DamagedError{path, fmt.Errorf("the file had %d bytes when the store was stopped", want.Bytes)}
			case got.Sum != want.Sum:
				return &DamagedError{path, errors.New("the file has changed since the store was stopped")}
			}
		}
	}
	if err := os.Remove(filepath.Join(dir, sealFile)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return syncDirs(dir)
}

// checksum reads a whole file.
func checksum(path string) (sealEntry, error) {
	file, err := os.Open(path)
	if err != nil {
		return sealEntry{}, err
	}
	defer func() { _ = file.Close() }()
	sum := crc32.New(castagnoli)
	n, err := io.CopyBuffer(struct{ io.Writer }{sum}, struct{ io.Reader }{file}, make([]byte, 1<<20))
	return sealEntry{n, sum.Sum32()}, err
}
