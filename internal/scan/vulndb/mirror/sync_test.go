package mirror

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/mirror/upstreamtest"
)

func TestSync(t *testing.T) {
	m := newMirror(t)
	first := m.sync(t)
	for _, s := range Sources() {
		if !s.OnlyNamed {
			want(t, first, s.Name, Updated)
		}
	}
	if r := first["nvd"].State; len(r.Files) != 5 || r.Records() != 5 || !r.Files[0].Date.Equal(upstreamtest.Day) {
		t.Errorf("nvd has %d files, %d records: %+v", len(r.Files), r.Records(), r.Files[0])
	}
	if n := first["epss"].State.Records(); n != 2 {
		t.Errorf("epss has %d records", n)
	}
	m.Requests()
	again := m.sync(t)
	for name := range again {
		want(t, again, name, Current)
	}
	if asked := m.Requests(); upstreamtest.Count(asked, ".json.gz") != 0 || upstreamtest.Count(asked, "all.zip") != 0 ||
		upstreamtest.Count(asked, ".meta") != 5 {
		t.Errorf("without changes, requested were %q", asked)
	}
	db := m.database(t)
	if built := db.Info().Built; !built.Equal(m.now.Add(-time.Minute)) {
		t.Errorf("the database is of %s", built)
	}
	for _, name := range []string{
		"kev", "epss", "ghsa", "debian-tracker", "rubysec", "nvd", "alpine", "go", "rustsec", "suse", "homebrew",
		"almalinux", "debian", "pypa", "redhat", "rocky", "ubuntu",
	} {
		found := false
		for _, s := range db.Info().Sources {
			found = found || s.Name == name && s.Records > 0
		}
		if !found {
			t.Errorf("the database has nothing of %s: %+v", name, db.Info().Sources)
		}
	}
	if left, err := os.ReadDir(filepath.Join(m.options.Dir, partName)); err != nil || len(left) != 0 {
		t.Errorf("partial downloads are left: %v, %v", left, err)
	}
}

// TestUnchangedMirrorEqualDatabase: databases of the same content have the same bytes, whether it was collected in one
// run or in several.
func TestUnchangedMirrorEqualDatabase(t *testing.T) {
	a := newMirror(t)
	a.sync(t)
	b := newMirror(t)
	b.now = a.now.Add(-time.Minute)
	b.sync(t, "nvd", "osv/npm")
	b.now = a.now.Add(-time.Minute)
	b.sync(t)
	var sums []string
	for _, m := range []*mirrored{a, b} {
		s, err := Open(t.Context(), m.options.Dir)
		check(t, err)
		defer s.Close()
		list := s.Changed.String()
		for _, f := range s.Files {
			list += "\n" + strings.TrimPrefix(f, m.options.Dir)
		}
		sums = append(sums, list)
	}
	if sums[0] != sums[1] {
		t.Errorf("the mirrors differ:\n%s\n%s", sums[0], sums[1])
	}
}

func TestOneFailureDoesNotSpoilOthers(t *testing.T) {
	m := newMirror(t)
	m.sync(t, "kev", "epss")
	m.Set(upstreamtest.KEVPath, upstreamtest.KEV("CVE-2026-1000", "CVE-2026-1001"))
	m.Set(upstreamtest.EPSSPath, upstreamtest.EPSS("CVE-2026-1001"))
	m.Fail(upstreamtest.KEVPath, upstreamtest.Status(http.StatusNotFound))
	got := m.sync(t, "kev", "epss")
	wantFailed(t, got, "kev", "404")
	want(t, got, "epss", Updated)
	if s := got["kev"].State; s.Records() != 1 || s.Error == "" || !s.Failed.Equal(m.now) || s.Checked.Equal(m.now) {
		t.Errorf("the state of the failed source: %+v", s)
	}
	s, err := Open(t.Context(), m.options.Dir)
	check(t, err)
	if s.Close(); len(s.Files) != 2 || len(s.Stale) != 1 || s.Stale[0] != "kev" {
		t.Errorf("the mirror has %q, stale are %q", s.Files, s.Stale)
	}
	got = m.sync(t, "kev")
	want(t, got, "kev", Updated)
	if s := got["kev"].State; s.Error != "" || s.Records() != 2 {
		t.Errorf("after the failure: %+v", s)
	}
}

// TestBadContent tries what broken sources and networks send. The former file stays.
func TestBadContent(t *testing.T) {
	bomb := append([]byte(`{"catalogVersion":"1","x":"`), bytes.Repeat([]byte{'x'}, 66<<20)...)
	for name, c := range map[string]struct {
		source, path string
		fault        upstreamtest.Fault
		text         string
	}{
		"archive damaged": {
			"osv/npm", upstreamtest.OSVPath("npm", "all.zip"), upstreamtest.Damaged, "checksum mismatch",
		},
		"archive of nothing": {
			"osv/npm", upstreamtest.OSVPath("npm", "all.zip"), upstreamtest.Content([]byte("<html>")),
			"not a valid zip",
		},
		"feed damaged": {
			"nvd", upstreamtest.FeedPath(2024, ".json.gz"), upstreamtest.Damaged, "nvdcve-2.0-2024.json.gz",
		},
		"feed of another day": {
			"nvd", upstreamtest.FeedPath(2024, ".json.gz"), upstreamtest.Content(upstreamtest.Gzip([]byte("{}"))),
			"checksum mismatch",
		},
		"meta of nothing": {
			"nvd", upstreamtest.FeedPath(2024, ".meta"), upstreamtest.Content([]byte("<html>")),
			"no valid lastModifiedDate",
		},
		"endless meta":       {"nvd", upstreamtest.FeedPath(2024, ".meta"), upstreamtest.Endless, "more than 4 KiB"},
		"catalog of nothing": {"kev", upstreamtest.KEVPath, upstreamtest.Content([]byte(`{}`)), "not an advisory feed"},
		"catalog cut": {
			"kev", upstreamtest.KEVPath, upstreamtest.Content(upstreamtest.KEV("CVE-1")[:150]), "kev",
		},
		"catalog bomb":  {"kev", upstreamtest.KEVPath, upstreamtest.Packed(bomb), "64 MiB"},
		"table damaged": {"epss", upstreamtest.EPSSPath, upstreamtest.Damaged, "epss"},
		"endless table": {"epss", upstreamtest.EPSSPath, upstreamtest.Endless, "more than 256"},
		"archive cut": {
			"rubysec", "/archive/rubysec.tar.gz", upstreamtest.Content(upstreamtest.Gzip([]byte("x"))[:15]), "EOF",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMirror(t)
			want(t, m.sync(t, c.source), c.source, Updated)
			before, err := os.ReadFile(filepath.Join(m.options.Dir, ManifestName))
			check(t, err)
			m.SetFeed(2024, []upstreamtest.CVE{{ID: "CVE-2024-2000", Modified: upstreamtest.Day, Product: "x"}})
			if c.source == "osv/npm" {
				m.SetOSV("npm", npm(maxSingle+1), true)
			}
			for range maxTries {
				m.Fail(c.path, c.fault)
			}
			wantFailed(t, m.sync(t, c.source), c.source, c.text)
			s, err := Open(t.Context(), m.options.Dir)
			check(t, err)
			defer s.Close()
			for _, f := range s.Files {
				name, err := filepath.Rel(m.options.Dir, f)
				check(t, err)
				if !bytes.Contains(before, []byte(`"`+filepath.ToSlash(name)+`"`)) {
					t.Errorf("%s is new", name)
				}
			}
		})
	}
}

const maxTries = 5 // of a download

// TestPassingFaults: what passes is tried again, and what was received is kept.
func TestPassingFaults(t *testing.T) {
	large := map[string]upstreamtest.Record{}
	for i := range 2000 {
		id := fmt.Sprintf("GHSA-x-%04d", i)
		large[id] = upstreamtest.Advisory(id, "npm", id, "1.0.0", upstreamtest.Day)
	}
	archive := upstreamtest.OSVPath("npm", "all.zip")
	for name, c := range map[string]struct {
		faults []upstreamtest.Fault
		ranges []string
	}{
		"busy": {[]upstreamtest.Fault{
			upstreamtest.Status(http.StatusServiceUnavailable), upstreamtest.Status(http.StatusBadGateway),
			upstreamtest.Status(http.StatusTooManyRequests, "Retry-After", "1"),
		}, nil},
		"cut":    {[]upstreamtest.Fault{upstreamtest.CutAfter(100_000)}, []string{"bytes=100000-"}},
		"silent": {[]upstreamtest.Fault{upstreamtest.Silent(1000, nil)}, []string{"bytes=1000-"}},
		"slow":   {[]upstreamtest.Fault{upstreamtest.Slow(10, 50*time.Millisecond)}, nil},
		"cut, then another version": {[]upstreamtest.Fault{
			upstreamtest.CutAfter(5000), upstreamtest.Content(nil), // 200 instead of 206
		}, []string{"bytes=5000-"}},
		"cut, then no range": {[]upstreamtest.Fault{
			upstreamtest.CutAfter(5000), upstreamtest.Status(http.StatusRequestedRangeNotSatisfiable),
		}, []string{"bytes=5000-"}},
		"damaged once": {[]upstreamtest.Fault{upstreamtest.Damaged}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMirror(t)
			m.SetOSV("npm", large, true)
			if name == "cut, then another version" {
				c.faults[1] = func(w http.ResponseWriter, r *http.Request, content []byte) {
					r.Header.Del("Range")
					_, _ = w.Write(content)
				}
			}
			if name == "silent" {
				m.options.Client.StallTimeout = 3 * time.Second
			}
			m.Fail(archive, c.faults...)
			began := time.Now()
			got := m.sync(t, "osv/npm")
			want(t, got, "osv/npm", Updated)
			if n := got["osv/npm"].State.Records(); n != len(large) {
				t.Errorf("the mirror has %d records", n)
			}
			asked := m.Requests()
			for _, r := range c.ranges {
				if upstreamtest.Count(asked, r+` "`) != 1 { // with If-Range
					t.Errorf("%s was not requested: %q", r, asked)
				}
			}
			if name == "busy" && time.Since(began) < time.Second {
				t.Error("Retry-After was ignored")
			}
		})
	}
}

// TestKilled: a process that is killed while it downloads leaves a mirror that can be read, and the next run resumes.
func TestKilled(t *testing.T) {
	m := newMirror(t)
	want(t, m.sync(t, "osv/npm", "kev"), "osv/npm", Updated)
	records := map[string]upstreamtest.Record{}
	for i := range 3000 {
		id := fmt.Sprintf("GHSA-k-%04d", i)
		records[id] = upstreamtest.Advisory(id, "npm", "killed", "1.0.0", upstreamtest.Day.Add(time.Hour))
	}
	m.SetOSV("npm", records, true)
	started := make(chan struct{}, 1)
	m.Fail(upstreamtest.OSVPath("npm", "all.zip"), upstreamtest.Silent(50_000, started))
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childVariable+"="+m.options.Dir, childVariable+"_URL="+m.options.URLs["osv"])
	check(t, child.Start())
	<-started
	part := filepath.Join(m.options.Dir, partName, "osv_npm_all.zip")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if st, err := os.Stat(part); err == nil && st.Size() == 50_000 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the process received nothing")
		}
	}
	if _, err := Sync(t.Context(), m.options); !errors.Is(err, errLocked) {
		t.Errorf("a second process at the same time: %v", err)
	}
	check(t, child.Process.Kill())
	_ = child.Wait()
	if n := m.advisories(t, vulndb.NPM, "killed"); n != 0 {
		t.Errorf("%d advisories of an unfinished download", n)
	}
	m.Requests()
	want(t, m.sync(t, "osv/npm"), "osv/npm", Updated)
	if asked := m.Requests(); upstreamtest.Count(asked, "all.zip bytes=50000-") != 1 {
		t.Errorf("not resumed: %q", asked)
	}
	if n := m.advisories(t, vulndb.NPM, "killed"); n != len(records) {
		t.Errorf("%d advisories after the download was resumed", n)
	}
}

// TestDamagedMirror: a build refuses damaged files, and the next run fetches them again.
func TestDamagedMirror(t *testing.T) {
	m := newMirror(t)
	m.sync(t, "osv/npm", "kev")
	for _, f := range [][2]string{{"kev", "kev/kev.json.gz"}, {"osv/npm", "osv/npm/all.zip"}} {
		path := m.path(t, f[0], f[1])
		b, err := os.ReadFile(path)
		check(t, err)
		b[len(b)/2] ^= 1
		check(t, os.WriteFile(path, b, 0o644))
		if _, err := Open(t.Context(), m.options.Dir); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: %v", f[1], err)
		}
		want(t, m.sync(t, f[0]), f[0], Updated)
		s, err := Open(t.Context(), m.options.Dir)
		check(t, err)
		s.Close()
	}
	check(t, os.WriteFile(filepath.Join(m.options.Dir, "kev", "other"), nil, 0o644))
	m.sync(t, "kev")
	if list, err := os.ReadDir(filepath.Join(m.options.Dir, "kev")); err != nil || len(list) != 1 {
		t.Errorf("the directory has %v, %v", list, err)
	}
	check(t, os.WriteFile(filepath.Join(m.options.Dir, ManifestName), []byte("{"), 0o644))
	if _, err := Sync(t.Context(), m.options); err == nil || !strings.Contains(err.Error(), "remove the directory") {
		t.Errorf("a damaged manifest: %v", err)
	}
}

// TestDamagedAndUnreachable: advisories that are damaged and cannot be fetched again are not left out silently.
func TestDamagedAndUnreachable(t *testing.T) {
	m := newMirror(t)
	m.sync(t, "osv/npm", "kev")
	check(t, os.WriteFile(m.path(t, "osv/npm", "osv/npm/all.zip"), []byte("x"), 0o644))
	archive := upstreamtest.OSVPath("npm", "all.zip")
	for range 2 {
		m.Fail(archive, upstreamtest.Status(http.StatusNotFound))
		wantFailed(t, m.sync(t, "osv/npm"), "osv/npm", "404")
		if s, err := Open(t.Context(), m.options.Dir); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("the mirror opens with %+v, %v", s, err)
		}
	}
	want(t, m.sync(t, "osv/npm"), "osv/npm", Updated)
	if n := m.advisories(t, vulndb.NPM, "package-1"); n != 1 {
		t.Errorf("%d advisories", n)
	}
}

// TestNoMirror: the files in a directory that is no mirror are not removed.
func TestNoMirror(t *testing.T) {
	m := newMirror(t)
	own := filepath.Join(m.options.Dir, "osv", "mine.json")
	check(t, os.MkdirAll(filepath.Dir(own), 0o755))
	check(t, os.WriteFile(own, []byte("{}"), 0o644))
	if _, err := Sync(t.Context(), m.options); err == nil || !strings.Contains(err.Error(), "is not a mirror") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(own); err != nil {
		t.Error(err)
	}
}

// TestShrunk: a source that suddenly has few records is not used.
func TestShrunk(t *testing.T) {
	m := newMirror(t)
	var many []string
	for i := range 200 {
		many = append(many, fmt.Sprintf("CVE-2026-%04d", i))
	}
	m.Set(upstreamtest.KEVPath, upstreamtest.KEV(many...))
	m.sync(t, "kev")
	m.Set(upstreamtest.KEVPath, upstreamtest.KEV(many[:99]...))
	wantFailed(t, m.sync(t, "kev"), "kev", "has 99 records and had 200 before")
	check(t, os.Remove(m.path(t, "kev", "kev/kev.json.gz")))
	want(t, m.sync(t, "kev"), "kev", Updated)
}

func TestRefusedOptions(t *testing.T) {
	m := newMirror(t)
	for text, change := range map[string]func(*Options){
		"unknown source":           func(o *Options) { o.Only = []string{"nothing"} },
		"URL of an unknown source": func(o *Options) { o.URLs = map[string]string{"x": "https://example.com/"} },
		"want https":               func(o *Options) { o.URLs = map[string]string{"kev": "http://example.com/"} },
		"without credentials":      func(o *Options) { o.URLs = map[string]string{"kev": "https://u:p@example.com/"} },
	} {
		o := m.options
		change(&o)
		o.Dir = filepath.Join(t.TempDir(), "new")
		if _, err := Sync(t.Context(), o); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
		if _, err := os.Stat(o.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the directory was created: %v", text, err)
		}
	}
	m.Fail(upstreamtest.KEVPath, upstreamtest.Redirect("http://192.0.2.1/kev.json"))
	wantFailed(t, m.sync(t, "kev"), "kev", "want https")
	m.Fail(upstreamtest.KEVPath, upstreamtest.Redirect(m.URL+upstreamtest.KEVPath+"?1"))
	want(t, m.sync(t, "kev"), "kev", Updated)
}
