package central

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// untar returns the files of an archive.
func untar(t *testing.T, raw []byte) map[string]string {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for in := tar.NewReader(zip); ; {
		head, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil || int64(len(text)) != head.Size {
			t.Fatalf("%s: %d of %d bytes, %v", head.Name, len(text), head.Size, err)
		}
		out[head.Name] = string(text)
	}
}

// TestArchive also has files grow, be removed and be renamed after the archive has begun.
func TestArchive(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	l := open(t, dir, Options{Now: c.Now, Retention: time.Hour})
	add(t, l, row("node", "gone", "x"), row("node", "a", "first"))
	c.advance(40 * time.Minute)
	add(t, l, row("node", "a", "second"))
	if err := l.AppendEvents([][]byte{[]byte(`{"n":1}`)}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"node/a.2026-03-04.log": content(t, dir,
		"node/a.2026-03-04.log"), "event/event.log": content(t, dir, "event/event.log")}
	nodes, err := l.Archive("node")
	if err != nil {
		t.Fatal(err)
	}
	events, err := l.Archive("event")
	if err != nil {
		t.Fatal(err)
	}
	add(t, l, row("node", "a", "later"), row("node", "b", "later"))
	c.advance(30 * time.Minute)
	l.Prune()
	c.advance(24 * time.Hour)
	if err := l.AppendEvents([][]byte{[]byte(`{"n":2}`)}); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, a := range []*Archive{nodes, events} {
		var raw bytes.Buffer
		if err := errors.Join(a.Write(&raw), a.Close()); err != nil {
			t.Fatal(err)
		}
		maps.Copy(got, untar(t, raw.Bytes()))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	if l.runningArchives != 0 {
		t.Errorf("%d archives are left", l.runningArchives)
	}
}

func TestBoundOfArchives(t *testing.T) {
	l := open(t, t.TempDir(), Options{})
	add(t, l, row("node", "m", "x"))
	var open []*Archive
	for range maxArchives {
		a, err := l.Archive("node")
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, a)
	}
	if _, err := l.Archive("node"); farm.CodeOf(err) != farm.CodeBusy {
		t.Errorf("one more: %v", err)
	}
	_ = open[0].Close()
	if _, err := l.Archive("node"); err != nil {
		t.Error(err)
	}
}
