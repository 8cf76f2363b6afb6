package update

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var day = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

// database writes one of a date, whose records distinguish it from others.
func database(t testing.TB, path string, built time.Time) {
	t.Helper()
	f, err := os.Create(path)
	check(t, err)
	defer f.Close()
	w, err := vulndb.NewWriter(f, built)
	check(t, err)
	rng := rand.New(rand.NewPCG(1, 2)) // so that it does not compress to nothing
	for i := range 500 {
		check(t, w.Vulnerability(vulndb.Vulnerability{
			ID: fmt.Sprintf("CVE-2020-%05d", i), URL: fmt.Sprintf("%s/%x", built.Format(time.RFC3339), rng.Uint64()),
		}))
	}
	check(t, w.Close(nil))
}

// site is a directory that a server serves, with a database and its listing.
type site struct {
	folder string
	server *httptest.Server

	mu       sync.Mutex // guards the fields below
	requests []string   // method, path, range and response of each
	change   func(http.ResponseWriter, *http.Request) bool
}

func newSite(t testing.TB, built time.Time, key ed25519.PrivateKey) *site {
	t.Helper()
	s := &site{folder: t.TempDir()}
	s.publish(t, built, key)
	s.server = httptest.NewServer(s)
	t.Cleanup(s.server.Close)
	return s
}

func (s *site) publish(t testing.TB, built time.Time, key ed25519.PrivateKey) Listing {
	t.Helper()
	file := filepath.Join(s.folder, "vuln.db")
	database(t, file, built)
	l, err := WriteListing(t.Context(),
		ListingOptions{Database: file, Target: filepath.Join(s.folder, "latest.json"), Key: key})
	check(t, err)
	check(t, os.Chtimes(filepath.Join(s.folder, "latest.json"), built, built))
	return l
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests,
		strings.TrimSpace(r.URL.Path+" "+r.Header.Get("Range")+" "+r.Header.Get("If-Modified-Since")))
	change := s.change
	s.mu.Unlock()
	if change != nil && change(w, r) {
		return
	}
	http.ServeFile(w, r, filepath.Join(s.folder, filepath.Base(r.URL.Path)))
}

func (s *site) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.requests
	s.requests = nil
	return list
}

func (s *site) options(t testing.TB) Options {
	return Options{Target: filepath.Join(t.TempDir(), "db", "vuln.db"), Listing: s.server.URL + "/latest.json"}
}

func TestUpdate(t *testing.T) {
	s := newSite(t, day, nil)
	o := s.options(t)
	var last int64
	o.Progress = func(done, _ int64) { last = done }
	st, err := Update(t.Context(), o)
	check(t, err)
	if st.Outcome != Updated || !st.Present || !st.Info.Built.Equal(day) || last != st.Info.Size ||
		st.CheckedAt.IsZero() {
		t.Errorf("first: %+v", st)
	}
	s.asked()
	st, err = Update(t.Context(), o)
	check(t, err)
	if asked := s.asked(); st.Outcome != Current || len(asked) != 1 || !strings.Contains(asked[0], "GMT") {
		t.Errorf("again: %+v, asked %q", st, asked)
	}
	o.CheckInterval = time.Hour
	if st, err = Update(t.Context(), o); err != nil || st.Outcome != NotChecked || len(s.asked()) != 0 {
		t.Errorf("a moment later: %+v, %v", st, err)
	}
	o.CheckInterval = 0
	s.publish(t, day.Add(24*time.Hour), nil)
	st, err = Update(t.Context(), o)
	check(t, err)
	if st.Outcome != Updated || !st.Info.Built.Equal(day.Add(24*time.Hour)) {
		t.Errorf("next day: %+v", st)
	}
	s.publish(t, day, nil)
	if st, err = Update(t.Context(), o); err != nil || st.Outcome != Current ||
		!st.Info.Built.Equal(day.Add(24*time.Hour)) {
		t.Errorf("an older one: %+v, %v", st, err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(o.Target), "*"))
	if err != nil || len(left) != 3 { // database, state, lock
		t.Errorf("left are %q, %v", left, err)
	}
}

// TestReplacedHere: the server's validators for its database do not apply to one that was built or
// restored in its place.
func TestReplacedHere(t *testing.T) {
	s := newSite(t, day, nil)
	o := s.options(t)
	o.CheckInterval = time.Hour
	fetched := func(want time.Time) {
		t.Helper()
		if st, err := Update(t.Context(), o); err != nil || st.Outcome != Updated || !st.Info.Built.Equal(want) {
			t.Errorf("got %+v, %v", st, err)
		}
	}
	fetched(day)
	restored, err := os.ReadFile(o.Target)
	check(t, err)
	database(t, o.Target, day.Add(-24*time.Hour))
	fetched(day)
	database(t, o.Target, day.Add(48*time.Hour))
	s.publish(t, day.Add(24*time.Hour), nil)
	if st, err := Update(t.Context(), o); err != nil || st.Outcome != Current ||
		!st.Info.Built.Equal(day.Add(48*time.Hour)) {
		t.Errorf("newer than what is listed: %+v, %v", st, err)
	}
	check(t, os.WriteFile(o.Target, restored, 0o600))
	o.CheckInterval = 0
	fetched(day.Add(24 * time.Hour))
}

func TestUpdateFromADirectory(t *testing.T) {
	s := newSite(t, day, nil)
	for _, listing := range []string{filepath.Join(s.folder, "latest.json"), "file://" + filepath.ToSlash(s.folder) +
		"/latest.json"} {
		o := s.options(t)
		o.Listing = listing
		st, err := Update(t.Context(), o)
		check(t, err)
		if st.Outcome != Updated {
			t.Errorf("%s: %+v", listing, st)
		}
	}
}

// TestFailureLeavesTheOldOne tries faults of servers.
func TestFailureLeavesTheOldOne(t *testing.T) {
	listing := func(edit func(string) string) func(*site) func(http.ResponseWriter, *http.Request) bool {
		return func(s *site) func(http.ResponseWriter, *http.Request) bool {
			return func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, ".json") {
					return false
				}
				b, _ := os.ReadFile(filepath.Join(s.folder, "latest.json"))
				_, _ = w.Write([]byte(edit(string(b))))
				return true
			}
		}
	}
	file := func(fn func(http.ResponseWriter, []byte)) func(*site) func(http.ResponseWriter, *http.Request) bool {
		return func(s *site) func(http.ResponseWriter, *http.Request) bool {
			return func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, ".db") {
					return false
				}
				b, _ := os.ReadFile(filepath.Join(s.folder, "vuln.db"))
				fn(w, b)
				return true
			}
		}
	}
	replace := func(from, to string) func(string) string {
		return func(s string) string { return strings.Replace(s, from, to, 1) }
	}
	for name, c := range map[string]struct {
		change func(*site) func(http.ResponseWriter, *http.Request) bool
		want   string
	}{
		"not there": {file(func(w http.ResponseWriter, _ []byte) { http.Error(w, "no", http.StatusNotFound) }), "404"},
		"other bytes": {file(func(w http.ResponseWriter, b []byte) {
			b[100] ^= 1
			_, _ = w.Write(b)
		}), "checksum"},
		"cut off": {file(func(w http.ResponseWriter, b []byte) { _, _ = w.Write(b[:len(b)/2]) }), "interrupted after"},
		"longer":  {file(func(w http.ResponseWriter, b []byte) { _, _ = w.Write(append(b, b...)) }), "has more than"},
		"silent": {
			file(func(_ http.ResponseWriter, _ []byte) { time.Sleep(400 * time.Millisecond) }),
			"nothing",
		},
		"no JSON":       {listing(func(string) string { return "<html>" }), "listing"},
		"newer schema":  {listing(replace(`"schema": 2`, `"schema": 9`)), "update this program"},
		"no checksum":   {listing(replace("sha256:", "md5:")), "sha256"},
		"too large":     {listing(replace(`"size": `, `"size": 9000000000`)), "bytes"},
		"wrong date":    {listing(replace("2026-08-02", "2026-08-03")), "its listing has the build time"},
		"endless":       {listing(func(string) string { return strings.Repeat("x", 2<<20) }), "too many bytes"},
		"other scheme":  {listing(replace(`"path": "`, `"path": "ftp://x/`)), "has no http or https URL"},
		"other machine": {listing(replace(`"path": "`, `"path": "http://127.0.0.1:1/`)), "127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, day, nil)
			o := s.options(t)
			if name == "silent" {
				o.StallTimeout = 200 * time.Millisecond
			}
			_, err := Update(t.Context(), o)
			check(t, err)
			before, err := os.ReadFile(o.Target)
			check(t, err)
			s.publish(t, day.Add(24*time.Hour), nil)
			s.mu.Lock()
			s.change = c.change(s)
			s.mu.Unlock()
			st, err := Update(t.Context(), o)
			if err == nil || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), "the database of 2026-08-01 stays in use") {
				t.Errorf("error is %v", err)
			}
			after, err := os.ReadFile(o.Target)
			check(t, err)
			if st.Outcome != Failed || !st.Present || !bytes.Equal(before, after) {
				t.Errorf("status is %+v", st)
			}
			s.mu.Lock()
			s.change = nil
			s.mu.Unlock()
			if st, err := Update(t.Context(), o); err != nil || st.Outcome != Updated {
				t.Errorf("when all is well again: %+v, %v", st, err)
			}
		})
	}
}

func TestUpdateContinuesWhereItWas(t *testing.T) {
	s := newSite(t, day, nil)
	o := s.options(t)
	s.change = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, ".db") {
			return false
		}
		b, _ := os.ReadFile(filepath.Join(s.folder, "vuln.db"))
		w.Header().Set("Content-Length", fmt.Sprint(len(b)))
		_, _ = w.Write(b[:4000])
		return true
	}
	if st, err := Update(t.Context(), o); err == nil || st.Present ||
		!strings.Contains(err.Error(), "no database exists yet") {
		t.Fatalf("cut off: %+v, %v", st, err)
	}
	s.mu.Lock()
	s.change = nil
	s.mu.Unlock()
	s.asked()
	_, err := Update(t.Context(), o)
	check(t, err)
	if asked := s.asked(); len(asked) != 2 || !strings.Contains(asked[1], "bytes=4000-") {
		t.Errorf("asked %q", asked)
	}
}

func TestSignatures(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	check(t, err)
	_, other, err := ed25519.GenerateKey(nil)
	check(t, err)
	for name, c := range map[string]struct {
		key  ed25519.PrivateKey
		want error
	}{"signed": {private, nil}, "unsigned": {nil, ErrInvalidSignature}, "by another": {other, ErrInvalidSignature}} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, day, c.key)
			o := s.options(t)
			o.Key = public
			st, err := Update(t.Context(), o)
			if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || st.Present != (c.want == nil) {
				t.Errorf("%+v, %v", st, err)
			}
		})
	}
	s := newSite(t, day, nil)
	o := s.options(t)
	_, err = Update(t.Context(), o)
	check(t, err)
	o.Key, o.CheckInterval = public, time.Hour
	if _, err := Update(t.Context(), o); !errors.Is(err, ErrInvalidSignature) {
		t.Errorf("a key that was set later: %v", err)
	}
	s.publish(t, day.AddDate(0, 0, -2), private)
	if st, err := Update(t.Context(), o); err != nil || st.Outcome != Updated {
		t.Errorf("signed later, and older: %+v, %v", st, err)
	}
	check(t, Verify(o.Target, public))
	check(t, os.WriteFile(o.Target+".state", []byte("{"), 0o600))
	if err := Verify(o.Target, public); !errors.Is(err, ErrInvalidSignature) {
		t.Errorf("nobody knows whether it is signed: %v", err)
	}
}

func TestTwoConcurrentUpdates(t *testing.T) {
	s := newSite(t, day, nil)
	o := s.options(t)
	o.CheckInterval = time.Hour
	var wg sync.WaitGroup
	outcomes := make([]Outcome, 4)
	for i := range outcomes {
		wg.Go(func() {
			st, err := Update(t.Context(), o)
			if err != nil {
				t.Error(err)
			}
			outcomes[i] = st.Outcome
		})
	}
	wg.Wait()
	if got := strings.Count(fmt.Sprint(outcomes), string(Updated)); got != 1 {
		t.Errorf("%d updates of %v", got, outcomes)
	}
	if asked := s.asked(); len(asked) != 2 {
		t.Errorf("asked %q", asked)
	}
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	s := newSite(t, day, nil)
	o := s.options(t)
	release, err := dbLocation(o.Target).acquireLock(t.Context(), 0)
	check(t, err)
	defer release()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Update(ctx, o); !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "another database update is running") {
		t.Errorf("got %v", err)
	}
}

func TestDamagedDatabaseIsReplaced(t *testing.T) {
	s := newSite(t, day, nil)
	o := s.options(t)
	_, err := Update(t.Context(), o)
	check(t, err)
	check(t, os.WriteFile(o.Target, []byte("rubbish"), 0o600))
	if st, err := CurrentStatus(o.Target); !errors.Is(err, vulndb.ErrNotDatabase) || st.Present {
		t.Errorf("look: %+v, %v", st, err)
	}
	if st, err := Update(t.Context(), o); err != nil || st.Outcome != Updated {
		t.Errorf("%+v, %v", st, err)
	}
}

func TestRedirectsStaySafe(t *testing.T) {
	plain := newSite(t, day, nil)
	safe := httptest.NewTLSServer(http.RedirectHandler(plain.server.URL+"/latest.json", http.StatusFound))
	defer safe.Close()
	o := plain.options(t)
	o.Listing = safe.URL + "/latest.json"
	o.Client = safe.Client()
	o.Client.CheckRedirect = refuseDowngrade
	if _, err := Update(t.Context(), o); err == nil || !strings.Contains(err.Error(), "leads from https") {
		t.Errorf("got %v", err)
	}
}

func TestExportAndImport(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	check(t, err)
	s := newSite(t, day, private)
	from := s.options(t)
	from.Key = public
	_, err = Update(t.Context(), from)
	check(t, err)
	var b bytes.Buffer
	l, err := Export(t.Context(), from.Target, &b)
	check(t, err)
	if l.Signature == "" {
		t.Error("the signature was lost")
	}
	bundle := filepath.Join(t.TempDir(), "bundle")
	check(t, os.WriteFile(bundle, b.Bytes(), 0o600))

	to := Options{Target: filepath.Join(t.TempDir(), "vuln.db"), Key: public}
	st, err := Import(t.Context(), bundle, to)
	check(t, err)
	if st.Outcome != Updated || !st.Info.Built.Equal(day) || st.Listing.Signature == "" {
		t.Errorf("imported: %+v", st)
	}
	if _, err := Import(t.Context(), from.Target, to); !errors.Is(err, ErrInvalidSignature) {
		t.Errorf("a bare database with a key: %v", err)
	}
	to.Key = nil
	if _, err := Import(t.Context(), from.Target, to); err != nil {
		t.Errorf("a bare database: %v", err)
	}
	empty := filepath.Join(t.TempDir(), "empty.db")
	f, err := os.Create(empty)
	check(t, err)
	defer f.Close()
	w, err := vulndb.NewWriter(f, day)
	check(t, err)
	check(t, w.Close(nil))
	if _, err := Import(t.Context(), empty, to); err == nil ||
		!strings.Contains(err.Error(), "the vulnerability database is empty") {
		t.Errorf("an empty database: %v", err)
	}
	before, err := os.ReadFile(to.Target)
	check(t, err)
	taken := 0 // zstd ignores some bits
	for i := 0; i < b.Len(); i += b.Len()/40 + 1 {
		bad := bytes.Clone(b.Bytes())
		bad[i] ^= 0x10
		check(t, os.WriteFile(bundle, bad, 0o600))
		to.Key = public
		if _, err := Import(t.Context(), bundle, to); err == nil {
			taken++
		}
		check(t, os.WriteFile(bundle, b.Bytes()[:i], 0o600))
		if _, err := Import(t.Context(), bundle, to); err == nil {
			t.Errorf("a bundle cut off at %d was taken", i)
		}
	}
	after, err := os.ReadFile(to.Target)
	check(t, err)
	if !bytes.Equal(before, after) || taken > 4 {
		t.Errorf("%d changed bundles of 40 were taken; the database is the same: %t", taken, bytes.Equal(before, after))
	}
}

func FuzzListing(f *testing.F) {
	f.Add(
		[]byte(
			`{"schema":1,"built":"2026-08-01T00:00:00Z","path":"x","checksum":"sha256:0000000000000000000000000000000000000000000000000000000000000000","size":5}`))
	f.Add([]byte(`{`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if l, err := ParseListing(b, 1<<20); err == nil && (l.Size <= 0 || l.Size > 1<<20 || l.Path == "") {
			t.Errorf("%+v was taken", l)
		}
	})
}

// TestLimits: an update does not wait indefinitely for a server that always sends a little, or for
// another update; received data is kept.
func TestLimits(t *testing.T) {
	s := newSite(t, day, nil)
	trickle := make(chan struct{})
	t.Cleanup(func() { close(trickle) })
	s.change = func(w http.ResponseWriter, r *http.Request) bool {
		if filepath.Base(r.URL.Path) != "vuln.db" {
			return false
		}
		b, err := os.ReadFile(filepath.Join(s.folder, "vuln.db"))
		if err != nil {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(b)))
		_, _ = w.Write(b[:1000])
		w.(http.Flusher).Flush()
		<-trickle
		return true
	}
	o := s.options(t)
	o.Timeout = 300 * time.Millisecond
	st, err := Update(t.Context(), o)
	if st.Outcome != Failed || err == nil ||
		!strings.Contains(err.Error(), "the update took longer than 300ms; no database exists yet") {
		t.Errorf("trickling: %+v, %v", st, err)
	}
	if part, err := os.Stat(dbLocation(o.Target).partPath()); err != nil || part.Size() != 1000 {
		t.Errorf("what came: %v, %v", part, err)
	}
	release, err := dbLocation(o.Target).acquireLock(t.Context(), 0)
	check(t, err)
	o.Timeout, o.LockTimeout = 0, 50*time.Millisecond
	if _, err = Update(t.Context(), o); err == nil ||
		!strings.Contains(err.Error(), "another database update is running: waited for 50ms") {
		t.Errorf("held: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("told to end"))
	if _, err = Update(ctx, o); err == nil || !strings.Contains(err.Error(), "told to end") {
		t.Errorf("ended: %v", err)
	}
	release()
}

// TestNothingIsLeft: a partial download is removed once it is obsolete, and so are the files of a
// killed import.
func TestNothingIsLeft(t *testing.T) {
	s := newSite(t, day, nil)
	o := s.options(t)
	_, err := Update(t.Context(), o)
	check(t, err)
	part, left := dbLocation(o.Target).partPath(),
		filepath.Join(filepath.Dir(o.Target), ".buildyard-0123456789abcdef.tmp")
	check(t, os.WriteFile(part, []byte("half"), 0o644))
	check(t, os.WriteFile(left, []byte("half"), 0o644))
	_, err = Update(t.Context(), o)
	check(t, err)
	check(t, os.WriteFile(part, []byte("half"), 0o644))
	_, err = Import(t.Context(), filepath.Join(s.folder, "vuln.db"), o)
	check(t, err)
	for _, name := range []string{part, left} {
		if _, err := os.Lstat(name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
}

// TestImportOfAPipe: an import needs no file name and no known size.
func TestImportOfAPipe(t *testing.T) {
	s := newSite(t, day, nil)
	o := s.options(t)
	fifo := filepath.Join(t.TempDir(), "pipe")
	check(t, syscall.Mkfifo(fifo, 0o600))
	b, err := os.ReadFile(filepath.Join(s.folder, "vuln.db"))
	check(t, err)
	go func() { _ = os.WriteFile(fifo, b, 0o600) }()
	st, err := Import(t.Context(), fifo, o)
	if err != nil || st.Outcome != Updated || !st.Info.Built.Equal(day) {
		t.Errorf("got %+v, %v", st, err)
	}
	if _, err := Import(t.Context(), "/dev/zero", o); err == nil ||
		!strings.Contains(err.Error(), "not a vulnerability database or an exported bundle") {
		t.Errorf("zeros: %v", err)
	}
}

// TestKilledBeforeItsStateIsWritten: a database that was put in place just before the end of the
// process has its origin: fetched or imported, signed or not.
func TestKilledBeforeItsStateIsWritten(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	check(t, err)
	var older bytes.Buffer
	s := newSite(t, day.AddDate(0, 0, -1), private)
	_, err = Export(t.Context(), filepath.Join(s.folder, "vuln.db"), &older)
	check(t, err)
	bundle := filepath.Join(t.TempDir(), "bundle")
	check(t, os.WriteFile(bundle, older.Bytes(), 0o600))
	for name, c := range map[string]struct {
		before ed25519.PrivateKey // that signs the database in use before
		after  ed25519.PrivateKey // that signs the next one
		bring  func(Options) (Status, error)
		want   error
	}{
		"update": {private, nil, func(o Options) (Status, error) {
			return Update(t.Context(), o)
		}, ErrInvalidSignature},
		"update to signed": {nil, private, func(o Options) (Status, error) { return Update(t.Context(), o) }, nil},
		"import": {private, nil, func(o Options) (Status, error) {
			return Import(t.Context(), bundle, o)
		}, ErrInvalidSignature},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, day, c.before)
			o := s.options(t)
			_, err := Update(t.Context(), o)
			check(t, err)
			was := dbLocation(o.Target).loadState()
			s.publish(t, day.AddDate(0, 0, 1), c.after)
			st, err := c.bring(o)
			check(t, err)
			killed := was
			killed.PartListing = st.Listing
			check(t, writeJSON(dbLocation(o.Target).statePath(), killed))

			is := func(when string) {
				t.Helper()
				if err := Verify(o.Target, public); !errors.Is(err, c.want) {
					t.Errorf("%s: %v", when, err)
				}
			}
			is("killed")
			s.change = func(w http.ResponseWriter, r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, ".db") {
					http.Error(w, "later", http.StatusServiceUnavailable)
					return true
				}
				return false
			}
			s.publish(t, day.AddDate(0, 0, 2), private)
			if _, err := Update(t.Context(), o); err == nil {
				t.Error("the server gave nothing")
			}
			is("when the next one was begun")
			s.change = nil
			if _, err := Update(t.Context(), o); err != nil {
				t.Error(err)
			}
			if err := Verify(o.Target, public); err != nil {
				t.Errorf("when the next one was fetched: %v", err)
			}
		})
	}
}

// TestTwoListingsOfOneTime: the checksum decides which of two databases of one time and size is in
// use.
func TestTwoListingsOfOneTime(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	check(t, err)
	s := newSite(t, day, nil)
	o := s.options(t)
	_, err = Update(t.Context(), o)
	check(t, err)
	p := dbLocation(o.Target)
	st := p.loadState()
	st.PartListing = st.Listing
	st.PartListing.Checksum = "sha256:" + strings.Repeat("0", 64)
	st.PartListing.Signature = base64.StdEncoding.EncodeToString(ed25519.Sign(private, st.PartListing.SignedText()))
	check(t, writeJSON(p.statePath(), st))
	if err := Verify(o.Target, public); !errors.Is(err, ErrInvalidSignature) {
		t.Errorf("that which is being fetched is taken for that in use: %v", err)
	}
	st.Listing, st.PartListing = st.PartListing, st.Listing
	check(t, writeJSON(p.statePath(), st))
	if err := Verify(o.Target, public); !errors.Is(err, ErrInvalidSignature) {
		t.Errorf("that before is taken for that which was fetched: %v", err)
	}
}

// TestWhoMayRead: a database gets the permissions of the one that it replaces.
func TestWhoMayRead(t *testing.T) {
	s := newSite(t, day, nil)
	o := s.options(t)
	for _, mode := range []os.FileMode{0o600, 0o644} {
		_, err := Update(t.Context(), o)
		check(t, err)
		check(t, os.Chmod(o.Target, mode))
		s.publish(t, day.Add(time.Duration(mode)*time.Hour), nil)
		_, err = Update(t.Context(), o)
		check(t, err)
		if st, err := os.Stat(o.Target); err != nil || st.Mode() != mode {
			t.Errorf("%v, %v instead of %v", st.Mode(), err, mode)
		}
	}
}
