package etcd

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

// syncsOf records the files and directories that a function syncs, below a directory. The n-th sync
// fails.
func syncsOf(t *testing.T, dir string, n int, do func() error) (synced []string, err error) {
	t.Helper()
	was := syncFile
	defer func() { syncFile = was }()
	calls := 0
	syncFile = func(f *os.File) error {
		if calls++; calls == n+1 {
			return errSync
		}
		name, err := filepath.Rel(dir, f.Name())
		synced = append(synced, name)
		return err
	}
	err = do()
	return synced, err
}

var errSync = errors.New("the disk failed")

// checkSyncs runs an operation one time for each file that it syncs, and makes that sync fail: the
// operation must return the error.
func checkSyncs(t *testing.T, dir string, do func() error, want ...string) {
	t.Helper()
	for n := range want {
		if got, err := syncsOf(t, dir, n, do); !errors.Is(err, errSync) {
			t.Errorf("the sync of %s failed (after %v): %v", want[n], got, err)
		}
	}
	if got, err := syncsOf(t, dir, -1, do); err != nil || !slices.Equal(got, want) {
		t.Errorf("synced: %v, %v, want %v", got, err, want)
	}
}

// TestWhatIsSynced: everything that has to survive a power failure is synced, in this order, and a
// failed sync is an error.
func TestWhatIsSynced(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string][]byte{"a/x": nil, "a/b/y": nil, "from/z": nil})
	checkSyncs(t, dir, func() error { return writeSynced(filepath.Join(dir, "file"), []byte("text")) }, "file")
	checkSyncs(t, dir, func() error { return syncDirs(filepath.Join(dir, "a")) }, "a", "a/b")
	checkSyncs(t, dir, func() error {
		err := renameDurably(filepath.Join(dir, "from"), filepath.Join(dir, "a", "to"))
		return errors.Join(err, os.Rename(filepath.Join(dir, "a", "to"), filepath.Join(dir, "from")))
	}, "a", "a/b", "a/to")
	checkSyncs(t, dir, func() error {
		writeFiles(t, dir, map[string][]byte{checksumsFile: nil})
		return (*storedChecksums)(nil).verify(dir)
	}, ".", "a", "a/b", "from")
	if data, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(data) != "text" {
		t.Errorf("%q, %v", data, err)
	}
	for name, err := range map[string]error{
		"a file in a file":  writeSynced(filepath.Join(dir, "file", "x"), nil),
		"no directory":      syncDirs(filepath.Join(dir, "none")),
		"nothing to rename": renameDurably(filepath.Join(dir, "none"), filepath.Join(dir, "to")),
	} {
		if _, ok := errors.AsType[*fs.PathError](err); !ok && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestResync: after a failure every file except its holes is written and synced again, and the file
// that marks the failure is removed last.
func TestResync(t *testing.T) {
	dir, old := t.TempDir(), time.Unix(1, 0)
	full, hole := filepath.Join(dir, MemberSubdir, "member", "full"), filepath.Join(dir, MemberSubdir, "member", "hole")
	long := []byte(strings.Repeat("content", 200_000)) // more than a block
	prepare := func() {
		writeFiles(t, dir, map[string][]byte{
			unsyncedFile: nil, filepath.Join(MemberSubdir, "member", "full"): long,
			filepath.Join(MemberSubdir, "member", "hole"): nil,
		})
		err := errors.Join(os.Truncate(hole, 3<<20), os.Chtimes(full, old, old), os.Chtimes(hole, old, old))
		_ = os.Symlink("nowhere", filepath.Join(dir, MemberSubdir, "link"))
		if err != nil {
			t.Fatal(err)
		}
	}
	mark := filepath.Join(dir, unsyncedFile)
	checkSyncs(t, dir, func() error {
		prepare()
		err := resyncFiles(dir)
		if _, there := os.Lstat(mark); err != nil && errors.Is(err, errSync) == (there != nil) &&
			!strings.Contains(err.Error(), "disk failed") {
			t.Errorf("the mark: %v, after %v", there, err)
		}
		return err
	}, "etcd/member/full", "etcd/member/hole", "etcd", "etcd/member", ".", "etcd", "etcd/member")
	if data, err := os.ReadFile(full); err != nil || string(data) != string(long) {
		t.Errorf("the content has changed: %d bytes, %v", len(data), err)
	}
	for path, written := range map[string]bool{full: true, hole: false} {
		if info, err := os.Stat(path); err != nil || info.ModTime().Equal(old) == written {
			t.Errorf("%s was written: %t, want %t (%v)", path, !written, written, err)
		}
	}
	if _, err := os.Lstat(mark); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the mark is still there: %v", err)
	}
	if got, err := syncsOf(t, dir, -1, func() error { return resyncFiles(dir) }); len(got) > 0 || err != nil {
		t.Errorf("without a mark: %v, %v", got, err)
	}
	// A marker file that cannot be removed, and files that cannot be read.
	writeFiles(t, dir, map[string][]byte{unsyncedFile + "/x": nil})
	if err := resyncFiles(dir); !strings.Contains(fmt.Sprint(err), "not empty") {
		t.Errorf("a mark that stays: %v", err)
	}
	empty := t.TempDir()
	writeFiles(t, empty, map[string][]byte{unsyncedFile: nil})
	if err := resyncFiles(empty); !errors.Is(err, fs.ErrNotExist) ||
		!strings.HasPrefix(err.Error(), "write the store files again and sync them: ") {
		t.Errorf("without files: %v", err)
	}
	if err := rewriteInPlace(filepath.Join(empty, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := os.Stat("/proc/self/mem"); err == nil {
		if err := rewriteInPlace("/proc/self/mem"); err == nil {
			t.Error("a file whose first block cannot be read was written again")
		}
	}
}

// sealedDir returns a directory with the files of a member and its seal.
func sealedDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	writeFiles(t, dir, map[string][]byte{
		lockFile: nil, MemberSubdir + "/member/a": []byte("first"), MemberSubdir + "/member/sub/b": []byte("second"),
		MemberSubdir + "/member/0.tmp": []byte("temporary"), MemberSubdir + "/member/big": make([]byte, 101),
		MemberSubdir + "/member/limit": make([]byte, 100),
	})
	if err := os.Symlink("nowhere", filepath.Join(dir, MemberSubdir, "link")); err != nil {
		t.Fatal(err)
	}
	limit := maxChecksummedBytes
	maxChecksummedBytes = 100
	defer func() { maxChecksummedBytes = limit }()
	if err := writeChecksums(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestSeal: a seal has the checksum of every permanent file, and the start that verifies it removes
// it.
func TestSeal(t *testing.T) {
	dir := sealedDir(t)
	s := readChecksums(dir)
	if s == nil {
		t.Fatal("the seal does not count")
	}
	want := map[string]fileChecksum{}
	for name, data := range map[string]string{
		"member/a": "first", "member/sub/b": "second", "member/limit": string(make([]byte, 100)),
	} {
		want[name] = fileChecksum{int64(len(data)), crc32.Checksum([]byte(data), castagnoli)}
	}
	if fmt.Sprint(s.Files) != fmt.Sprint(want) || !s.Opened.Equal(lastOpened(dir)) {
		t.Errorf("sealed: %v, want %v", s, want)
	}
	if _, err := os.Stat(filepath.Join(dir, checksumsFile+".tmp")); err == nil {
		t.Error("the file that became the seal is there, too")
	}
	later := s.Opened.Add(time.Hour) // taking the lock writes to it
	if err := os.Chtimes(filepath.Join(dir, lockFile), later, later); err != nil {
		t.Fatal(err)
	}
	if err := s.verify(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, checksumsFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the seal is still there: %v", err)
	}
	if at := lastOpened(dir); !at.Equal(s.Opened) {
		t.Errorf("the lock is of %s, and the seal of %s: an error would be said once only", at, s.Opened)
	}
	if err := s.verify(dir); err != nil {
		t.Errorf("without a seal: %v", err)
	}
	if !lastOpened(t.TempDir()).IsZero() {
		t.Error("a directory without a lock was opened")
	}
}

// TestBrokenSeal: a file that was changed, cut or removed is named, and the seal stays.
func TestBrokenSeal(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(path string) error
		want   string
	}{
		"changed": {func(path string) error {
			return os.WriteFile(path, []byte("First"), 0o600)
		}, "the file has changed since the store was stopped"},
		"longer": {func(path string) error {
			return os.WriteFile(path, []byte("first\x00"), 0o600)
		}, "the file had 5 bytes when the store was stopped"},
		"cut": {func(path string) error {
			return os.Truncate(path, 0)
		}, "the file had 5 bytes when the store was stopped"},
		"missing": {os.Remove, "open PATH: no such file or directory"},
		"another": {func(path string) error {
			return errors.Join(os.Remove(path), os.Mkdir(path, 0o700))
		}, "read PATH: is a directory"},
	} {
		dir := sealedDir(t)
		path := filepath.Join(dir, MemberSubdir, "member", "a")
		if err := tc.change(path); err != nil {
			t.Fatal(err)
		}
		for range 2 { // starts
			err := readChecksums(dir).verify(dir)
			if _, ok := errors.AsType[*DamagedError](err); !ok ||
				strings.ReplaceAll(err.Error(), path, "PATH") != "PATH is damaged: "+tc.want {
				t.Errorf("%s: %v, want %q", name, err, tc.want)
			}
		}
	}
}

// TestSealThatDoesNotCount: a seal that is damaged itself, or older than the last start, is
// ignored.
func TestSealThatDoesNotCount(t *testing.T) {
	for name, change := range map[string]func(dir, path string) error{
		"missing": func(_, path string) error { return os.Remove(path) },
		"damaged": func(_, path string) error {
			data, err := os.ReadFile(path)
			return errors.Join(err,
				os.WriteFile(path, []byte(strings.Replace(string(data), `"bytes":5`, `"bytes":6`, 1)), 0o600))
		},
		"no seal": func(dir, path string) error {
			text := fmt.Appendf(nil, `{"opened":%q,"files":7}`, lastOpened(dir).Format(time.RFC3339Nano))
			return os.WriteFile(path, fmt.Appendf(text, "\n%08x\n", crc32.Checksum(text, castagnoli)), 0o600)
		},
		"older": func(dir, _ string) error {
			return os.Chtimes(filepath.Join(dir, lockFile), time.Now(), time.Now().Add(time.Hour))
		},
	} {
		dir := sealedDir(t)
		if err := change(dir, filepath.Join(dir, checksumsFile)); err != nil {
			t.Fatal(err)
		}
		if s := readChecksums(dir); s != nil {
			t.Errorf("%s: it counts: %v", name, s)
		}
	}
}

// TestSealFails where a file cannot be written or read, with an error that names it.
func TestSealFails(t *testing.T) {
	dir := sealedDir(t)
	for _, name := range []string{checksumsFile, checksumsFile + ".tmp"} {
		_ = os.Remove(filepath.Join(dir, name))
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := writeChecksums(dir); err == nil {
			t.Errorf("a store was sealed in spite of the directory %s", name)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, checksumsFile+".tmp")); err == nil {
		t.Error("what could not be written is still there")
	}
	if err := writeChecksums(t.TempDir()); err == nil ||
		!strings.HasPrefix(err.Error(), "record the checksums of the store: ") {
		t.Errorf("a directory without a member: %v", err)
	}
	writeFiles(t, dir, map[string][]byte{checksumsFile + "/x": nil})
	if err := (*storedChecksums)(nil).verify(dir); err == nil {
		t.Error("a seal that cannot be removed is no error")
	}
	if err := os.Remove(filepath.Join(dir, lockFile)); err != nil {
		t.Fatal(err)
	}
	if err := (&storedChecksums{Opened: time.Now()}).verify(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a lock: %v", err)
	}
}

// memberFiles creates a member whose database has applied an entry, and whose log is as given.
func memberFiles(t *testing.T, applied uint64, log *logWriter) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "a [directory") // whose name is not a valid pattern
	writeFiles(t, dir, map[string][]byte{
		"member/snap/db": small(t, metaBucket,
			map[string]string{"consistent_index": revisionKey(0, applied, "")[revisionKeySize-numberSize:]}),
		"member/wal/" + logFile(0): log.data,
	})
	return dir
}

// TestCheckMember: files of a member that do not belong together are named.
func TestCheckMember(t *testing.T) {
	snapshot := func(index uint64) *logWriter { return logOf(4, 5, 6).add(walSnapshot, logNumbers(index, 1)) }
	saved := func(dir string, index, term uint64) {
		s := &raftpb.Snapshot{Data: []byte("x"), Metadata: &raftpb.SnapshotMetadata{
			Index: new(index), Term: new(term), ConfState: &raftpb.ConfState{},
		}}
		if err := snap.New(zap.NewNop(), filepath.Join(dir, "member", "snap")).SaveSnap(s); err != nil {
			t.Fatal(err)
		}
	}
	named := fmt.Sprintf("%016x-%016x.snap", 1, 5)
	logPath, dbPath, snapPath := "DIR/member/wal/"+logFile(0), "DIR/member/snap/db", "DIR/member/snap/"+named
	for name, tc := range map[string]struct {
		applied uint64
		log     *logWriter
		change  func(dir string)
		want    string
	}{
		"all of the log applied":  {applied: 6, log: snapshot(5)},
		"as much as the snapshot": {applied: 5, log: snapshot(5)},
		"more than the log has": {applied: 7, log: snapshot(5), want: logPath +
			" is damaged: the log ends with entry 6, but the database has applied entry 7"},
		"less than the snapshot": {
			applied: 4, log: snapshot(5), want: dbPath +
				" is damaged: the database has applied entry 4, but the log requires entry 5",
		},
		"a damaged log": {applied: 6, log: logOf(5, 7), want: logPath +
			" is damaged: entry 7 follows entry 5, want consecutive numbers (at byte 96)"},
		"a damaged database": {applied: 6, log: snapshot(5), change: func(dir string) {
			writeFiles(t, dir, map[string][]byte{"member/snap/db": []byte("x")})
		}, want: dbPath + " is damaged: the file is not an etcd database: it has no valid meta page"},
		"an empty database": {log: logOf(), change: func(dir string) {
			writeFiles(t, dir, map[string][]byte{"member/snap/db": nil})
		}},
		"no database": {log: logOf(), change: func(dir string) {
			_ = os.Remove(filepath.Join(dir, "member", "snap", "db"))
		}},
		"a file in place of a directory": {log: logOf(), change: func(dir string) {
			_ = os.RemoveAll(filepath.Join(dir, "member", "snap"))
			writeFiles(t, dir, map[string][]byte{"member/snap": nil})
		}, want: "database: open " + dbPath + ": not a directory"},
		"its snapshot": {applied: 6, log: snapshot(5), change: func(dir string) { saved(dir, 5, 1) }},
		"half a snapshot": {applied: 6, log: snapshot(5), change: func(dir string) {
			writeFiles(t, dir, map[string][]byte{"member/snap/" + named: nil})
		}, want: snapPath + " is damaged: snap: empty snapshot"},
		"a snapshot of another entry": {applied: 6, log: snapshot(5), change: func(dir string) {
			saved(dir, 4, 1)
			_ = os.Rename(filepath.Join(dir, "member/snap", fmt.Sprintf("%016x-%016x.snap", 1, 4)),
				filepath.Join(dir, "member/snap", named))
		}, want: snapPath + " is damaged: the snapshot is of entry 4 instead"},
		"a snapshot of another term": {applied: 6, log: snapshot(5), change: func(dir string) {
			saved(dir, 5, 2)
			_ = os.Rename(filepath.Join(dir, "member/snap", fmt.Sprintf("%016x-%016x.snap", 2, 5)),
				filepath.Join(dir, "member/snap", named))
		}, want: snapPath + " is damaged: the snapshot is of entry 5 instead"},
		"what a crash leaves": {applied: 6, log: snapshot(5), change: func(dir string) {
			writeFiles(t, dir, map[string][]byte{
				"member/snap/" + fmt.Sprintf("%016x-%016x.snap", 1, 6): []byte("half"),
				"member/snap/other.snap":                               []byte("x"),
			})
		}},
	} {
		dir := memberFiles(t, tc.applied, tc.log)
		if tc.change != nil {
			tc.change(dir)
		}
		got := ""
		if err := checkMember(dir); err != nil {
			got = strings.ReplaceAll(err.Error(), dir, "DIR")
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	for value, want := range map[string]uint64{
		"": 0, "1234567": 0, "\x00\x00\x00\x00\x00\x00\x01\x02": 258, "123456789": 0,
	} {
		if got := decodeUint64([]byte(value)); got != want {
			t.Errorf("the number %q is %d, want %d", value, got, want)
		}
	}
	if err := (&DamagedError{"file", fs.ErrInvalid}); !errors.Is(err, fs.ErrInvalid) {
		t.Error("the reason is lost")
	}
}

// TestFinishRestore: a completed restore is moved to its final name one time, with the former store
// next to it.
func TestFinishRestore(t *testing.T) {
	dir := t.TempDir()
	if aside, err := finishRestore(dir); aside != "" || err != nil {
		t.Errorf("nothing to do: %q, %v", aside, err)
	}
	writeFiles(t, dir, map[string][]byte{RestoredSubdir + "/new": nil})
	if aside, err := finishRestore(dir); aside != "" || err != nil {
		t.Errorf("without a former store: %q, %v", aside, err)
	}
	if _, err := os.Stat(filepath.Join(dir, MemberSubdir, "new")); err != nil {
		t.Error(err)
	}
	writeFiles(t, dir, map[string][]byte{RestoredSubdir + "/newer": nil})
	aside, err := finishRestore(dir)
	if err != nil || !strings.HasPrefix(aside, filepath.Join(dir, asideSubdir)) {
		t.Errorf("with a former store: %q, %v", aside, err)
	}
	for _, path := range []string{filepath.Join(aside, "new"), filepath.Join(dir, MemberSubdir, "newer")} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	writeFiles(t, dir, map[string][]byte{RestoredSubdir + "/newest": nil})
	for n := range 2 { // the first rename is not durable, and the second one is not
		if _, err := syncsOf(t, dir, n, func() error { _, err := finishRestore(dir); return err }); !errors.Is(err,
			errSync) {
			t.Errorf("%d syncs did not fail: %v", n, err)
		}
	}
}

// TestLockDir: the error names the process that holds the lock, and a released lock can be taken
// again.
func TestLockDir(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, lockFile)
	writeFiles(t, dir, map[string][]byte{lockFile: []byte("a longer text than a process id\n")})
	lock, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != fmt.Sprintln(os.Getpid()) {
		t.Errorf("the lock says %q, %v", text, err)
	}
	for text, holder := range map[string]string{"12\n": "12", "": "(unknown)"} {
		writeFiles(t, dir, map[string][]byte{lockFile: []byte(text)})
		if _, err := lockDir(dir); fmt.Sprint(err) != fmt.Sprintf("store directory %s is in use by process %s", dir,
			holder) {
			t.Errorf("in use: %v", err)
		}
	}
	if err := lock.release(); err != nil {
		t.Error(err)
	}
	if err := lock.release(); err == nil {
		t.Error("a lock was released twice")
	}
	lock, err = lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.release(); err != nil {
		t.Error(err)
	}
	if _, err := lockDir(path); err == nil || !strings.HasPrefix(err.Error(), "open lock file of the store: open ") {
		t.Errorf("no directory: %v", err)
	}
}
