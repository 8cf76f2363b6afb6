package files

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

func open(t testing.TB, dir string, o Options) *Store {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	o.Root = root
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func put(s *Store, name, text string) error {
	_, err := s.StoreFile(Upload{Name: name, Body: strings.NewReader(text), Size: -1})
	return err
}

func get(s *Store, name string) (string, error) {
	f, err := s.OpenFile(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	raw, err := io.ReadAll(f)
	return string(raw), err
}

func TestPutAndGet(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	sum := sha256.Sum256([]byte("text"))
	hexed := hex.EncodeToString(sum[:])
	for _, want := range []string{"", hexed, strings.ToUpper(hexed)} {
		r, err := s.StoreFile(Upload{Name: "a b/ü,+@=~ (1).txt", Body: strings.NewReader("text"), Size: 4, Sum: want})
		if err != nil || r.SHA256 != hexed || r.Size != 4 || r.Name != "a b/ü,+@=~ (1).txt" {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if got, err := get(s, "a b/ü,+@=~ (1).txt"); got != "text" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if err := put(s, "a b/ü,+@=~ (1).txt", "other"); err != nil {
		t.Error(err)
	}
	if got, _ := get(s, "a b/ü,+@=~ (1).txt"); got != "other" {
		t.Errorf("%q", got)
	}
	if s.otherFiles != (areaUsage{1, 5}) {
		t.Errorf("counted %+v", s.otherFiles)
	}
	for _, bad := range []string{"x", hexed[1:], strings.Repeat("0", 64)} {
		_, err := s.StoreFile(Upload{Name: "bad", Body: strings.NewReader("text"), Sum: bad})
		var e *farm.Error
		if !errors.As(err, &e) || e.Code != farm.CodeInvalid || e.Field != "sha256" {
			t.Errorf("sum %s: %v", bad, err)
		}
	}
	if list, err := s.List(""); err != nil || len(list) != 1 || !list[0].Dir || list[0].Name != "a b" ||
		list[0].Size != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err := s.List("/a b/"); err != nil || len(list) != 1 || list[0].Dir || list[0].Size != 5 ||
		list[0].Modified.IsZero() {
		t.Errorf("%+v, %v", list, err)
	}
	if err := s.Remove("a b"); farm.CodeOf(err) != farm.CodeRefused {
		t.Errorf("removal of a directory that is not empty: %v", err)
	}
	if err := s.Remove("a b/ü,+@=~ (1).txt"); err != nil {
		t.Error(err)
	}
	if list, err := s.List(""); err != nil || len(list) != 0 || list == nil || s.otherFiles != (areaUsage{}) {
		t.Errorf("%+v, %v, %+v", list, err, s.otherFiles)
	}
	for _, name := range []string{"nothing", "a/b", "a b"} {
		for _, err := range []error{s.Remove(name), second(s.OpenFile(name)), second(s.List(name))} {
			if farm.CodeOf(err) != farm.CodeNotFound {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestHostileNames(t *testing.T) {
	base := t.TempDir()
	dir, outside := base+"/files", base+"/outside"
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Mkdir(outside, 0o755),
		os.WriteFile(outside+"/secret", []byte("secret"), 0o600),
		os.Symlink(outside, dir+"/out"), os.Symlink("there", dir+"/in"), os.Mkdir(dir+"/there", 0o755),
		os.WriteFile(dir+"/there/f", []byte("f"), 0o600),
		os.Symlink("there/f", dir+"/file"), syscall.Mkfifo(dir+"/pipe", 0o600)); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, Options{})
	for _, name := range []string{
		"", ".", "..", "../outside/secret", "a/../../outside/secret", "/etc/passwd", "a//b", "a/", ".hidden",
		"a/.upload-x", `a\b`, "a\x00b", "a\nb", "\xff",
		strings.Repeat("a", 256), strings.Repeat("a/", 16) + "a", strings.Repeat(strings.Repeat("a", 200)+"/", 6) + "a",
		"central-logs", "central-logs/node/x.log", "Central-Logs/event/event.log", "logs", "LOGS", "out/new", "in/new",
	} {
		if err := put(s, name, "x"); farm.CodeOf(err) != farm.CodeInvalid &&
			!strings.Contains(fmt.Sprint(err), "escapes") {
			t.Errorf("put %q: %v", name, err)
		}
		if err := second(s.OpenFile(name)); farm.CodeOf(err) != farm.CodeNotFound {
			t.Errorf("get %q: %v", name, err)
		}
	}
	for _, name := range []string{"out/secret", "in/f", "file", "pipe"} {
		if err := second(s.OpenFile(name)); farm.CodeOf(err) != farm.CodeNotFound {
			t.Errorf("get %q: %v", name, err)
		}
		if err := s.Remove(name); farm.CodeOf(err) != farm.CodeNotFound {
			t.Errorf("remove %q: %v", name, err)
		}
	}
	if list, err := s.List(""); err != nil || len(list) != 1 || list[0].Name != "there" {
		t.Errorf("list: %+v, %v", list, err)
	}
	if err := second(s.List("in")); farm.CodeOf(err) != farm.CodeNotFound {
		t.Errorf("list of a link: %v", err)
	}
	left, _ := filepath.Glob(dir + "/*/.*")
	top, _ := filepath.Glob(dir + "/.u*")
	secret, err := os.ReadFile(outside + "/secret")
	if err != nil || string(secret) != "secret" || len(left)+len(top) > 0 {
		t.Errorf("%q, %v; left are %v %v", secret, err, left, top)
	}
	if err := put(s, "there", "x"); farm.CodeOf(err) != farm.CodeInvalid {
		t.Errorf("a file in the place of a directory: %v", err)
	}
	if err := put(s, "there/f/g", "x"); farm.CodeOf(err) != farm.CodeInvalid {
		t.Errorf("a file below a file: %v", err)
	}
}

// broken is an upload that breaks off.
type broken struct{ io.Reader }

func (b broken) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func TestCutUpload(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	if err := put(s, "d/f", "old"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.StoreFile(Upload{Name: "d/f", Body: broken{strings.NewReader("new")}}); !errors.Is(err,
		io.ErrUnexpectedEOF) {
		t.Errorf("%v", err)
	}
	if got, _ := get(s, "d/f"); got != "old" {
		t.Errorf("%q", got)
	}
	if left, _ := filepath.Glob(dir + "/d/.*"); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
	if err := os.WriteFile(dir+"/d/"+tempPrefix+"X", []byte("of a killed registry"), 0o600); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	s = open(t, dir, Options{})
	if left, _ := filepath.Glob(dir + "/d/.*"); len(left) > 0 || s.otherFiles != (areaUsage{1, 3}) {
		t.Errorf("after a restart: %v, %+v", left, s.otherFiles)
	}
}

// TestNothingIsLeftOfWhatFails: directories are not counted, so no empty one may stay.
func TestNothingIsLeftOfWhatFails(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	for _, u := range []Upload{
		{Name: "a/b/c", Body: strings.NewReader("x"), Sum: strings.Repeat("0", 64)},
		{Name: "d/e/f", Body: broken{strings.NewReader("x")}},
		{Name: "logs/vm/x.log", Body: broken{strings.NewReader("x")}},
	} {
		if _, err := s.StoreFile(u); err == nil {
			t.Errorf("%s was taken", u.Name)
		}
	}
	if err := put(s, "g/h/i", "x"); err != nil {
		t.Error(err)
	}
	if err := s.Remove("g/h/i"); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != FailureLogsDir || s.otherFiles != (areaUsage{}) ||
		s.failureLogs != (areaUsage{}) {
		t.Errorf("left are %v, %v; %+v, %+v", left, err, s.otherFiles, s.failureLogs)
	}
}

// slow is an upload whose text is read only after a value on more.
type slow struct {
	text string
	more chan struct{}
}

func (s *slow) Read(p []byte) (int, error) {
	<-s.more
	n := copy(p, s.text)
	s.text = s.text[n:]
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// TestConcurrentUploadsShareTheSpace, announced or not: running uploads count before they are files.
func TestConcurrentUploadsShareTheSpace(t *testing.T) {
	for _, size := range []int64{6, -1} {
		s := open(t, t.TempDir(), Options{MaxBytes: 10})
		errs, more := make(chan error), make(chan struct{})
		for i := range 5 {
			go func() {
				_, err := s.StoreFile(Upload{Name: fmt.Sprint("f", i), Body: &slow{"123456", more}, Size: size})
				errs <- err
			}()
		}
		var said []error
		for len(said) < 5 {
			select {
			case more <- struct{}{}:
			case err := <-errs:
				said = append(said, err)
			}
		}
		taken := 0
		for _, err := range said {
			if err == nil {
				taken++
			} else if farm.CodeOf(err) != farm.CodeUnavailable {
				t.Error(err)
			}
		}
		if taken > 1 || taken == 0 && size > 0 || s.otherFiles.bytes != int64(6*taken) || s.otherFiles.files != taken {
			t.Errorf("announced %d: %d were taken, %+v", size, taken, s.otherFiles)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestBounds(t *testing.T) {
	dir := t.TempDir()
	full, free := false, int64(1<<40)
	s := open(t, dir, Options{MaxBytes: 10, MaxLogsBytes: 100, Full: func() bool {
		return full
	}, Free: func() (int64, int64, error) { return free, 1 << 40, nil }})
	if _, err := s.StoreFile(Upload{Name: "a", Body: zeros{}, Size: MaxFileBytes +
		1}); farm.CodeOf(err) != farm.CodeTooLarge {
		t.Errorf("too large: %v", err)
	}
	if _, err := s.StoreFile(Upload{Name: "logs/vm/x", Body: zeros{}, Size: MaxLogBytes +
		1}); farm.CodeOf(err) != farm.CodeTooLarge {
		t.Errorf("too large for a log: %v", err)
	}
	if err := put(s, "a", "12345678"); err != nil {
		t.Error(err)
	}
	for _, size := range []int64{3, -1} {
		_, err := s.StoreFile(Upload{Name: "b", Body: strings.NewReader("123"), Size: size})
		if farm.CodeOf(err) != farm.CodeUnavailable {
			t.Errorf("too many bytes, announced %d: %v", size, err)
		}
	}
	if err := put(s, "logs/vm/x.log", strings.Repeat("x", 50)); err != nil {
		t.Errorf("a log beside files that are full: %v", err)
	}
	free = minFreeBytes + 1
	if _, err := s.StoreFile(Upload{Name: "b", Body: strings.NewReader("1"), Size: 1}); err != nil {
		t.Errorf("just enough room: %v", err)
	}
	_, err := s.StoreFile(Upload{Name: "b", Body: strings.NewReader("12"), Size: 2})
	if farm.CodeOf(err) != farm.CodeUnavailable {
		t.Errorf("a byte too much: %v", err)
	}
	free = minFreeBytes - 1
	if err := put(s, "b", "1"); farm.CodeOf(err) != farm.CodeUnavailable {
		t.Errorf("no room: %v", err)
	}
	free, full = 1<<40, true
	if err := put(s, "b", "1"); farm.CodeOf(err) != farm.CodeUnavailable {
		t.Errorf("reserve in use: %v", err)
	}
	if left, _ := filepath.Glob(dir + "/.*"); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
	if s.otherFiles != (areaUsage{2, 9}) || s.failureLogs != (areaUsage{1, 50}) {
		t.Errorf("what was refused is counted: %+v, %+v", s.otherFiles, s.failureLogs)
	}
}

// TestLogsOfOneUploader: an uploader over its share of the logs loses its own first, however many names and
// directories it uses, and cannot occupy the capacity of others with uploads that do not end.
func TestLogsOfOneUploader(t *testing.T) {
	const kept = 16 << 10
	for name, hostile := range map[string]struct {
		files, size int
		file        string
	}{
		"one instance":   {100, 512, "logs/own/%d.log"},
		"many instances": {100, 512, "logs/own-%d/x.log"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, now := t.TempDir(), time.Now()
			s := open(t, dir,
				Options{MaxLogsBytes: kept, Now: func() time.Time { return now }, Sync: func(*os.File) error {
					return nil
				}})
			upload := func(caller, name string, size int, age time.Duration) {
				_, err := s.StoreFile(Upload{
					Name: name, Body: strings.NewReader(strings.Repeat("x", size)),
					Size: int64(size), Caller: caller,
				})
				if err != nil {
					t.Fatal(err)
				}
				at := now.Add(-age)
				if err := os.Chtimes(filepath.Join(dir, name), at, at); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 8 {
				upload(fmt.Sprint("node ", i), fmt.Sprintf("logs/vm-%d/x.log", i), kept/logShares, time.Hour)
			}
			upload("", "logs/older/x.log", kept/logShares, 2*time.Hour) // as of before a restart
			for i := range hostile.files {
				upload("node h", fmt.Sprintf(hostile.file, i), hostile.size, time.Minute)
			}
			for _, dir := range []string{"vm-0", "vm-7", "older"} {
				if _, err := get(s, "logs/"+dir+"/x.log"); err != nil {
					t.Errorf("%s: %v", dir, err)
				}
			}
			if s.failureLogs.bytes > kept || s.failureLogs.files > maxFiles ||
				len(s.uploaders) != s.failureLogs.files-1 ||
				len(s.uploadingBytes) != 0 {
				t.Errorf("%+v, %d uploaders, %v", s.failureLogs, len(s.uploaders), s.uploadingBytes)
			}
		})
	}
}

// TestManySmallLogs: a share is one of files, too.
func TestManySmallLogs(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	all := make([]logFile, maxFiles/logShares+100)
	for i := range all {
		all[i].name = fmt.Sprint("logs/own-", i, "/x.log")
		s.uploaders[all[i].name] = "node h"
	}
	all[50].name = "logs/vm/x.log" // of another one
	s.computeOverShare(all)
	for i, f := range all {
		if over := i < 100 && i != 50; over != (f.overShare > 0) || i > 0 && i != 50 && f.overShare > all[0].overShare {
			t.Fatalf("file %d is over by %g", i, f.overShare)
		}
	}
}

// TestUploadsOfOneCaller: running uploads of logs count for their caller, which may use a quarter.
func TestUploadsOfOneCaller(t *testing.T) {
	s := open(t, t.TempDir(), Options{MaxLogsBytes: 8 * MaxLogBytes})
	var claims []*reservation
	for _, by := range []struct{ caller, says string }{
		{"node h", ""},
		{"node h", ""},
		{
			"node h",
			"You are uploading 134217728 bytes of logs of failed VMs; one caller may upload 134217728 at a time: " +
				"a quarter of the setting SVC_MAX_LOG_SIZE (536870912)",
		},
		{"node a", ""},
	} {
		c, err := s.reserve(Upload{Name: "logs/own/x.log", Caller: by.caller}, MaxLogBytes)
		switch {
		case by.says == "" && err == nil:
			claims = append(claims, c)
		case by.says == "" || farm.CodeOf(err) != farm.CodeBusy || err.Error() != by.says:
			t.Errorf("%s: %v, want %q", by.caller, err, by.says)
		}
	}
	for _, c := range claims {
		s.cancelUpload(c, "logs/own/"+tempPrefix+"x")
	}
	if s.failureLogs != (areaUsage{}) || len(s.uploadingBytes) != 0 {
		t.Errorf("%+v, %v", s.failureLogs, s.uploadingBytes)
	}
}

func TestLogsGo(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	s := open(t, dir, Options{MaxLogsBytes: 80, LogRetention: time.Hour, Now: func() time.Time { return now }})
	for i := range 20 {
		name := fmt.Sprintf("logs/vm%d/x.log", i)
		if err := put(s, name, "ten bytes."); err != nil {
			t.Fatal(err)
		}
		at := now.Add(time.Duration(i-20) * time.Minute)
		if err := os.Chtimes(filepath.Join(dir, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	list, err := s.List("logs")
	if err != nil || len(list) < 7 || len(list) > 8 || s.failureLogs.bytes != int64(10*len(list)) {
		t.Errorf("%d logs, %v, %+v", len(list), err, s.failureLogs)
	}
	if _, err := get(s, "logs/vm19/x.log"); err != nil {
		t.Errorf("the newest: %v", err)
	}
	now = now.Add(58 * time.Minute) // two of 20 and 19 minutes ... of 3 minutes are younger than an hour
	s.PruneLogs()
	if list, _ := s.List("logs"); len(list) != 2 || s.failureLogs != (areaUsage{2, 20}) {
		t.Errorf("%+v, %+v", list, s.failureLogs)
	}
	if err := put(s, "keep", "x"); err != nil {
		t.Fatal(err)
	}
	now = now.Add(10 * time.Hour)
	s.PruneLogs()
	if list, _ := s.List("logs"); len(list) != 0 {
		t.Errorf("%+v", list)
	}
	if _, err := get(s, "keep"); err != nil {
		t.Errorf("what is no log: %v", err)
	}
}

func TestConcurrentUploads(t *testing.T) {
	s := open(t, t.TempDir(), Options{MaxLogsBytes: 2000})
	var work sync.WaitGroup
	for w := range 4 {
		work.Go(func() {
			for i := range 25 {
				name := fmt.Sprintf("logs/vm%d/%d", i%5, i)
				if err := put(s, name, strings.Repeat(fmt.Sprint(w), 100)); err != nil {
					t.Error(err)
				}
				if text, err := get(s, name); err == nil && (len(text) != 100 || strings.Trim(text, text[:1]) != "") {
					t.Errorf("%q", text)
				}
				_ = s.Remove(fmt.Sprintf("logs/vm%d/%d", w, i))
			}
		})
	}
	work.Wait()
	_ = s.Close()
	counted := s.failureLogs
	again := open(t, s.opts.Root.Name(), Options{})
	if again.failureLogs != counted {
		t.Errorf("counted %+v, there is %+v", counted, again.failureLogs)
	}
}

// FuzzNames: a file of any name is there under that name, or refused with a reason, and nothing is ever outside.
func FuzzNames(f *testing.F) {
	for _, name := range []string{
		"a/b.log", "../x", "logs/vm/x", "logs", "central-logs/x", "a/../../x", "\xff",
		strings.Repeat("a/", 20), "ü/\u202e.log", "C:\\x",
	} {
		f.Add(name)
	}
	base := f.TempDir()
	if err := os.Mkdir(base+"/files", 0o755); err != nil {
		f.Fatal(err)
	}
	s := open(f, base+"/files", Options{})
	f.Fuzz(func(t *testing.T, name string) {
		err := put(s, name, "x")
		if beside, _ := os.ReadDir(base); len(beside) != 1 {
			t.Fatalf("%q makes %v", name, beside)
		}
		if code := farm.CodeOf(err); err != nil && code != farm.CodeInvalid {
			t.Fatalf("%q: %v", name, err)
		}
		if err == nil {
			if text, err := get(s, name); text != "x" || err != nil || s.Remove(name) != nil {
				t.Fatalf("%q: %q, %v", name, text, err)
			}
		}
		if s.otherFiles != (areaUsage{}) || s.failureLogs != (areaUsage{}) {
			t.Fatalf("%q: %+v, %+v", name, s.otherFiles, s.failureLogs)
		}
	})
}
