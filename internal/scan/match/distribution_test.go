package match_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/vulndbtest"
)

// osFeeds are advisories in the form in which their authors publish them.
var osFeeds = map[string]string{
	"DEBIAN-CVE-2024-58382.json": `{"schema_version": "1.9.0", "id": "DEBIAN-CVE-2024-58382",
		"published": "0001-01-01T00:00:00Z", "withdrawn": "0001-01-01T00:00:00Z",
		"modified": "2026-09-12T11:00:05.986201214Z", "upstream": ["CVE-2024-58382"],
		"affected": [
		{"package": {"name": "php-league-commonmark", "ecosystem": "Debian:12"},
		 "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}], "versions": ["2.3.9-1"],
		 "ecosystem_specific": {"urgency": "not yet assigned"}},
		{"package": {"name": "php-league-commonmark", "ecosystem": "Debian:13"},
		 "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2.6.0-1"}]}]}]}`,
	"DEBIAN-CVE-2007-2383.json": `{"id": "DEBIAN-CVE-2007-2383", "modified": "2026-01-01T00:00:00Z",
		"upstream": ["CVE-2007-2383"], "affected": [{"package": {"name": "prototypejs", "ecosystem": "Debian:10"},
		"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}]}]}`,
	"tracker.json": `{"prototypejs": {
		"CVE-2007-2383": {"scope": "remote", "debianbug": 555217, "description": "JavaScript Hijacking.",
		 "releases": {"buster": {"status": "resolved", "repositories": {"buster": "1.7.1-3"}, "fixed_version": "0",
		  "urgency": "unimportant"}}},
		"CVE-2008-7220": {"scope": "remote", "releases": {
		 "buster": {"status": "resolved", "fixed_version": "1.6.0.2-1", "urgency": "high**"},
		 "sid": {"status": "open", "urgency": "high**"}}}},
		"linux": {"CVE-2024-1086": {"releases": {
		 "bookworm": {"status": "resolved", "fixed_version": "6.1.76-1", "urgency": "not yet assigned"}}}},
		"python-django": {"CVE-2023-36053": {"releases": {
		 "bookworm": {"status": "resolved", "fixed_version": "3:3.2.19-1+deb12u1", "urgency": "not yet assigned"}}}},
		"glibc": {"TEMP-0000000-9A7C3E": {"releases": {"bookworm": {"status": "open", "urgency": "low"}}}}}`,
	"UBUNTU-CVE-2022-1292.json": `{"id": "UBUNTU-CVE-2022-1292", "upstream": ["CVE-2022-1292"],
		"related": ["USN-5402-1"], "severity": [{"type": "Ubuntu", "score": "medium"}], "affected": [
		{"package": {"name": "openssl", "ecosystem": "Ubuntu:Pro:14.04:LTS"},
		 "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.0.1f-1ubuntu2.27+esm10"}]}]},
		{"package": {"name": "openssl", "ecosystem": "Ubuntu:22.04:LTS"},
		 "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "3.0.2-0ubuntu1.5"}]}]}]}`,
	"UBUNTU-CVE-2025-29769.json": `{"id": "UBUNTU-CVE-2025-29769", "upstream": ["CVE-2025-29769"], "affected": [
		{"package": {"name": "vips", "ecosystem": "Ubuntu:22.04:LTS"},
		 "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}], "versions": ["8.12.1-1"],
		 "ecosystem_specific": {"binaries": [{"binary_name": "libvips42", "binary_version": "8.12.1-1"}]}},
		{"package": {"name": "vips", "ecosystem": "Ubuntu:Pro:22.04:LTS"},
		 "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "8.12.1-1ubuntu0.1~esm1"}]}]}]}`,
	"ALPINE-CVE-2023-5363.json": `{"id": "ALPINE-CVE-2023-5363", "upstream": ["CVE-2023-5363"], "affected": [
		{"package": {"name": "openssl", "ecosystem": "Alpine:v3.18", "purl": "pkg:apk/alpine/openssl?arch=source"},
		 "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "3.1.4-r0"}]}]}]}`,
	"ALSA-2022:6158.json": `{"id": "ALSA-2022:6158", "summary": "Moderate: php:7.4 security update",
		"affected": [{"package": {"ecosystem": "AlmaLinux:8", "name": "php"},
		 "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"},
		  {"fixed": "7.4.19-4.module_el8.6.0+3238+624bf8b8"}]}]}], "related": ["CVE-2022-31625"],
		"published": "2022-08-24T00:00:00Z", "modified": "2022-11-23T22:19:30Z"}`,
	"ALBA-2019:3482.json": `{"id": "ALBA-2019:3482", "affected": [{"package": {"ecosystem": "AlmaLinux:8",
		"name": "sblim-wbemcli"}, "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"},
		{"fixed": "1.6.3-15.el8"}]}]}]}`,
	"RLSA-2020-4641.json": `{"id": "RLSA-2020-4641", "summary": "Moderate: python38:3.8 security update",
		"upstream": ["CVE-2020-14422"], "affected": [{"package": {"name": "babel", "ecosystem": "Rocky Linux:8"},
		"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"},
		{"fixed": "0:2.7.0-10.module+el8.4.0+570+c2eaf144"}]}]}]}`,
	"RHSA-2025:9978.json": `{"schema_version": "1.7.5", "id": "RHSA-2025:9978", "upstream": ["CVE-2025-32462"],
		"summary": "sudo security update", "affected": [
		{"package": {"name": "sudo", "ecosystem": "Red Hat:enterprise_linux:9::appstream"},
		 "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "0:1.9.5p2-10.el9_6.1"}]}]},
		{"package": {"name": "sudo", "ecosystem": "Red Hat:enterprise_linux:9::baseos"},
		 "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "0:1.9.5p2-10.el9_6.1"}]}]}]}`,
	"RHSA-nodejs.json": `{"id": "RHSA-2026:76750", "upstream": ["CVE-2026-19534"], "affected": [
		{"package": {"ecosystem": "Red Hat:enterprise_linux:9::appstream", "name": "nodejs"}, "ranges": [
		 {"type": "ECOSYSTEM", "events": [{"introduced": "0"},
		  {"fixed": "1:22.23.2-2.module+el9.8.0+24958+80b2ac6e"}]}]},
		{"package": {"ecosystem": "Red Hat:rhel_eus:9.2::appstream", "name": "nodejs"}, "ranges": [
		 {"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1:22.0.0-1"}]}]}]}`,
	"RHSA-nodejs20.json": `{"id": "RHSA-2026:76751", "upstream": ["CVE-2026-19534"], "affected": [
		{"package": {"ecosystem": "Red Hat:enterprise_linux:9::appstream", "name": "nodejs"}, "ranges": [
		 {"type": "ECOSYSTEM", "events": [{"introduced": "0"},
		  {"fixed": "1:20.20.1-1.module+el9.8.0+24957+70b2ac6e"}]}]}]}`,
	"RHSA-nodejs20-again.json": `{"id": "RHSA-2026:76760", "upstream": ["CVE-2026-19534"], "affected": [
		{"package": {"ecosystem": "Red Hat:enterprise_linux:9::appstream", "name": "nodejs"}, "ranges": [
		 {"type": "ECOSYSTEM", "events": [{"introduced": "0"},
		  {"fixed": "1:20.21.0-1.module+el9.8.0+25000+70b2ac6e"}]}]}]}`,
	"ALSA-npm18.json": `{"id": "ALSA-2025:4459", "affected": [{"package": {"ecosystem": "AlmaLinux:8",
		"name": "npm"}, "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"},
		{"fixed": "1:10.8.2-1.18.20.8.1.module_el8.10.0+3990+a2d26c46"}]}]}], "related": ["CVE-2025-27516"]}`,
	"ALSA-npm22.json": `{"id": "ALSA-2025:4461", "affected": [{"package": {"ecosystem": "AlmaLinux:8",
		"name": "npm"}, "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"},
		{"fixed": "1:10.9.2-1.22.15.0.1.module_el8.10.0+3991+a2d26c46"}]}]}], "related": ["CVE-2025-27516"]}`,
	"SUSE-SU.json": `{"id": "SUSE-SU-2026:0312-1", "upstream": ["CVE-2024-2511", "CVE-2024-4603"], "affected": [
		{"package": {"name": "openssl-3", "ecosystem": "SUSE:Linux Enterprise Module for Basesystem 15 SP5"},
		 "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "3.0.8-150500.5.30.1"}]}],
		 "ecosystem_specific": {"binaries": [{"libopenssl3": "3.0.8-150500.5.30.1",
		  "openssl-3": "3.0.8-150500.5.30.1"}]}}]}`,
	"GHSA-django.json": `{"id": "GHSA-jh3w-4vvf-mjgr", "aliases": ["CVE-2023-36053"], "affected": [{"package": {
		"ecosystem": "PyPI", "name": "django"}, "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "3.2a1"},
		{"fixed": "3.2.20"}]}]}]}`,
	"GHSA-jinja.json": `{"id": "GHSA-h5c8-rqwp-cp95", "aliases": ["CVE-2024-22195"], "affected": [{"package": {
		"ecosystem": "PyPI", "name": "jinja2"}, "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"},
		{"fixed": "3.1.3"}]}]}]}`,
	"GHSA-prototype.json": `{"id": "GHSA-2222-2222-2222", "aliases": ["CVE-2007-2383"], "affected": [{"package": {
		"ecosystem": "PyPI", "name": "prototype"}, "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"},
		{"fixed": "2.0"}]}]}]}`,
	"GHSA-aliased.json": `{"id": "GHSA-3333-3333-3333", "affected": [{"package": {
		"ecosystem": "PyPI", "name": "aliased"}, "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"},
		{"fixed": "2.0"}]}]}]}`,
	"DEBIAN-aliased.json": `{"id": "DEBIAN-CVE-2024-99999", "upstream": ["CVE-2024-99999", "GHSA-3333-3333-3333"],
		"affected": [{"package": {"name": "aliased", "ecosystem": "Debian:12"},
		"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}]}]}`,
	"rubies/ruby/CVE-2024-49761.yml": "---\nengine: ruby\ncve: 2024-49761\npatched_versions:\n- \">= 3.2.0\"\n",
}

// osPackage returns a package: "deb debian:12 libssl3 3.0.11-1 openssl 3.0.11-1".
func osPackage(text string) catalog.Package {
	f := strings.Fields(text)
	p := pkg(catalog.PackageType(f[0]), f[2], f[3])
	p.Distribution, p.Source, p.SourceVersion = f[1], f[2], f[3]
	if len(f) > 4 {
		p.Source, p.SourceVersion = f[4], f[5]
	}
	return p
}

func TestPackagesOfDistributions(t *testing.T) {
	db, _ := vulndbtest.FromFeeds(t, osFeeds)
	for text, want := range map[string]string{
		"deb debian:12 php-league-commonmark 2.3.9-1":   "CVE-2024-58382 >= 0",
		"deb debian:12 php-league-commonmark 9.0-1":     "CVE-2024-58382 >= 0",
		"deb debian:13 php-league-commonmark 2.6.0~1-1": "CVE-2024-58382 < 2.6.0-1",
		"deb debian:13 php-league-commonmark 2.6.0-1":   "",
		// The tracker overrules its older copy: not affected.
		"deb debian:10 libjs-prototype 1.7.1-3 prototypejs 1.7.1-3": "",
		"deb debian:10 libjs-prototype 1.5.1-1 prototypejs 1.5.1-1": "CVE-2008-7220 < 1.6.0.2-1",
		// The source of signed kernels is another one.
		"deb debian:12 linux-image-6.1.0-17-amd64 6.1.69-1 linux-signed-amd64 6.1.69+1": "CVE-2024-1086 < 6.1.76-1",
		"deb debian:12 linux-image-6.1.0-18-amd64 6.1.76-1 linux-signed-amd64 6.1.76+1": "",
		"deb debian:12 libc6 2.36-9 glibc 2.36-9":                                       "TEMP-0000000-9A7C3E >= 0",
		"deb ubuntu:22.04 libssl3 3.0.2-0ubuntu1.4 openssl 3.0.2-0ubuntu1.4": "CVE-2022-1292 < " +
			"3.0.2-0ubuntu1.5",
		"deb ubuntu:22.04 libssl3 3.0.2-0ubuntu1.15 openssl 3.0.2-0ubuntu1.15":          "",
		"deb ubuntu:22.04 libvips42 8.12.1-1 vips 8.12.1-1":                             "CVE-2025-29769 >= 0",
		"deb ubuntu:22.04 libvips42 8.12.1-1ubuntu0.1~esm1 vips 8.12.1-1ubuntu0.1~esm1": "",
		"deb ubuntu:22.04 libvips42 8.12.1-1ubuntu0.1~esm0 vips 8.12.1-1ubuntu0.1~esm0": "CVE-2025-29769 < " +
			"8.12.1-1ubuntu0.1~esm1",
		"apk alpine:3.18 libssl3 3.1.3-r5 openssl 3.1.3-r5":   "CVE-2023-5363 < 3.1.4-r0",
		"apk alpine:3.18 libssl3 3.1.4_rc1 openssl 3.1.4_rc1": "CVE-2023-5363 < 3.1.4-r0",
		"apk alpine:3.18 libssl3 3.1.4-r0 openssl 3.1.4-r0":   "",
		"rpm almalinux:8.6 php 7.4.19-3.module_el8.6.0+3100+1": "CVE-2022-31625 < " +
			"7.4.19-4.module_el8.6.0+3238+624bf8b8",
		"rpm almalinux:8.6 php 7.2.24-1.el8": "", // outside of modules
		// The same npm is in several streams of nodejs.
		"rpm almalinux:8.10 npm 1:10.8.2-1.18.20.8.1.module_el8.10.0+3990+a2d26c46": "",
		"rpm almalinux:8.10 npm 1:10.8.2-1.18.20.6.1.module_el8.10.0+3950+a2d26c46": "CVE-2025-27516 < " +
			"1:10.8.2-1.18.20.8.1.module_el8.10.0+3990+a2d26c46",
		"rpm almalinux:8.10 npm 1:10.9.2-1.22.14.0.1.module_el8.10.0+3950+a2d26c46": "CVE-2025-27516 < " +
			"1:10.9.2-1.22.15.0.1.module_el8.10.0+3991+a2d26c46",
		"rpm almalinux:8.6 sblim-wbemcli 1.6.3-1.el8": "", // of a bug fix
		"rpm rocky:8.4 python38-babel 2.7.0-9.module+el8.4.0+500+1 babel 2.7.0-9.module+el8.4.0+500+1": "" +
			"CVE-2020-14422 < 0:2.7.0-10.module+el8.4.0+570+c2eaf144",
		"rpm rhel:9.4 sudo 1.9.5p2-10.el9_3":   "CVE-2025-32462 < 0:1.9.5p2-10.el9_6.1",
		"rpm rhel:9.6 sudo 1.9.5p2-10.el9_6.1": "",
		"rpm rhel:9.6 sudo 1:1.0-1.el9":        "",
		"rpm rhel:8.9 sudo 1.8.29-10.el8":      "",
		"rpm rhel:9.8 nodejs 1:22.20.0-1.module+el9.8.0+1+a": "CVE-2026-19534 < " +
			"1:22.23.2-2.module+el9.8.0+24958+80b2ac6e",
		// A fix that was not whole was followed by another one of the same stream.
		"rpm rhel:9.8 nodejs 1:20.20.1-1.module+el9.8.0+24957+70b2ac6e": "CVE-2026-19534 < " +
			"1:20.21.0-1.module+el9.8.0+25000+70b2ac6e",
		"rpm rhel:9.8 nodejs 1:20.21.0-1.module+el9.8.0+25000+70b2ac6e": "",
		"rpm sles:15.5 libopenssl3 3.0.8-150500.5.21.1 openssl-3 3.0.8-150500.5.21.1": "CVE-2024-2511 < " +
			"3.0.8-150500.5.30.1; CVE-2024-4603 < 3.0.8-150500.5.30.1",
		"rpm sles:15.5 libopenssl3 3.0.8-150500.5.30.1 openssl-3 3.0.8-150500.5.30.1": "",
		"brew - ruby 3.1.6_1":   "CVE-2024-49761 < 3.2.0",
		"brew - ruby@3.2 3.2.0": "",

		// The advisory lists what is built from its source, and not this package.
		"rpm almalinux:8.6 php-other 7.4.19-3.module_el8.6.0+3100+1 php 7.4.19-3.module_el8.6.0+3100+1": "",
		"rpm rhel:9.4 sudo-other 1.9.5p2-10.el9_3 sudo 1.9.5p2-10.el9_3":                                "",
	} {
		p := osPackage(text)
		if p.Kind == catalog.Brew {
			p = pkg(p.Kind, p.Name, p.Version)
		}
		r := run(t, db, match.Options{}, p)
		var got []string
		for _, f := range r.Findings {
			got = append(got, f.Vulnerability.ID+" "+f.Constraint)
		}
		if strings.Join(got, "; ") != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
		if len(r.NotEvaluated) > 0 {
			t.Errorf("%s: not evaluated: %+v", text, r.NotEvaluated)
		}
	}
}

// A package whose version is not that of its source cannot be compared with advisories about the source.
func TestOtherVersionThanItsSource(t *testing.T) {
	db, _ := vulndbtest.FromFeeds(t, osFeeds)
	r := run(t, db, match.Options{},
		osPackage("rpm rocky:8.4 python38-other 9.9-1.module+el8.4.0 babel 2.7.0-9.module+el8.4.0"))
	if len(r.NotEvaluated) != 1 || !strings.Contains(r.NotEvaluated[0].Reason, "about its source babel") {
		t.Errorf("not evaluated: %+v", r.NotEvaluated)
	}
}

// Packages that others build under the names of a distribution's have other versions than its advisories.
func TestPackagesOfOtherVendors(t *testing.T) {
	db, _ := vulndbtest.FromFeeds(t, osFeeds)
	for text, mark := range map[string]string{
		"deb debian:12 php-league-commonmark 2.5.0-1nodesource1":           "nodesource",
		"deb debian:12 php-league-commonmark 2.5.0-1.pgdg120+1":            "pgdg",
		"deb debian:12 php-league-commonmark 2.5.0-1~bookworm":             "~bookworm",
		"deb debian:12 php-league-commonmark 1:2.5.0+maria~deb12":          "+maria~",
		"deb ubuntu:22.04 libvips42 8.12.1-2~ubuntu.22.04~jammy vips 8.12": "~jammy",
		"rpm rhel:9.4 sudo 1:1.9.5p2-1.el9.ngx":                            ".ngx",
		"rpm almalinux:8.6 php 7.4.19-1.el8.remi":                          ".remi",
	} {
		r := run(t, db, match.Options{}, osPackage(text))
		if len(r.Findings) > 0 || len(r.NotEvaluated) != 1 ||
			!strings.Contains(r.NotEvaluated[0].Reason, "its version has \""+mark+"\", of another vendor") {
			t.Errorf("%s: %d findings, not evaluated: %+v", text, len(r.Findings), r.NotEvaluated)
		}
	}
	// These are of the distributions.
	for _, text := range []string{
		"deb debian:12 php-league-commonmark 2.3.9-1~deb12u1", "deb debian:12 php-league-commonmark 2.5.0-1~bpo12+1",
		"deb ubuntu:22.04 libvips42 8.12.1-1~22.04.1 vips 8.12.1-1~22.04.1",
	} {
		if r := run(t, db, match.Options{}, osPackage(text)); len(r.Findings) != 1 || len(r.NotEvaluated) > 0 {
			t.Errorf("%s: %d findings, not evaluated: %+v", text, len(r.Findings), r.NotEvaluated)
		}
	}
	inside := pkg(catalog.Python, "Django", "3.2.19")
	inside.Distribution, inside.Owner = "debian:12", "deb/python-django@3:3.2.19-1~bookworm"
	r := run(t, db, match.Options{}, inside)
	expect(t, found(r), "Django 3.2.19 CVE-2023-36053 >= 3.2a1, < 3.2.20")
	if f := r.Findings; len(f) == 1 && f[0].DistroPatched != "" {
		t.Errorf("marked as %s", f[0].DistroPatched)
	}
}

// What a distribution packages is evaluated by its advisories where they have the vulnerability, else by its own.
func TestPackagesInsideOfOthers(t *testing.T) {
	db, _ := vulndbtest.FromFeeds(t, osFeeds)
	owner := osPackage("deb debian:12 python3-django 3:3.2.19-1+deb12u1 python-django 3:3.2.19-1+deb12u1")
	old := osPackage("deb debian:12 python3-django 3:3.2.19-1 python-django 3:3.2.19-1")
	inside := func(name, version, distribution, owner string) catalog.Package {
		p := pkg(catalog.Python, name, version)
		p.Distribution, p.Owner = distribution, owner
		return p
	}
	vendored := osPackage("deb debian:12 vendored 1-1 prototypejs 1-1")
	for name, tc := range map[string]struct {
		packages []catalog.Package
		want     string
		marked   bool
		leftOut  int
	}{
		"fixed without a new version": {
			packages: []catalog.Package{owner, inside("Django", "3.2.19", "debian:12", owner.OwnerName())},
			leftOut:  1,
		},
		"reported once, for the owner": {
			packages: []catalog.Package{old, inside("Django", "3.2.19", "debian:12", old.OwnerName())},
			want:     "python3-django 3:3.2.19-1 CVE-2023-36053 < 3:3.2.19-1+deb12u1",
			leftOut:  1,
		},
		"other advisories about the owner": {
			packages: []catalog.Package{owner, inside("jinja2", "3.1.2", "debian:12", owner.OwnerName())},
			want:     "jinja2 3.1.2 CVE-2024-22195 < 3.1.3", marked: true,
		},
		"not affected, says the distribution": {
			packages: []catalog.Package{inside("Prototype", "1.0", "debian:10", "deb/prototypejs@1.7.1-3")},
			leftOut:  1,
		},
		"advisories about the owner in another release": {
			packages: []catalog.Package{vendored, inside("Prototype", "1.0", "debian:12", vendored.OwnerName())},
			want:     "Prototype 1.0 CVE-2007-2383 < 2.0", marked: true,
		},
		"an alias": {
			packages: []catalog.Package{inside("aliased", "1.0", "debian:12", "deb/aliased@1.0-1")},
			leftOut:  1,
		},
		"no advisory about the owner": {
			packages: []catalog.Package{inside("jinja2", "3.1.2", "debian:12", "deb/python3-jinja2@3.1.2-1")},
			want:     "jinja2 3.1.2 CVE-2024-22195 < 3.1.3", marked: true,
		},
		"no advisories of the distribution": {
			packages: []catalog.Package{inside("Django", "3.2.19", "linuxmint:21", owner.OwnerName())},
			want:     "Django 3.2.19 CVE-2023-36053 >= 3.2a1, < 3.2.20", marked: true,
		},
		"of a formula": {
			packages: []catalog.Package{inside("jinja2", "3.1.2", "", "brew/ansible@9.1.0")},
			want:     "jinja2 3.1.2 CVE-2024-22195 < 3.1.3",
		},
	} {
		r := run(t, db, match.Options{}, tc.packages...)
		if got := strings.Join(found(r), "; "); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
			continue
		}
		if r.Suppressed != (match.Suppressed{Owner: tc.leftOut}) || r.Suppressed.Total() != tc.leftOut {
			t.Errorf("%s: left out: %+v, want %d of an owner", name, r.Suppressed, tc.leftOut)
		}
		for _, f := range r.Findings {
			if marked := f.DistroPatched == match.DistroPatchedUnknown; marked != tc.marked {
				t.Errorf("%s: marked: %v, want %v", name, marked, tc.marked)
			}
			fail := match.FailOn{Unknown: true, Severity: vulndb.Low}
			bad, maybe := len(fail.Fails(r.Findings)), fail.MayBePatched(r.Findings)
			if (bad == 0) != tc.marked || (maybe > 0) != tc.marked {
				t.Errorf("%s: %d fail a build, %d may be patched", name, bad, maybe)
			}
		}
	}
}

// What the distribution says nothing about is explained and reported, the rest is explained and left out.
func TestExplainInsideOfOthers(t *testing.T) {
	db, _ := vulndbtest.FromFeeds(t, osFeeds)
	p := pkg(catalog.Python, "Django", "3.2.19")
	p.Distribution, p.Owner = "debian:12", "deb/python-django@3:3.2.19-1"
	e, err := match.Explain(t.Context(), db, match.ExplainRequest{ID: "CVE-2023-36053", Package: p}, match.Options{})
	want := "It is left out: debian:12 has an advisory about it and the source of " + p.Owner + "."
	if err != nil || e.Finding != nil || !slices.Contains(e.Steps, want) {
		t.Errorf("got %+v, %v", e, err)
	}
	p.Owner = "deb/other@1"
	e, err = match.Explain(t.Context(), db, match.ExplainRequest{ID: "CVE-2023-36053", Package: p}, match.Options{})
	if err != nil || e.Finding == nil || e.Finding.DistroPatched != match.DistroPatchedUnknown {
		t.Errorf("got %+v, %v", e, err)
	}
}

func TestNoAdvisories(t *testing.T) {
	db, _ := vulndbtest.FromFeeds(t, osFeeds)
	mint := osPackage("deb linuxmint:21.3 libssl3 3.0.2 openssl 3.0.2")
	sid := osPackage("deb debian:12 libssl3 3.0.2 openssl 3.0.2")
	sid.Distribution = ""
	r := run(t, db, match.Options{}, mint, sid,
		osPackage("apk alpine:3.20 libssl3 3.3.0-r0 openssl 3.3.0-r0"), osPackage("apk alpine:3.20 zlib 1.3-r0"),
		osPackage("apk alpine:3.18 zlib 1.3-r0"), osPackage("apk debian:12 zlib 1.3-r0"),
		pkg(catalog.NPM, "lodash", "1.0.0"), pkg(catalog.Python, "six", "1.0"), pkg(catalog.MacOSApp, "Safari", "1"))
	var got []string
	for _, n := range r.NoAdvisories {
		got = append(got, n.String())
	}
	expect(t, got, "no advisories for deb packages of an unknown release: 1 package was not evaluated",
		"no advisories for macos-app: 1 package was not evaluated",
		"no advisories for npm: 1 package was not evaluated",
		"no advisories for alpine:3.20: 2 packages were not evaluated",
		"no advisories for debian:12: 1 package was not evaluated",
		"no advisories for linuxmint:21.3: 1 package was not evaluated")
	e, err := match.Explain(t.Context(), db, match.ExplainRequest{
		ID:      "CVE-2023-5363",
		Package: osPackage("apk alpine:3.20 libssl3 3.3.0-r0 openssl 3.3.0-r0"),
	}, match.Options{})
	if err != nil || !slices.Contains(e.Steps, "The database has no advisories for Alpine:v3.20.") {
		t.Errorf("got %+v, %v", e, err)
	}
}

// A package that could be compared with one of its criteria is evaluated.
func TestNotEvaluatedAtAll(t *testing.T) {
	a := fixed("GHSA-1", vulndb.GHSA, "2.0.0", "CVE-2024-1")
	b := fixed("GHSA-2", vulndb.GHSA, "not.a.version", "CVE-2024-2")
	a.Ecosystem, b.Ecosystem, a.Name, b.Name = vulndb.NPM, vulndb.NPM, "p", "p"
	both := &memory{advisories: []vulndb.Advisory{a, b}}
	if r := run(t, both, match.Options{}, pkg(catalog.NPM, "p", "1.0.0")); len(r.NotEvaluated) != 0 {
		t.Errorf("not evaluated: %+v, findings: %+v", r.NotEvaluated, r.Findings)
	}
	if r := run(t, both, match.Options{}, pkg(catalog.NPM, "p", "latest")); len(r.NotEvaluated) != 1 {
		t.Errorf("got %+v", r.NotEvaluated)
	}
	one := &memory{advisories: []vulndb.Advisory{b}}
	if r := run(t, one, match.Options{}, pkg(catalog.NPM, "p", "1.0.0")); len(r.NotEvaluated) != 1 {
		t.Errorf("got %+v", r.NotEvaluated)
	}
}

// A Swift package that is pinned to a commit, or from a package registry, is not evaluated, and the report says why.
func TestSwiftWithoutVersion(t *testing.T) {
	a := vulndb.Advisory{
		ID: "GHSA-1", Source: vulndb.GHSA, Ecosystem: vulndb.SwiftURL, Name: "github.com/a/p",
		CVEs: []string{"CVE-2024-1"}, Ranges: []vulndb.Range{{Fixed: "2.0.0"}},
	}
	commit := strings.Repeat("1", 40) // digits alone, which would be a version
	r := run(t, &memory{advisories: []vulndb.Advisory{a}}, match.Options{},
		pkg(catalog.Swift, "github.com/a/p", "1.0.0"), pkg(catalog.Swift, "github.com/a/p", commit),
		pkg(catalog.Swift, "github.com/a/other", commit), pkg(catalog.Swift, "a.p", "1.0.0"))
	expect(t, found(r), "github.com/a/p 1.0.0 CVE-2024-1 < 2.0.0")
	var got []string
	for _, n := range r.NotEvaluated {
		got = append(got, n.Package.Name+" "+n.Package.Version+": "+n.Reason)
	}
	slices.Sort(got)
	expect(t, got, "a.p 1.0.0: it is from a package registry, and advisories name packages by their repository",
		"github.com/a/p "+commit+": it is pinned to a commit, not to a version")
}

// The releases of os-release have the names that they have in OSV.
func TestReleaseNames(t *testing.T) {
	for distribution, want := range map[string]string{
		"debian:12": "Debian:12", "debian:12.5": "Debian:12", "ubuntu:24.04": "Ubuntu:24.04",
		"alpine:3.20": "Alpine:v3.20", "rhel:9.4": "Red Hat:enterprise_linux:9", "rocky:8.10": "Rocky Linux:8",
		"almalinux:10.0": "AlmaLinux:10", "sles:15.5": "SUSE:Linux Enterprise Server 15 SP5",
		"sles:15": "SUSE:Linux Enterprise Server 15", "sles_sap:12.5": "SUSE:Linux Enterprise Server 12 SP5",
		"sles:16.0": "SUSE:Linux Enterprise Server 16.0", "opensuse-leap:15.5": "openSUSE:Leap 15.5",
		"opensuse-tumbleweed:20240801": "openSUSE:Tumbleweed", "debian:": "", "debian:trixie/sid": "", "": "",
		"linuxmint:21.3": "", "ol:9.4": "", "centos:9": "", "ubuntu:22": "", "alpine:3": "", "alpine:edge": "",
	} {
		var got []string
		for _, kind := range []catalog.PackageType{catalog.Deb, catalog.RPM, catalog.APK} {
			p := catalog.Package{Kind: kind, Name: "x", Version: "1", Source: "x", Distribution: distribution}
			got = append(got, match.EcosystemsOf(&p)...)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: got %q, want %q", distribution, got, want)
		}
	}
}
