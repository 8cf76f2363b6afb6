package java

import (
	"archive/zip"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/catalogtest"
)

var all = []catalog.Extractor{Archives{}}

// jar creates an archive of names and contents; a name that begins with "=" is stored uncompressed.
func jar(t testing.TB, files ...string) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		name, stored := strings.CutPrefix(files[i], "=")
		h := &zip.FileHeader{Name: name, Method: zip.Deflate}
		if stored {
			h.Method = zip.Store
		}
		w, err := z.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, files[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

const (
	pom       = "META-INF/maven/g/a/pom.properties"
	log4j     = "#Generated\nversion=2.14.1\ngroupId=org.apache.logging.log4j\nartifactId=log4j-core\n"
	manifest1 = "Manifest-Version: 1.0\r\nImplementation-Vendor-Id: org.exa\r\n mple\r\nImplementation-Title: " +
		"thing\r\nImplementation-Version: 1.4 build 7\r\nBundle-License: https://example.test/LICENSE\r\n\r\nName: " +
		"x\r\n"
)

func TestArchives(t *testing.T) {
	inner := jar(t, pom, log4j)
	catalogtest.Expect(t, all, catalogtest.Files{
		"lib/any.jar": inner,
		"app/app.war": jar(t, "=WEB-INF/lib/log4j-core-2.14.1.jar", inner, "WEB-INF/lib/packed.jar", inner,
			"WEB-INF/lib/guava-31.1-jre.jar", jar(t, "a.class", "")),
		"lib/thing.jar":        jar(t, "META-INF/MANIFEST.MF", manifest1),
		"lib/other-2.0.jar":    jar(t, "META-INF/MANIFEST.MF", manifest1),
		"lib/junit-4.12.jar":   jar(t, "a", "b"),
		"lib/nothing.jar":      jar(t, "a", "b"),
		"lib/unfilled.jar":     jar(t, pom, "version=${v}\ngroupId=g\nartifactId=a\n"),
		"jmods/java.base.jmod": "JM\x01\x00" + jar(t, "a", "b"),
		"lib/bad.jar":          "PK",
		"lib/shaded.jar": jar(t, pom, log4j, "META-INF/maven/h/b/pom.properties",
			"groupId=h\nartifactId=b\nversion=1\n"),
	},
		"java org.apache.logging.log4j:log4j-core 2.14.1 /app/app.war!/WEB-INF/lib/log4j-core-2.14.1.jar "+
			"/app/app.war!/WEB-INF/lib/packed.jar /lib/any.jar /lib/shaded.jar",
		"java h:b 1 /lib/shaded.jar",
		"java com.google.guava:guava 31.1-jre /app/app.war!/WEB-INF/lib/guava-31.1-jre.jar",
		"java org.example:thing 1.4 /lib/thing.jar [https://example.test/LICENSE]",
		"java org.example:other 2.0 /lib/other-2.0.jar [https://example.test/LICENSE]",
		"java junit:junit 4.12 /lib/junit-4.12.jar",
		"! /lib/bad.jar: java/archive: bad.jar: zip: not a valid zip file",
	)
}

// claim creates an archive with a file that states a wrong unpacked size.
func claim(t *testing.T, name string, size uint64) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	if _, err := z.CreateRaw(&zip.FileHeader{Name: name, Method: zip.Deflate, UncompressedSize64: size}); err != nil {
		t.Fatal(err)
	}
	w, err := z.Create(pom)
	if err == nil {
		_, err = io.WriteString(w, log4j)
	}
	if err = errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// deepLocations returns the locations within an archive of the deepest nesting.
func deepLocations() string {
	all, location := "", "/deep.jar"
	for range maxNesting - 1 {
		location += "!/inner.jar"
		all += " " + location
	}
	return all
}

func TestBounds(t *testing.T) {
	deep := jar(t, pom, log4j)
	for range maxNesting + 2 {
		deep = jar(t, "inner.jar", deep, pom, log4j)
	}
	catalogtest.Expect(t, all, catalogtest.Files{
		"deep.jar": deep, "packed.jar": claim(t, "inner.jar", maxNestedArchiveBytes+1),
		"huge.jar":     claim(t, "inner.jar", 1<<60),
		"negative.jar": claim(t, "inner.jar", 1<<63+1),
	},
		"java org.apache.logging.log4j:log4j-core 2.14.1 /deep.jar"+deepLocations()+
			" /huge.jar /negative.jar /packed.jar",
		"! /deep.jar: java/archive: inner.jar: the file is too large: archives are nested more than 6 levels deep",
		"! /huge.jar: java/archive: inner.jar: the file is too large: it decompresses to more than 268435456 bytes",
		"! /negative.jar: java/archive: inner.jar: the file is too large: it decompresses to more than 268435456 bytes",
		"! /packed.jar: java/archive: inner.jar: the file is too large: inner archives of more than 33554432 bytes "+
			"are not read",
	)
}

// All that is unpacked of one file counts together.
func TestOpenedBytesAddUp(t *testing.T) {
	inner := jar(t, pom, log4j)
	outer := jar(t, "a.jar", inner, "=b.jar", inner, "c.jar", inner)
	a := &archiveReader{
		ctx: t.Context(), file: &catalog.File{Path: "x.jar"}, archivesLeft: maxNestedArchives,
		unpackBudget: 2*int64(len(inner)) + 2*int64(len(log4j)),
	}
	if err := a.readArchive(strings.NewReader(outer), int64(len(outer)), archive{name: "x.jar"}); err != nil {
		t.Fatal(err)
	}
	if len(a.packages) != 2 || len(a.errs) != 1 || !errors.Is(a.errs[0], errUnpackedTooLarge) {
		t.Errorf("found %v, errors %v", a.packages, a.errs)
	}
}

func FuzzArchives(f *testing.F) {
	inner := jar(f, pom, log4j)
	f.Add([]byte(jar(f, "=a.jar", inner, "b.jar", inner, "META-INF/MANIFEST.MF", manifest1)))
	f.Add([]byte("PK\x05\x06" + strings.Repeat("\xff", 18)))
	f.Fuzz(func(t *testing.T, data []byte) {
		tree := fstest.MapFS{"a-1.jar": {Data: data}}
		if _, err := catalog.Scan(t.Context(), tree, catalog.Options{Extractors: all, Workers: 1}); err != nil {
			t.Fatal(err)
		}
	})
}
