package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const changelog = `foo (1:2.0-1+deb12u2) bookworm-security; urgency=medium

  * CVE-2024-0003: check lengths (Closes: #1)
  * The fix of CVE-2024-0002 was incomplete.

 -- A Maintainer <a@example.org>  Tue, 06 Feb 2024 10:00:00 +0100

foo (1:2.0-1+deb12u1) bookworm; urgency=medium

  * Fix CVE-2024-0002, CVE-2024-0001
    and CVE-2024-0001 again.

 -- A Maintainer <a@example.org>  Mon,  1 Jan 2024 10:00:00 +0100

foo (1:2.0-1) unstable; urgency=low

  * New version (CVE-2019-12345).

 -- A Maintainer <a@example.org>  no date
`

func parsed(t *testing.T) history {
	t.Helper()
	h, err := parseDebianChangelog(strings.NewReader(changelog))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestParseDebianChangelog(t *testing.T) {
	var got []string
	for _, e := range parsed(t) {
		date := ""
		if !e.date.IsZero() {
			date = e.date.UTC().Format("2006-01-02")
		}
		got = append(got, strings.Join([]string{e.version, date, strings.Join(e.names, ",")}, " "))
	}
	want := []string{
		"1:2.0-1+deb12u2 2024-02-06 CVE-2024-0002,CVE-2024-0003",
		"1:2.0-1+deb12u1 2024-01-01 CVE-2024-0001,CVE-2024-0002",
		"1:2.0-1  CVE-2019-12345",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
}

func TestTruth(t *testing.T) {
	newest := parsed(t)
	for version, want := range map[string]struct{ affected, fixed string }{
		"1:2.0-1":         {"CVE-2024-0001 CVE-2024-0002 CVE-2024-0003", "CVE-2019-12345"},
		"1:2.0-1+deb12u1": {"CVE-2024-0003", "CVE-2019-12345 CVE-2024-0001 CVE-2024-0002"},
		"1:2.0-1+deb12u2": {"", "CVE-2019-12345 CVE-2024-0001 CVE-2024-0002 CVE-2024-0003"},
	} {
		got, ok := truthOf(nil, newest, version)
		if !ok || join(got.affected) != want.affected || join(got.fixed) != want.fixed {
			t.Errorf("%s: %+v", version, got)
		}
	}
	if _, ok := truthOf(nil, newest, "1:1.0-1"); ok {
		t.Error("a version without an entry has a truth")
	}
	// What the changelog of the older package itself names is fixed there.
	own := history{{version: "1:2.0-1", since: "1:2.0-1", names: []string{"CVE-2024-0001"}}}
	if got, _ := truthOf(own, newest, "1:2.0-1"); got.affected["CVE-2024-0001"] || got.repeated != 1 {
		t.Errorf("%+v", got)
	}
	want := fixes{
		"CVE-2019-12345": "1:2.0-1", "CVE-2024-0001": "1:2.0-1", "CVE-2024-0002": "1:2.0-1+deb12u1",
		"CVE-2024-0003": "1:2.0-1+deb12u2",
	}
	if diff := cmp.Diff(want, fixesOf(newest, own)); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
}

// TestSince: a package of a newer release that is built for an older one has a lower version.
func TestSince(t *testing.T) {
	if exec.CommandContext(t.Context(), "perl", "-MDpkg::Version", "-e", "1").Run() != nil {
		t.Skip("needs libdpkg-perl")
	}
	h := history{
		{version: "590-2.1~deb12u2"},
		{version: "590-2.1"},
		{version: "590-2~deb12u1"},
		{version: "x:y"},
		{version: "588-1"},
	}
	if err := setSince(t.Context(), []history{h, {{version: "1-1"}}}); err != nil {
		t.Fatal(err)
	}
	want := []string{"590-2.1~deb12u2", "590-2.1~deb12u2", "590-2~deb12u1", "590-2~deb12u1", "588-1"}
	for i, e := range h {
		if e.since != want[i] {
			t.Errorf("%s: %s instead of %s", e.version, e.since, want[i])
		}
	}
}

func join(s set) string { return strings.Join(slices.Sorted(maps.Keys(s)), " ") }

func TestAPKVersions(t *testing.T) {
	h := history{
		{version: "1:2.0-1+deb12u2"}, {version: "1:2.0-1"}, {version: "1:1.10+dfsg1-3"}, {version: "1:1.9-1"},
	}
	got, ok := apkVersions(h)
	if want := []string{"2.0-r1", "2.0-r0", "1.10-r0", "1.9-r0"}; !ok || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, ok)
	}
	for _, versions := range [][]string{{"1.9-1", "1.10-1"}, {"1:1.0-1", "2.0-1"}, {"1.0~rc1-1"}} {
		var h history
		for _, v := range versions {
			h = append(h, entry{version: v})
		}
		if got, ok := apkVersions(h); ok {
			t.Errorf("%q: %q", versions, got)
		}
	}
}

// TestAPK writes a recipe and a package, and reads them.
func TestAPK(t *testing.T) {
	dir := t.TempDir()
	m := model{name: "foo", newest: parsed(t)}
	versions, _ := apkVersions(m.newest)
	recipe := filepath.Join(dir, "APKBUILD")
	for from, want := range map[int]fixes{
		0: {
			"CVE-2019-12345": "2.0-r0", "CVE-2024-0001": "2.0-r1", "CVE-2024-0002": "2.0-r1", "CVE-2024-0003": "2.0-r2",
		},
		2: {"CVE-2019-12345": "2.0-r0"},
	} {
		if err := writeAPKBUILD(recipe, m, versions, from); err != nil {
			t.Fatal(err)
		}
		got, err := readSecfixes(recipe)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v, want -, got +\n%s", err, diff)
		}
	}
	p := apkPackage{
		name: "foo-libs", version: "2.0-r1", origin: "foo",
		files: map[string][]byte{"usr/lib/b/c": []byte("c"), "usr/lib/a": []byte("a"), "usr/lib/d": []byte("d")},
	}
	file := filepath.Join(dir, "foo.apk")
	if err := p.write(file); err != nil {
		t.Fatal(err)
	}
	text, err := installAPK(dir, file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\nP:foo-libs\nV:2.0-r1\nA:x86_64\n", "\no:foo\n", "\nI:3\n", "\nF:usr/lib\nR:a\nZ:Q1", "\nR:d\n",
		"\nF:usr/lib/b\nR:c\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if data, err := os.ReadFile(filepath.Join(dir, "usr/lib/b/c")); err != nil || string(data) != "c" {
		t.Errorf("%q, %v", data, err)
	}
}

func TestErrata(t *testing.T) {
	s := &system{packages: []subject{
		{name: "foo", version: "1:2.0-3", source: "foo", sourceVersion: "1:2.0-3"},
		{name: "foo-plugin", version: "3:0.3-1", source: "foo", sourceVersion: "1:2.0-3"},
		{name: "bar", version: "1-1", source: "bar", sourceVersion: "1-1"},
	}}
	h := history{
		{version: "1:2.0-3", since: "1:2.0-3", names: []string{"CVE-2024-0002", "CVE-2024-0001"}},
		{version: "1:2.0-2", since: "1:2.0-2", names: []string{"CVE-2024-0001"}},
		{version: "1:2.0-1"},
	}
	want := []erratum{
		{"foo", []string{"CVE-2024-0002"}, map[string]string{"foo": "1:2.0-3", "foo-plugin": "3:0.3-1"}},
		{"foo", []string{"CVE-2024-0001"}, map[string]string{"foo": "1:2.0-2", "foo-plugin": "3:0.2-1"}},
	}
	if diff := cmp.Diff(want, errataOf(s, "foo", h), cmp.AllowUnexported(erratum{})); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
}
