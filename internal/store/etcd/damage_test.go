package etcd

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/buildyard/buildyard/internal/store"
)

// made creates a store of many records, some of them changed and deleted, with a snapshot in its
// log, and returns its directory and content. A store that was killed has no seal.
func made(t *testing.T, killed bool) (dir string, want map[string]string) {
	t.Helper()
	dir = t.TempDir()
	whole := logFileBytes
	logFileBytes = 1 << 20
	t.Cleanup(func() { logFileBytes = whole })
	b := open(t, dir)
	want = map[string]string{}
	const writers, keys = 8, 48 // each writes its own keys
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := w; n < snapshotCount+20; n += writers {
				key, value := fmt.Sprintf("/r/%d", n%keys), fmt.Sprintf("value %d", n)
				txn := store.Txn{Puts: []store.KV{{Key: key, Value: []byte(value)}}}
				if n%keys == 7 {
					txn = store.Txn{Deletes: []string{key}}
				}
				if _, err := b.Commit(t.Context(), txn); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for n := range snapshotCount + 20 {
		if want[fmt.Sprintf("/r/%d", n%keys)] = fmt.Sprintf("value %d", n); n%keys == 7 {
			delete(want, fmt.Sprintf("/r/%d", n%keys))
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if killed {
		if err := os.Remove(filepath.Join(dir, checksumsFile)); err != nil {
			t.Fatal(err)
		}
	}
	return dir, want
}

// copied copies a store's files; holes use no space.
func copied(t *testing.T, from string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || strings.HasSuffix(path, ".tmp") || entry.Name() == reserveFile {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, name)
		if entry.IsDir() {
			return os.MkdirAll(to, 0o700)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		used := len(data)
		for used > 0 && data[used-1] == 0 {
			used--
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return errors.Join(os.WriteFile(to, data[:used], 0o600), os.Truncate(to, info.Size()),
			os.Chtimes(to, info.ModTime(), info.ModTime()))
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// damageable returns the files of a member, and how many bytes of each are in use.
func damageable(t *testing.T, dir string) map[string]int {
	t.Helper()
	files := map[string]int{}
	for _, pattern := range []string{"wal/*.wal", "snap/db", "snap/*.snap"} {
		names, err := filepath.Glob(filepath.Join(dir, MemberSubdir, "member", filepath.FromSlash(pattern)))
		if err != nil || len(names) == 0 {
			t.Fatal(pattern, err)
		}
		for _, path := range names {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			used := len(data)
			for used > 0 && data[used-1] == 0 {
				used--
			}
			name, _ := filepath.Rel(dir, path)
			files[name] = used
		}
	}
	return files
}

// judgeDamage opens a damaged store: it fails with one line that names a file, or has all of its
// records.
func judgeDamage(t *testing.T, what, dir string, want map[string]string) (found bool) {
	t.Helper()
	b, err := StartEmbedded(t.Context(), EmbeddedOptions{Dir: dir})
	if err != nil {
		if _, ok := errors.AsType[*DamagedError](err); !ok || !strings.Contains(err.Error(), dir) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %q, want one line that names a damaged file", what, err)
		}
		return true
	}
	got := map[string]string{}
	_, err = b.List(t.Context(), "/r/", func(kvs []store.KV) error {
		for _, kv := range kvs {
			got[kv.Key] = string(kv.Value)
		}
		return nil
	})
	if err != nil || len(got) != len(want) {
		t.Errorf("%s was not noticed: %d records of %d, %v", what, len(got), len(want), err)
	}
	for key, value := range want {
		if got[key] != value {
			t.Errorf("%s was not noticed: %s is %q, it was %q", what, key, got[key], value)
			break
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	return false
}

// positions returns the bits or bytes to damage: random ones, all with BUILDYARD_TEST_ALL.
func positions(of, some int) (list []int) {
	if os.Getenv("BUILDYARD_TEST_ALL") != "" {
		for i := range of {
			list = append(list, i)
		}
		return list
	}
	for range min(some, of) {
		list = append(list, rand.IntN(of))
	}
	return list
}

// TestFlippedBits damages a store that was stopped, and one that was killed: each flipped bit is
// reported, or harmless.
func TestFlippedBits(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed=%t", killed), func(t *testing.T) {
			dir, want := made(t, killed)
			found, tried := 0, 0
			for name, used := range damageable(t, dir) {
				for _, bit := range positions(used*8, 2) {
					if killed && filepath.Base(name) == "db" { // only the form of its content can be checked
						bit = bit/(4096*8)*(4096*8) + bit%(pageHeaderSize*8)
					}
					damaged := copied(t, dir)
					flip(t, filepath.Join(damaged, name), bit)
					tried++
					if judgeDamage(t, fmt.Sprintf("bit %d of %s", bit, name), damaged, want) {
						found++
					} else if !killed {
						t.Errorf("bit %d of %s of a stopped store was not noticed", bit, name)
					}
				}
			}
			t.Logf("%d of %d flipped bits were noticed", found, tried)
		})
	}
}

func flip(t *testing.T, path string, bit int) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	one := make([]byte, 1)
	_, err = file.ReadAt(one, int64(bit/8))
	one[0] ^= 1 << (bit % 8)
	if err == nil {
		_, err = file.WriteAt(one, int64(bit/8))
	}
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestCutFiles: each file of a store is cut, or missing.
func TestCutFiles(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed=%t", killed), func(t *testing.T) {
			dir, want := made(t, killed)
			for name, used := range damageable(t, dir) {
				for _, at := range append(positions(used, 1), -1) {
					damaged := copied(t, dir)
					path := filepath.Join(damaged, name)
					err := os.Truncate(path, int64(max(at, 0)))
					if at < 0 {
						err = os.Remove(path)
					}
					if err != nil {
						t.Fatal(err)
					}
					if !judgeDamage(t, fmt.Sprintf("%s cut at %d", name, at), damaged, want) && !killed {
						t.Errorf("%s of a stopped store, cut at %d, was not noticed", name, at)
					}
				}
			}
		})
	}
}

// TestTornLog: a record that a crash left incomplete does not count as damage.
func TestTornLog(t *testing.T) {
	dir, want := made(t, true)
	logs, err := filepath.Glob(filepath.Join(dir, MemberSubdir, "member", "wal", "*.wal"))
	if err != nil || len(logs) != 1 {
		t.Fatal(logs, err)
	}
	used := damageable(t, dir)[filepath.Join(MemberSubdir, "member", "wal", filepath.Base(logs[0]))]
	end := (used + 7) / 8 * 8
	record := []byte{0x00, 0x08, 0, 0, 0, 0, 0, 0, 0x08, 2, 0x10, 99, 0x1a, 0xf0, 0x0f} // the begin of one of 2 KiB
	for _, n := range []int{1, frameHeaderSize, frameHeaderSize + 3, len(record)} {
		torn := copied(t, dir)
		file, err := os.OpenFile(filepath.Join(torn, MemberSubdir, "member", "wal", filepath.Base(logs[0])), os.O_RDWR,
			0)
		if err == nil {
			_, err = file.WriteAt(record[:n], int64(end))
			err = errors.Join(err, file.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		if judgeDamage(t, fmt.Sprintf("a record torn after %d bytes", n), torn, want) {
			_, err := StartEmbedded(t.Context(), EmbeddedOptions{Dir: torn})
			t.Errorf("a record torn after %d bytes: %v", n, err)
		}
	}
}

// TestSealOfAnotherBuild: a program without support for seals has opened the store since; the seal
// no longer counts.
func TestSealOfAnotherBuild(t *testing.T) {
	dir, want := made(t, false)
	old := copied(t, dir)
	seal, err := os.ReadFile(filepath.Join(old, checksumsFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := open(t, old).Close(); err != nil { // writes to every file, as that program does
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(old, checksumsFile), seal, 0o600); err != nil {
		t.Fatal(err)
	}
	lock, err := lockDir(old)
	if err == nil {
		err = lock.release()
	}
	if err != nil {
		t.Fatal(err)
	}
	if judgeDamage(t, "the seal of an earlier stop", old, want) {
		t.Error("a store is called damaged that another program has written to")
	}
}
