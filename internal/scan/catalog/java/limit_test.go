package java

import (
	"archive/zip"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/catalogtest"
	"github.com/buildyard/buildyard/internal/scan/catalog/ziplimit"
)

// An archive within that is too large is reported, however many others are damaged.
func TestTooLargeAmongDamaged(t *testing.T) {
	var files []string
	for i := range 2 * maxErrors {
		files = append(files, fmt.Sprintf("lib/%d.jar", i), "no archive")
	}
	files = append(files, "lib/z.jar", strings.Repeat("x", maxNestedArchiveBytes+1), "META-INF/MANIFEST.MF", manifest1)
	r, err := catalog.Scan(t.Context(), catalogtest.Tree(catalogtest.Files{"a.jar": jar(t, files...)}),
		catalog.Options{Extractors: all})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Packages) != 1 || len(r.Warnings) != 1 || r.Warnings[0].InvalidContent || r.Unreadable != 1 {
		t.Errorf("%.500s", catalogtest.Lines(r))
	}
}

// Properties with a long line are read to their end.
func TestLongLine(t *testing.T) {
	catalogtest.Expect(t, all, catalogtest.Files{"a.jar": jar(t, pom, "#"+strings.Repeat("x", 100<<10)+"\n"+log4j)},
		"java org.apache.logging.log4j:log4j-core 2.14.1 /a.jar")
}

// A value of many short lines costs no more than its bytes.
func TestManyLines(t *testing.T) {
	data := []byte("Bundle-Name: x\n" + strings.Repeat(" a\n", maxManifestBytes/12) + "Bundle-Version: 1\n 2\n")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m := parseManifest(data)
	runtime.ReadMemStats(&after)
	if name := m.attributes["bundle-name"]; len(name) != 1+maxManifestBytes/12 || m.version() != "12" {
		t.Errorf("%d bytes, %q", len(name), m.version())
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 16*maxManifestBytes {
		t.Errorf("%d bytes of memory", grown)
	}
}

// TestLongManifest: of a manifest no more than its first bytes is unpacked, and those count.
func TestLongManifest(t *testing.T) {
	filler := "Filler: " + strings.Repeat("x", 60) + "\n"
	long := strings.Repeat(filler, maxManifestBytes/len(filler)+1)
	for version, text := range map[string]string{
		"1": "Bundle-SymbolicName: org.example\nBundle-Name: thing\nBundle-Version: 1\n" + long + "Bundle-Version: 2\n",
		"":  "Bundle-SymbolicName: org.example\nBundle-Name: thing\n" + long + "Bundle-Version: 2\n",
	} {
		a := &archiveReader{ctx: t.Context(), unpackBudget: maxUnpackedBytes}
		content := jar(t, "META-INF/MANIFEST.MF", text)
		z, err := zip.NewReader(strings.NewReader(content), int64(len(content)))
		if err != nil {
			t.Fatal(err)
		}
		data, err := a.readTextFile(z.File[0])
		if err != nil || len(data) != maxManifestBytes || a.unpackBudget != maxUnpackedBytes-maxManifestBytes {
			t.Errorf("%d bytes of %d, %d are left of %d: %v", len(data), len(text), a.unpackBudget,
				int64(maxUnpackedBytes), err)
		}
		if got := parseManifest(data).version(); got != version {
			t.Errorf("version %q, want %q", got, version)
		}
	}
}

// TestTooManyAmongDamaged: an archive within that has too many files is reported, however many
// others are damaged.
func TestTooManyAmongDamaged(t *testing.T) {
	a := &archiveReader{}
	for range 2 * maxErrors {
		a.addError(errors.New("damaged"))
	}
	a.addError(fmt.Errorf("z.jar: %w", ziplimit.ErrTooMany))
	if !errors.Is(errors.Join(a.errs...), ziplimit.ErrTooMany) || !a.tooLarge || len(a.errs) != maxErrors+1 {
		t.Errorf("%v", a.errs)
	}
}
