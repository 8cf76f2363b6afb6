package imagescan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/internal/scan"
	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// TestParsePURL: the URL of a package of an operating system means that package, with all that it has in a report.
func TestParsePURL(t *testing.T) {
	for text, want := range map[string]catalog.Package{
		"pkg:deb/debian/vim@2:9.0-1%2Bdeb12u1?arch=amd64&distro=debian-12": {
			Kind: catalog.Deb, Name: "vim", Version: "2:9.0-1+deb12u1", Arch: "amd64", Distribution: "debian:12",
			Source: "vim", SourceVersion: "2:9.0-1+deb12u1",
		},
		"pkg:rpm/rhel/openssl-libs@1.1.1k-12.el8_9?arch=x86_64&distro=rhel-8.9&epoch=1&upstream=openssl": {
			Kind: catalog.RPM, Name: "openssl-libs", Version: "1:1.1.1k-12.el8_9", Arch: "x86_64",
			Distribution: "rhel:8.9", Source: "openssl", SourceVersion: "1:1.1.1k-12.el8_9",
		},
		"pkg:apk/alpine/libcrypto3@3.3.2-r1?distro=alpine-3.20&upstream=openssl%403.3.2-r1": {
			Kind: catalog.APK, Name: "libcrypto3", Version: "3.3.2-r1", Distribution: "alpine:3.20", Source: "openssl",
			SourceVersion: "3.3.2-r1",
		},
		"pkg:apk/alpine/musl@1.2.5-r0?distro=3.20.3": {
			Kind: catalog.APK, Name: "musl", Version: "1.2.5-r0", Distribution: "alpine:3.20", Source: "musl",
			SourceVersion: "1.2.5-r0",
		},
		"pkg:npm/%40babel/core@7.0.0": {Kind: catalog.NPM, Name: "@babel/core", Version: "7.0.0"},
	} {
		got, err := parsePackage(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v %s", text, err, diff)
		}
	}
	for _, text := range []string{
		"pkg:deb/debian/a@1?distro=bookworm", "pkg:deb/debian/a@1", "pkg:deb/a@1?distro=12", "deb:a@1",
	} {
		if _, err := parsePackage(text); err == nil || !strings.Contains(err.Error(), "has no release") {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, kind := range []catalog.PackageType{catalog.Deb, catalog.RPM, catalog.APK} {
		for _, source := range []string{"", "s@", "n@1:7", "s@2:1-4"} {
			name, version, _ := strings.Cut(source, "@")
			p := scan.Complete(catalog.Package{
				Kind: kind, Name: "n", Version: "2:1-3", Arch: "a", Distribution: "x:1",
				Source: name, SourceVersion: version,
			})
			back, err := parsePackage(p.PURL)
			if back = scan.Complete(back); err != nil || !cmp.Equal(back, p) {
				t.Errorf("%s: %v %s", p.PURL, err, cmp.Diff(p, back))
			}
		}
	}
}
