package transfer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/farm"
)

// A copy that cannot be written, or is canceled, is an error.
func TestCopyFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, bytes.Repeat([]byte("disk"), 1<<19), 0o600); err != nil {
		t.Fatal(err)
	}
	from, err := diskfile.Disk{Path: path}.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	closed, err := os.Create(path + ".closed")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	for name, c := range map[string]DiskCopy{
		"to": {From: from, RawCopy: closed}, "sums": {From: from, Checksums: closed},
	} {
		if err := c.Run(t.Context()); !errors.Is(err, os.ErrClosed) || !strings.Contains(err.Error(), "copy disk") {
			t.Errorf("%s: %v", name, err)
		}
		if err := c.copyChunk(0, 100); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (DiskCopy{From: from}).copyChunk(2<<20, 2<<20+1); err == nil {
		t.Error("what is behind the disk was read")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(io.ErrClosedPipe)
	if err := (DiskCopy{From: from}).Run(ctx); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a copy that was given up: %v", err)
	}
}

// TestTargetCloseFails: an error of a file that cannot be closed is returned.
func TestTargetCloseFails(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	if err := (&pullTarget{file: f}).close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a file that cannot be closed: %v", err)
	}
}

// A clone that cannot be started is an error with the reason.
func TestBeginOfAClone(t *testing.T) {
	dir, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	taken := func() error { return dir.Remove("disk" + partialSuffix) }
	origin := filepath.Join(dir.Name(), "origin")
	target := &pullTarget{dir: dir, name: "disk", cloneSource: origin, afterClone: taken}
	if err := target.createPartial(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of a file that is gone: %v", err)
	}
	if err := os.WriteFile(origin, make([]byte, 4*blob.BlockSize), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := target.createPartial(); !errors.Is(err, os.ErrNotExist) && !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("that was taken away: %v", err)
	}
}

// Blocks that differ and touch are one change, unless one is zeros now.
func TestCompareJoinsBlocks(t *testing.T) {
	const block = blob.BlockSize
	disk := make([]byte, chunkSize)
	for _, n := range []int{0, 1, 4, 7} {
		disk[n*block] = 1
	}
	dir := t.TempDir()
	old := bytes.Clone(disk)
	for _, n := range []int{0, 1, 2, 3, 7} { // 4 stays
		old[n*block] = 2
	}
	sums, err := os.Create(filepath.Join(dir, "sums"))
	if err != nil {
		t.Fatal(err)
	}
	defer sums.Close()
	path := filepath.Join(dir, "disk")
	_, err = sums.Write(blockChecksums(old))
	if err := errors.Join(err, os.WriteFile(path, disk, 0o600)); err != nil {
		t.Fatal(err)
	}
	d, err := diskfile.Disk{Path: path}.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	changes, err := newChecksumChanges(d, sums)
	if err != nil {
		t.Fatal(err)
	}
	want := []blob.Change{
		{Off: 0, Len: 2 * block, Kind: blob.ChangeData},
		{Off: 2 * block, Len: 2 * block, Kind: blob.ChangeZero},
		{Off: 7 * block, Len: block, Kind: blob.ChangeData},
	}
	if got, err := changes.compareChunk(0); err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

// A download is limited to the length that its caller allows, and failures are returned.
func TestDownloadLimit(t *testing.T) {
	status, kind := http.StatusOK, "text/plain"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		if kind == "text/plain" {
			_, _ = io.WriteString(w, "12345")
			return
		}
		_, _ = io.WriteString(w, `{"status":"FAIL","message":"no `+r.Method+` `+r.URL.EscapedPath()+`"}`)
	}))
	defer s.Close()
	c, err := New(Options{BaseURL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for most, want := range map[int64]bool{4: false, 5: true, 6: true} {
		if got, err := c.DownloadFile(t.Context(), "a b/c", most); (err == nil) != want ||
			want && string(got) != "12345" ||
			err != nil && farm.CodeOf(err) != farm.CodeTooLarge {
			t.Errorf("at most %d: %q, %v", most, got, err)
		}
	}
	status, kind = http.StatusForbidden, "application/json"
	for want, try := range map[string]func() error{
		"no GET /registry/files/a%20b/c": func() error {
			_, err := c.DownloadFile(t.Context(), "a b/c", 5)
			return err
		},
		"no PUT /registry/files/a%20b/c":    func() error { return c.UploadFile(t.Context(), "a b/c", nil) },
		"no DELETE /registry/files/a%20b/c": func() error { return c.RemoveFile(t.Context(), "a b/c") },
		"no DELETE /registry/vm":            func() error { return c.DeleteTemplate(t.Context(), "x") },
		"no DELETE /registry/revert":        func() error { return c.Revert(t.Context(), VersionRef{ID: "x"}) },
		"no PUT /registry/vm/arch":          func() error { return c.SetArch(t.Context(), "x", "arm64") },
		"no POST /registry/pause":           func() error { return c.PauseGC(t.Context(), time.Second) },
		"no GET /registry/disk":             func() error { _, err := c.DiskInfo(t.Context()); return err },
		"no GET /registry/status":           func() error { _, err := c.Status(t.Context()); return err },
		"no GET /registry/v2/rights":        func() error { _, err := c.CallerRights(t.Context(), "x"); return err },
		"no GET /registry/vm/info": func() error {
			_, err := c.VersionConfig(t.Context(), VersionRef{ID: "x"})
			return err
		},
	} {
		if err := try(); farm.CodeOf(err) != farm.CodeForbidden || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
