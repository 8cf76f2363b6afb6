package sbom

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// lines describes packages, a line each: kind, name, version, and the fields that are set.
func lines(packages []catalog.Package) []string {
	var out []string
	for _, p := range packages {
		line := fmt.Sprintf("%s %s %s %s", p.Kind, p.Name, p.Version, strings.Join(p.Locations, ","))
		for _, f := range []struct{ name, value string }{
			{"distribution", p.Distribution},
			{"source", strings.TrimSpace(p.Source + " " + p.SourceVersion)},
			{"arch", p.Arch},
			{"owner", p.Owner},
			{"licenses", strings.Join(p.Licenses, ",")},
			{"bundles", strings.Join(p.BundleIDs, ",")},
			{"replaced", map[bool]string{true: "yes"}[p.Replaced]},
		} {
			if f.value != "" {
				line += " [" + f.name + ": " + f.value + "]"
			}
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

func contents(t *testing.T, text string) *Contents {
	t.Helper()
	d, err := parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return d.contents("/bom.json")
}

// TestPackageURLs: what programs write about each kind of packages.
func TestPackageURLs(t *testing.T) {
	for _, tc := range []struct{ component, want string }{
		{`"name": "lodash", "purl": "pkg:npm/lodash@4.17.11"`, "npm lodash 4.17.11"},
		{`"name": "core", "group": "@babel", "purl": "pkg:npm/%40babel/core@7.0.0"`, "npm @babel/core 7.0.0"},
		{`"name": "Jinja2", "purl": "pkg:pypi/jinja2@3.0.0"`, "python Jinja2 3.0.0"},
		{`"name": "ruamel.yaml", "purl": "pkg:pypi/ruamel-yaml@0.17"`, "python ruamel.yaml 0.17"},
		{
			`"name": "log4j-core", "group": "org.apache.logging.log4j",
		  "purl": "pkg:maven/org.apache.logging.log4j/log4j-core@2.14.1"`,
			"java org.apache.logging.log4j:log4j-core 2.14.1",
		},
		{
			`"name": "github.com/BurntSushi/toml", "purl": "pkg:golang/github.com/burntsushi/toml@v1.0.0"`,
			"go github.com/BurntSushi/toml v1.0.0",
		},
		{`"name": "stdlib", "purl": "pkg:golang/stdlib@1.22.1"`, "go stdlib 1.22.1"},
		{`"name": "time", "purl": "pkg:cargo/time@0.1.43"`, "rust time 0.1.43"},
		{`"name": "rack", "purl": "pkg:gem/rack@2.0.1"`, "gem rack 2.0.1"},
		{`"name": "nokogiri", "purl": "pkg:gem/nokogiri@1.12.5?platform=java"`, "gem nokogiri 1.12.5-java"},
		{`"name": "openssl@3", "purl": "pkg:brew/openssl%403@3.0.1"`, "brew openssl@3 3.0.1"},
		{`"name": "AFNetworking", "purl": "pkg:cocoapods/AFNetworking@2.5.0"`, "pod AFNetworking 2.5.0"},
		{`"name": "x", "version": "1.0", "purl": "pkg:npm/x"`, "npm x 1.0"},
		{
			`"name": "swift-nio", "purl": "pkg:swift/github.com/apple/swift-nio@2.40.0"`,
			"swift github.com/apple/swift-nio 2.40.0",
		},
		{
			`"name": "swift-nio", "purl": "pkg:swift/github.com/apple/swift-nio.git/swift-nio@2.40.0"`,
			"swift github.com/apple/swift-nio 2.40.0",
		},
		{`"name": "x", "purl": "pkg:swift/gitlab.com/a/b/x@1.0.0"`, "swift gitlab.com/a/b/x 1.0.0"},
		{`"name": "python", "purl": "pkg:generic/python@3.11.4"`, "runtime python 3.11.4"},
		// syft
		{
			`"name": "libc6", "version": "2.36-9+deb12u4",
		  "purl": "pkg:deb/debian/libc6@2.36-9%2Bdeb12u4?arch=amd64&distro=debian-12&upstream=glibc"`,
			"deb libc6 2.36-9+deb12u4 [distribution: debian:12] [source: glibc] [arch: amd64]",
		},
		{
			`"name": "libgcc-s1",
		  "purl": "pkg:deb/debian/libgcc-s1@12.2.0-14?distro=debian-12&upstream=gcc-12%4012.2.0-13"`,
			"deb libgcc-s1 12.2.0-14 [distribution: debian:12] [source: gcc-12 12.2.0-13]",
		},
		{
			`"name": "bash", "version": "5.1.8-6.el9",
		  "purl": "pkg:rpm/redhat/bash@5.1.8-6.el9?arch=x86_64&distro=rhel-9.2&upstream=bash-5.1.8-6.el9.src.rpm"`,
			"rpm bash 5.1.8-6.el9 [distribution: rhel:9.2] [source: bash 5.1.8-6.el9] [arch: x86_64]",
		},
		{
			`"name": "openssl-libs", "version": "1:3.0.7-6.el9",
"purl": "pkg:rpm/rocky/openssl-libs@3.0.7-6.el9?distro=rocky-9.2&epoch=1&upstream=openssl-3.0.7-6.el9.src.rpm"`,
			"rpm openssl-libs 1:3.0.7-6.el9 [distribution: rocky:9.2] [source: openssl 1:3.0.7-6.el9]",
		},
		{
			`"name": "libssl3", "purl": "pkg:apk/alpine/libssl3@3.1.0-r4?distro=alpine-3.18.4&upstream=openssl"`,
			"apk libssl3 3.1.0-r4 [distribution: alpine:3.18] [source: openssl]",
		},
		{
			`"name": "zypper", "purl": "pkg:rpm/opensuse/zypper@1.14?distro=opensuse-leap-15.5"`,
			"rpm zypper 1.14 [distribution: opensuse-leap:15.5]",
		},
		// trivy
		{
			`"name": "libc6", "purl": "pkg:deb/debian/libc6@2.36-9?distro=debian-12.4", "properties": [
		   {"name": "aquasecurity:trivy:SrcName", "value": "glibc"},
		   {"name": "aquasecurity:trivy:SrcVersion", "value": "2.36"},
		   {"name": "aquasecurity:trivy:SrcRelease", "value": "9"},
		   {"name": "aquasecurity:trivy:SrcEpoch", "value": "1"}]`,
			"deb libc6 2.36-9 [distribution: debian:12] [source: glibc 1:2.36-9]",
		},
		{
			`"name": "musl", "purl": "pkg:apk/alpine/musl@1.2.4-r2?distro=3.18.4"`,
			"apk musl 1.2.4-r2 [distribution: alpine:3.18]",
		},
		{
			`"name": "bash", "purl": "pkg:rpm/redhat/bash@5.1.8?distro=redhat-9.2"`,
			"rpm bash 5.1.8 [distribution: rhel:9.2]",
		},
		// examples of the specification
		{
			`"name": "curl", "purl": "pkg:deb/debian/curl@7.50.3-1?arch=i386&distro=jessie"`,
			"deb curl 7.50.3-1 [distribution: debian:8] [arch: i386]",
		},
		{
			`"name": "dpkg", "purl": "pkg:deb/ubuntu/dpkg@1.21.1?distro=ubuntu-jammy"`,
			"deb dpkg 1.21.1 [distribution: ubuntu:22.04]",
		},
		{`"name": "arch", "purl": "pkg:rpm/fedora/x@1-1?distro=rawhide"`, "rpm x 1-1"},
	} {
		c := contents(t, `{"bomFormat": "CycloneDX", "specVersion": "1.5", "components": [{`+tc.component+`}]}`)
		got := strings.Join(lines(c.Packages), "\n")
		if got = strings.Replace(got, " /bom.json", "", 1); got != tc.want || len(c.Omitted) > 0 {
			t.Errorf("%s:\n%s\nwant\n%s\n%v", tc.component, got, tc.want, c.Omitted)
		}
	}
}

// TestCycloneDX reads what each version of the format has, and names what is left out.
func TestCycloneDX(t *testing.T) {
	c := contents(t, `{
	"components": [
	 {"type": "library", "name": "lodash", "version": "4.17.11", "purl": "pkg:npm/lodash@4.17.11",
	  "licenses": [{"license": {"id": "MIT"}}, {"expression": "MIT OR X"}],
	  "evidence": {"occurrences": [{"location": "/a/package.json"}, {"location": "b/package.json"}]},
	  "components": [{"name": "inner", "purl": "pkg:npm/inner@1.0.0", "properties":
	   [{"name": "syft:location:0:path", "value": "/c"}, {"name": "syft:location:0:layerID", "value": "x"}]}]},
	 {"type": "operating-system", "name": "debian", "version": "12"},
	 {"type": "library", "name": "dpkg", "purl": "pkg:deb/debian/dpkg@1.21"},
	 {"type": "file", "name": "/etc/passwd"},
	 {"type": "library", "name": "Json", "version": "1", "purl": "pkg:nuget/Json@1"},
	 {"type": "library", "name": "Json2", "version": "1", "purl": "pkg:nuget/Json2@1"},
	 {"type": "library", "name": "mystery", "version": "2", "cpe": "cpe:2.3:a:x:mystery:2:*:*:*:*:*:*:*"},
	 {"type": "library", "name": "broken", "version": "2", "purl": "npm/broken"},
	 {"type": "library", "name": "unversioned", "purl": "pkg:npm/unversioned"}
	],
	"vulnerabilities": [{"id": "CVE-1", "affects": [[], {}, [{"x": ["y"]}]]}],
	"specVersion": "1.2", "bomFormat": "CycloneDX",
	"compositions": [{"aggregate": "complete"}]
	}`)
	want := []string{
		"deb dpkg 1.21 /bom.json [distribution: debian:12]", "npm inner 1.0.0 /c",
		"npm lodash 4.17.11 /a/package.json,/b/package.json [licenses: MIT,MIT OR X]",
	}
	if diff := cmp.Diff(want, lines(c.Packages)); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
	var omitted []string
	for _, o := range c.Omitted {
		omitted = append(omitted, fmt.Sprintf("%d %s %s: %s", o.Count, o.Kind, o.Reason, o))
	}
	wantOmitted := []string{
		"1  " + reasonInvalid + ": broken 2", "1  " + reasonNoPURL + ": mystery 2",
		"1 npm " + reasonInvalid + ": unversioned", "2 nuget " + reasonKind + ": Json 1, Json2 1",
	}
	slices.Sort(omitted)
	slices.Sort(wantOmitted)
	if diff := cmp.Diff(wantOmitted, omitted); diff != "" || c.Incomplete || c.Format != "CycloneDX 1.2" {
		t.Errorf("want -, got +\n%s\n%+v", diff, c)
	}
}

// TestOurs: properties that the scanners of this project write count first.
func TestOurs(t *testing.T) {
	c := contents(t, `{"bomFormat": "CycloneDX", "specVersion": "1.7",
	"metadata": {"tools": {"components": [{"name": "imagescan"}]}},
	"components": [
	 {"type": "application", "name": "Firefox", "version": "110.0", "purl": "pkg:generic/macos/Firefox@110.0",
	  "properties": [{"name": "buildyard:bundleId", "value": "org.mozilla.firefox"},
	   {"name": "buildyard:bundleId", "value": ""}]},
	 {"type": "library", "name": "macOS", "version": "14.1", "purl": "pkg:generic/macos/macOS@14.1"},
	 {"type": "library", "name": "Django", "version": "3.2.19", "purl": "pkg:pypi/django@3.2.19", "properties": [
	  {"name": "buildyard:distribution", "value": "debian:12"},
	  {"name": "buildyard:owner", "value": "deb/python3-django@3:3"}]},
	 {"type": "library", "name": "m", "version": "v1.0.0", "purl": "pkg:golang/m@v1.0.0",
	  "properties": [{"name": "buildyard:replaced", "value": "true"}]}
	], "compositions": [{"aggregate": "incomplete"}]}`)
	want := []string{
		"go m v1.0.0 /bom.json [replaced: yes]", "macos macOS 14.1 /bom.json",
		"macos-app Firefox 110.0 /bom.json [bundles: org.mozilla.firefox,]",
		"python Django 3.2.19 /bom.json [distribution: debian:12] [owner: deb/python3-django@3:3]",
	}
	if diff := cmp.Diff(want, lines(c.Packages)); diff != "" || !c.Incomplete {
		t.Errorf("want -, got +\n%s\n%+v", diff, c)
	}
}

func TestSPDX(t *testing.T) {
	c := contents(t, `{"spdxVersion": "SPDX-2.3", "creationInfo": {"creators": ["Tool: syft-1.0", "Organization: x"]},
	"files": [{"a": [{}]}],
	"packages": [
	 {"name": "dir", "primaryPackagePurpose": "FILE"},
	 {"name": "debian", "versionInfo": "12", "primaryPackagePurpose": "OPERATING_SYSTEM"},
	 {"name": "lodash", "versionInfo": "4.17.11", "licenseDeclared": "MIT", "licenseConcluded": "NOASSERTION",
	  "sourceInfo": "acquired package info from installed node module manifest file: /a",
	  "externalRefs": [
	   {"referenceCategory": "SECURITY", "referenceType": "cpe23Type",
	    "referenceLocator": "cpe:2.3:a:l:l:1:*:*:*:*:*:*:*"},
	   {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
	    "referenceLocator": "pkg:npm/lodash@4.17.11"}]},
	 {"name": "dpkg", "versionInfo": "1.21",
	  "externalRefs": [{"referenceType": "purl", "referenceLocator": "pkg:deb/debian/dpkg@1.21"}],
	  "sourceInfo": "/var/lib/dpkg/status\nbuilt from: dpkg-src 1.20\n"},
	 {"name": "ws", "versionInfo": "8.0.0",
	  "externalRefs": [{"referenceType": "purl", "referenceLocator": "pkg:npm/ws@8.0.0"}],
	  "sourceInfo": "/usr/share/nodejs/ws/package.json\nbelongs to: deb/dpkg@1.21\n"},
	 {"name": "mystery", "versionInfo": "1"}
	]}`)
	want := []string{
		"deb dpkg 1.21 /var/lib/dpkg/status [distribution: debian:12] [source: dpkg-src 1.20]",
		"npm lodash 4.17.11 /bom.json [licenses: MIT]",
		"npm ws 8.0.0 /usr/share/nodejs/ws/package.json [distribution: debian:12] [owner: deb/dpkg@1.21]",
	}
	if diff := cmp.Diff(want, lines(c.Packages)); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
	if len(c.Omitted) != 1 || c.Omitted[0].Reason != reasonNoPURL || c.Format != "SPDX-2.3" {
		t.Errorf("%+v", c)
	}
}

// TestInvalid: errors, and documents of a wrong form that are read in part.
func TestInvalid(t *testing.T) {
	nested := strings.Repeat(`{"name": "x", "components": [`, 100) + strings.Repeat("]}", 100)
	for text, want := range map[string]string{
		"": ErrFormat.Error(),
		"<bom xmlns=\"http://cyclonedx.org/schema/bom/1.5\"/>": ErrFormat.Error(),
		"[]": ErrFormat.Error(),
		"{}": ErrFormat.Error(),
		`{"bomFormat": "CycloneDX", "specVersion": "2.0"}`:              "CycloneDX 2.0 is not supported",
		`{"spdxVersion": "SPDX-3.0"}`:                                   "SPDX-3.0 is not supported",
		`{"bomFormat": "CycloneDX", "components": [`:                    "the document ends early",
		`{"bomFormat": "CycloneDX", "components": [` + nested + `]}`:    "nested in more than 64 levels",
		`{"bomFormat": "CycloneDX", "x": ` + strings.Repeat("[", 1<<20): "nested in more than 10000 levels",
		`{"bomFormat": "CycloneDX" "x"}`:                                "invalid character",
	} {
		if _, err := parse(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v", text, err)
		}
	}
	c := contents(t, `{"bomFormat": "CycloneDX", "specVersion": "1.5", "metadata": [],
	"compositions": {}, "packages": {}, "components": [
	 {"name": "lodash", "purl": "pkg:npm/lodash@4.17.11", "licenses": "MIT"}, "text", 5,
	 {"name": "`+strings.Repeat("x", 5000)+`", "purl": "pkg:npm/`+strings.Repeat("x", 5000)+`@1"}]}`)
	if got := lines(c.Packages); len(got) != 1 || c.Invalid != 4 || !c.Incomplete || len(c.Omitted) != 2 {
		t.Errorf("%q, %+v", got, c.Omitted)
	}
}

// TestNestedComponents: what is nested is kept in memory once, however deep it is.
func TestNestedComponents(t *testing.T) {
	text := `{"bomFormat": "CycloneDX", "specVersion": "1.5", "components": [` +
		strings.Repeat(`{"name": "x", "components": [`, maxDepth) +
		`{"name": "ws", "purl": "pkg:npm/ws@8.0.0", "description": "` + strings.Repeat("x", 8<<20) + `"}` +
		strings.Repeat("]}", maxDepth) + "]}"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c := contents(t, text)
	runtime.ReadMemStats(&after)
	if n := (after.TotalAlloc - before.TotalAlloc) / uint64(len(text)); n > 20 {
		t.Errorf("%d bytes for each of the document", n)
	}
	if got := lines(c.Packages); len(got) != 1 || c.Components != maxDepth+1 {
		t.Errorf("%d components, %q", c.Components, got)
	}
}

// FuzzParse: every component is a package, left out, or not software.
func FuzzParse(f *testing.F) {
	f.Add(`{"bomFormat":"CycloneDX","specVersion":"1.5",
	"components":[{"name":"a","purl":"pkg:npm/a@1","components":[]}]}`)
	f.Add(`{"spdxVersion":"SPDX-2.3","packages":[{"name":"a","externalRefs":[{"referenceType":"purl",
	"referenceLocator":"pkg:rpm/a@1?upstream=b-1-1.src.rpm"}]}]}`)
	f.Add(`{"components":[{"purl":"pkg:deb/debian/a@1?distro=debian-12&upstream=b%402"}],
	"bomFormat":"CycloneDX","specVersion":"1.2"}`)
	f.Fuzz(func(t *testing.T, text string) {
		d, err := parse(strings.NewReader(text))
		if err != nil {
			return
		}
		c := d.contents("/bom.json")
		n := len(c.Packages)
		for _, o := range c.Omitted {
			n += o.Count
		}
		for i := range d.components {
			if isNotSoftware(&d.components[i]) {
				n++
			}
		}
		if n != c.Components {
			t.Errorf("%d of %d components", n, c.Components)
		}
		for _, p := range catalog.Merge(c.Packages) {
			if p.Name == "" || p.Version == "" || len(p.Locations) == 0 || p.PURL == "" {
				t.Errorf("%+v", p)
			}
		}
	})
}
