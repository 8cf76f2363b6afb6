package java

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/catalog/catalogtest"
	"github.com/buildyard/buildyard/internal/scan/catalog/ziplimit"
)

// TestNestedLocations: a package in an archive within others is at the path of that archive in them, however the
// archives are stored.
func TestNestedLocations(t *testing.T) {
	inner := jar(t, pom, log4j)
	boot := jar(t, "=BOOT-INF/lib/log4j-core-2.14.1.jar", inner, "META-INF/maven/com.x/app/pom.properties",
		"groupId=com.x\nartifactId=app\nversion=1.0\n")
	war := jar(t, "WEB-INF/lib/boot.jar", boot, "WEB-INF/lib/shaded.jar", jar(t, pom, log4j,
		"META-INF/maven/h/b/pom.properties", "groupId=h\nartifactId=b\nversion=1\n"))
	long := strings.Repeat("x", maxLocationBytes) + ".jar"
	catalogtest.Expect(t, all, catalogtest.Files{
		"srv/app.jar": boot,
		"srv/app.ear": jar(t, "app.war", war),
		"srv/odd.zip": boot,
		"odd.jar":     jar(t, "/abs/../\xff\n.jar", inner, long, jar(t, "=x.jar", inner)),
	},
		"java org.apache.logging.log4j:log4j-core 2.14.1"+
			" /odd.jar!/abs/../\uFFFD\n.jar"+ // reports replace the line feed
			" /odd.jar!/x.jar"+ // without the name that is too long
			" /srv/app.ear!/app.war!/WEB-INF/lib/boot.jar!/BOOT-INF/lib/log4j-core-2.14.1.jar"+
			" /srv/app.ear!/app.war!/WEB-INF/lib/shaded.jar"+
			" /srv/app.jar!/BOOT-INF/lib/log4j-core-2.14.1.jar",
		"java com.x:app 1.0 /srv/app.ear!/app.war!/WEB-INF/lib/boot.jar /srv/app.jar",
		"java h:b 1 /srv/app.ear!/app.war!/WEB-INF/lib/shaded.jar",
	)
}

// TestManyNested: the number of archives within one is bounded, and so are the entries of those that are open.
func TestManyNested(t *testing.T) {
	empty := jar(t)
	var files []string
	for i := range maxNestedArchives + 1 {
		files = append(files, fmt.Sprintf("=%d.jar", i), empty)
	}
	a := &archiveReader{ctx: t.Context(), file: &catalog.File{Path: "a.jar"}, unpackBudget: maxUnpackedBytes}
	for name, check := range map[string]func() error{
		"archives": func() error {
			a.archivesLeft = maxNestedArchives
			return readText(a, jar(t, files...))
		},
		"entries": func() error {
			a.archivesLeft, a.openEntries = maxNestedArchives, maxOpenEntries
			defer func() { a.openEntries = 0 }()
			return readText(a, jar(t, "a", ""))
		},
	} {
		a.errs, a.tooLarge = nil, false
		err := errors.Join(check(), errors.Join(a.errs...))
		if !errors.Is(err, catalog.ErrTooLarge) && !errors.Is(err, ziplimit.ErrTooMany) || a.openEntries != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func readText(a *archiveReader, content string) error {
	return a.readArchive(strings.NewReader(content), int64(len(content)), archive{name: "a.jar"})
}
