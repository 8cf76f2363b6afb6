package mirror

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/vulndb/mirror/upstreamtest"
)

func FuzzManifest(f *testing.F) {
	sum := strings.Repeat("0a", 32)
	f.Add([]byte(`{"schema":1,"sources":{"kev":{"files":[{"name":"kev/kev.json.gz","path":"kev/kev.` + sum[:16] +
		`.json.gz","url":"https://example.com","size":1,"sha256":"` + sum + `","records":1}]}}}`))
	f.Add([]byte(`{"schema":2}`))
	f.Add([]byte(`{"schema":1,"sources":{"a":null}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseManifest(b)
		if err != nil {
			return
		}
		for _, s := range m.Sources {
			for _, file := range s.Files {
				if !filepath.IsLocal(file.Path) || strings.HasPrefix(filepath.Base(file.Path), ".") ||
					file.Path == ManifestName {
					t.Errorf("path %q", file.Path)
				}
			}
		}
		again, err := json.Marshal(m)
		check(t, err)
		if _, err := ParseManifest(again); err != nil {
			t.Errorf("written again: %v", err)
		}
	})
}

func FuzzModifiedIDs(f *testing.F) {
	f.Add([]byte("2026-08-01T00:00:00.123456Z,GHSA-1\n2026-08-01T00:00:00Z,../x\n"))
	f.Add([]byte("modified,id\r\n2026-08-01T00:00:00Z,A-1\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		ids, err := parseModifiedIDs(bytes.NewReader(b))
		if err != nil {
			return
		}
		for id := range ids {
			if !filepath.IsLocal(id) || strings.ContainsAny(id, `/\`) {
				t.Errorf("ID %q", id)
			}
		}
		if len(ids) == 0 {
			return
		}
		again, err := parseModifiedIDs(bytes.NewReader(ids.format()))
		if err != nil || len(again) != len(ids) {
			t.Errorf("written again: %d of %d, %v", len(again), len(ids), err)
		}
		if d := again.since(ids); d.size() != 0 {
			t.Errorf("written again: %+v", d)
		}
	})
}

func FuzzMeta(f *testing.F) {
	f.Add([]byte("lastModifiedDate:2026-07-30T03:00:01-04:00\r\nsize:123\r\nsha256:" + strings.Repeat("AB", 32) +
		"\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		meta, err := parseMeta(b)
		if err == nil && (meta.size <= 0 || len(meta.sha256) != 64) {
			t.Errorf("got %+v", meta)
		}
	})
}

func FuzzPage(f *testing.F) {
	f.Add([]byte(`{"resultsPerPage":1,"startIndex":0,"totalResults":1,"vulnerabilities":[{}]}`))
	f.Add([]byte(`{"vulnerabilities":[[],{}],"x":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := parsePage(bytes.NewReader(b)); err == nil && (p.start < 0 || p.total < 0 || p.records < 0) {
			t.Errorf("got %+v", p)
		}
	})
}

// TestNames: the sources have plain names, and every file is below a directory of its source.
func TestNames(t *testing.T) {
	for _, s := range Sources() {
		if !validName(s.Name) || s.maxBytes == 0 || s.URL == "" || collectors[s.Form] == nil {
			t.Errorf("source %+v", s)
		}
		if s.Form == OneFile && (!validName(s.File) || !strings.HasPrefix(s.File, s.Name+"/")) {
			t.Errorf("file %q of %s", s.File, s.Name)
		}
	}
	for _, e := range ecosystems {
		if upstreamtest.Ecosystems[e].Prefix == "" {
			t.Errorf("the imitation has no ecosystem %s", e)
		}
	}
	for _, bad := range []string{
		"", "/x", "../x", "a/../b", ".a", "a/.b", "a//b", "a\x00", "a/b/", strings.Repeat("a", 300),
	} {
		if validName(bad) {
			t.Errorf("%q is accepted", bad)
		}
	}
}
