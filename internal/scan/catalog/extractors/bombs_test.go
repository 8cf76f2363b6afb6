package extractors_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/extractors"
)

// repeated returns a head, the texts of some numbers, and a tail.
func repeated(n int, head, text, tail string) []byte {
	var b strings.Builder
	b.WriteString(head)
	for i := range n {
		b.WriteString(strings.ReplaceAll(text, "#", fmt.Sprintf("%x", i)))
	}
	b.WriteString(tail)
	return []byte(b.String())
}

// TestBombs: a file that would take much more memory than its size is refused before it is decoded, and that is
// reported. Each of these took 300 MB to 1.8 GB, or a minute.
func TestBombs(t *testing.T) {
	const many = 600_000
	for name, data := range map[string][]byte{
		"a/package-lock.json":           repeated(many, `{"packages": {"": {}`, `, "#": {}`, `}}`),
		"b/package-lock.json":           repeated(many, `{"dependencies":{"":{}`, `,"#":{"dependencies":{}}`, `}}`),
		"a/node_modules/x/package.json": repeated(300_000, `{"name": "x", "version": "1", "private": [[]`, `,[]`, `]}`),
		"b/node_modules/x/package.json": repeated(100_000, `{"name":"x","version":"1","engines":{"":{}`, `,"#": {}`,
			`}}`),
		"Package.resolved":   repeated(many, `{"pins": [{}`, `,{}`, `]}`),
		"pnpm-lock.yaml":     repeated(50_000, "lockfileVersion: '9.0'\npackages:\n", "  a#@1:\n    a: {}\n", ""),
		"Podfile.lock":       repeated(many, "PODS:\n", "  - A# (1)\n", ""),
		"Cargo.lock":         repeated(many/3, "", "[[package]]\nname=\"#\"\nversion=\"1\"\n", ""),
		"poetry.lock":        repeated(many, "", "[[package]]\nname=\"#\"\n", ""),
		"uv.lock":            repeated(many, "a = [", "#,", "]"),
		"yarn.lock":          repeated(many, "# yarn lockfile v1\n", "#@1:\n version \"1\"\n", ""),
		"Gemfile.lock":       repeated(many, "GEM\n", "    # (1)\n", ""),
		"go.mod":             repeated(200_000, "module x\nrequire (\n", "a.b/c# v1.0.0\n", ")"),
		"requirements.txt":   repeated(many, "", "a#==1\n", ""),
		"Resources/app.asar": asarIndex(repeated(many*2, `{"files":{"":{}`, `,"#":{}`, `}}`)),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, err := catalog.Scan(t.Context(), fstest.MapFS{name: {Data: data}},
			catalog.Options{Extractors: extractors.All(), Workers: 1})
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Packages) > 0 || len(r.Warnings) != 1 || r.Warnings[0].InvalidContent || r.Unreadable != 1 {
			t.Errorf("%s: %d packages, %.300v", name, len(r.Packages), r.Warnings)
		}
		if taken := after.TotalAlloc - before.TotalAlloc; taken > 256<<20 {
			t.Errorf("%s of %d bytes took %d bytes of memory", name, len(data), taken)
		}
	}
}

// asarIndex returns an archive with an index alone.
func asarIndex(index []byte) []byte {
	head := make([]byte, 16)
	for i, n := range []int{4, len(index) + 8, len(index) + 4, len(index)} {
		for k := range 4 {
			head[4*i+k] = byte(n >> (8 * k))
		}
	}
	return append(head, index...)
}
