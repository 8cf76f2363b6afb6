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

// checksumsFile has the checksums of all files of a stopped member. etcd's database has none, so a
// changed record could not be distinguished from the right one otherwise. The next start verifies
// and removes it.
const checksumsFile = "sealed"

// maxChecksummedBytes is the size of the longest file that gets a checksum; of a longer one only the form is
// checked. Tests make it smaller.
var maxChecksummedBytes int64 = 1 << 30

// storedChecksums is the content of checksumsFile.
type storedChecksums struct {
	// Opened is when the store was opened last, according to its lock. Another time means that a
	// program without support for checksums has opened it since then, and nothing is known of the
	// files.
	Opened time.Time               `json:"opened"`
	Files  map[string]fileChecksum `json:"files"` // by the path below the member's directory
}

type fileChecksum struct {
	Bytes  int64  `json:"bytes"`
	CRC32C uint32 `json:"crc32c"`
}

// lastOpened returns when the store was opened last; zero: never.
func lastOpened(dir string) time.Time {
	info, err := os.Stat(filepath.Join(dir, lockFile))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// writeChecksums stores the checksums of the files of a stopped member, whose lock is still held.
func writeChecksums(dir string) error {
	s := storedChecksums{Opened: lastOpened(dir), Files: map[string]fileChecksum{}}
	root := filepath.Join(dir, MemberSubdir)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || strings.HasSuffix(path, ".tmp") {
			return err
		}
		info, err := entry.Info()
		if err != nil || info.Size() > maxChecksummedBytes {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err == nil {
			s.Files[name], err = checksumFile(path)
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
	path := filepath.Join(dir, checksumsFile)
	if err := writeSynced(path+".tmp", text); err != nil {
		return errors.Join(fmt.Errorf("record the checksums of the store: %w", err), os.Remove(path+".tmp"))
	}
	return os.Rename(path+".tmp", path)
}

// readChecksums returns the stored checksums of a store; nil without a valid one.
func readChecksums(dir string) *storedChecksums {
	data, _ := os.ReadFile(filepath.Join(dir, checksumsFile)) // what cannot be read lacks its checksum
	text, sum, _ := strings.Cut(string(data), "\n")
	var s storedChecksums
	if strings.TrimSpace(sum) != fmt.Sprintf("%08x", crc32.Checksum([]byte(text), castagnoli)) ||
		json.Unmarshal([]byte(text), &s) != nil {
		return nil
	}
	if !s.Opened.Equal(lastOpened(dir)) {
		return nil
	}
	return &s
}

// verify compares the files of a member, whose lock is held, with the stored checksums and removes those. A file
// that does not match stays, so that the next start returns the same error.
func (s *storedChecksums) verify(dir string) error {
	if s != nil {
		if err := os.Chtimes(filepath.Join(dir, lockFile), s.Opened, s.Opened); err != nil {
			return err
		}
		for name, want := range s.Files {
			path := filepath.Join(dir, MemberSubdir, name)
			got, err := checksumFile(path)
			switch {
			case err != nil:
				return &DamagedError{path, err}
			case got.Bytes != want.Bytes:
				return &DamagedError{path, fmt.Errorf("the file had %d bytes when the store was stopped", want.Bytes)}
			case got.CRC32C != want.CRC32C:
				return &DamagedError{path, errors.New("the file has changed since the store was stopped")}
			}
		}
	}
	if err := os.Remove(filepath.Join(dir, checksumsFile)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return syncDirs(dir)
}

// checksumFile reads a whole file.
func checksumFile(path string) (fileChecksum, error) {
	file, err := os.Open(path)
	if err != nil {
		return fileChecksum{}, err
	}
	defer func() { _ = file.Close() }()
	sum := crc32.New(castagnoli)
	n, err := io.CopyBuffer(struct{ io.Writer }{sum}, struct{ io.Reader }{file}, make([]byte, 1<<20))
	return fileChecksum{n, sum.Sum32()}, err
}
