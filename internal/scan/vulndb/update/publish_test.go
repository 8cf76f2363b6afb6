package update

import (
	"context"
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

// TestPublish: a published database is fetched, never replaced by an older one, and the last ones stay.
func TestPublish(t *testing.T) {
	public, secret, err := ed25519.GenerateKey(nil)
	check(t, err)
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, "vuln-notes.db"), []byte("not ours"), 0o600))
	publish := func(built time.Time) (Listing, error) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "vuln.db")
		database(t, file, built)
		return Publish(t.Context(), PublishOptions{Database: file, Dir: dir, Key: secret})
	}
	o := Options{Target: filepath.Join(t.TempDir(), "vuln.db"), Listing: filepath.Join(dir, ListingName), Key: public}
	for i := range 5 {
		built := day.Add(time.Duration(i) * time.Hour)
		_, err := publish(built)
		check(t, err)
		if st, err := Update(t.Context(), o); err != nil || st.Outcome != Updated || !st.Info.Built.Equal(built) {
			t.Errorf("database %d: %+v, %v", i, st, err)
		}
	}
	listed, err := os.ReadFile(filepath.Join(dir, ListingName))
	check(t, err)
	if _, err := publish(day.Add(3 * time.Hour)); !errors.Is(err, ErrRollback) {
		t.Errorf("an older database: %v", err)
	}
	after, err := os.ReadFile(filepath.Join(dir, ListingName))
	check(t, err)
	if string(after) != string(listed) {
		t.Error("the listing changed")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	check(t, err)
	for i, f := range files {
		files[i] = filepath.Base(f)
	}
	want := []string{
		"latest.json", "vuln-20260801T140000Z.db", "vuln-20260801T150000Z.db", "vuln-20260801T160000Z.db",
		"vuln-notes.db",
	}
	if !slices.Equal(files, want) {
		t.Errorf("the directory has %q", files)
	}
	if l, err := publish(day.Add(4 * time.Hour)); err != nil || l.Path != "vuln-20260801T160000Z.db" {
		t.Errorf("the same database again: %+v, %v", l, err)
	}
}

// TestPublishSameDate: another database of the same date gets another name.
func TestPublishSameDate(t *testing.T) {
	dir := t.TempDir()
	var names []string
	for _, id := range []string{"A", "B"} {
		file := filepath.Join(t.TempDir(), "vuln.db")
		f, err := os.Create(file)
		check(t, err)
		w, err := vulndb.NewWriter(f, day)
		check(t, err)
		check(t, w.Vulnerability(vulndb.Vulnerability{ID: id}))
		check(t, errors.Join(w.Close(nil), f.Close()))
		l, err := Publish(t.Context(), PublishOptions{Database: file, Dir: dir})
		check(t, err)
		names = append(names, l.Path)
	}
	if names[0] != "vuln-20260801T120000Z.db" || !strings.HasPrefix(names[1], "vuln-20260801T120000Z-") {
		t.Errorf("names %q", names)
	}
	check(t, os.WriteFile(filepath.Join(dir, ListingName), []byte("<html>"), 0o600))
	file := filepath.Join(t.TempDir(), "vuln.db")
	database(t, file, day)
	if _, err := Publish(t.Context(), PublishOptions{Database: file, Dir: dir}); err == nil ||
		!strings.Contains(err.Error(), "remove it if it is not a listing") {
		t.Errorf("a foreign listing: %v", err)
	}
	check(t, os.WriteFile(filepath.Join(dir, ListingName), []byte(`{"schema":99}`), 0o600))
	if _, err := Publish(t.Context(), PublishOptions{Database: file, Dir: dir}); !errors.Is(err, ErrRollback) {
		t.Errorf("a newer schema: %v", err)
	}
}

// TestEarlierDatabase: a database that was published by an earlier program is used.
func TestEarlierDatabase(t *testing.T) {
	s := newSite(t, day, nil)
	raw, err := os.ReadFile(filepath.Join("..", "testdata", "schema-1.db"))
	check(t, err)
	file := filepath.Join(s.folder, "vuln.db")
	check(t, os.WriteFile(file, raw, 0o600))
	l, err := WriteListing(t.Context(), ListingOptions{Database: file, Target: filepath.Join(s.folder, "latest.json")})
	if err != nil || l.Schema != 1 {
		t.Fatalf("%+v, %v", l, err)
	}
	st, err := Update(t.Context(), s.options(t))
	if err != nil || st.Outcome != Updated || st.Info.Schema != 1 || st.Info.Advisories != 30 {
		t.Errorf("%+v, %v", st, err)
	}
}

// TestFutureDatabase: a database that a wrong clock has dated does not keep newer ones away.
func TestFutureDatabase(t *testing.T) {
	s := newSite(t, day.Add(maxClockSkew+time.Hour), nil)
	o := s.options(t)
	o.Now = func() time.Time { return day }
	if st, err := Update(t.Context(), o); err == nil || !strings.Contains(err.Error(), "in the future") || st.Present {
		t.Errorf("got %+v, %v", st, err)
	}
	s.publish(t, day.Add(time.Hour), nil) // a clock that is a little wrong
	if st, err := Update(t.Context(), o); err != nil || st.Outcome != Updated {
		t.Errorf("got %+v, %v", st, err)
	}
}

// TestLockPublished: two processes do not publish in one directory at the same time.
func TestLockPublished(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "www")
	release, err := LockPublished(t.Context(), dir)
	check(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := LockPublished(ctx, dir); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second: %v", err)
	}
	release()
	release, err = LockPublished(t.Context(), dir)
	check(t, err)
	release()
}
