package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/buildyard/buildyard/api"
)

// lodashAdvisory is the advisory that the database of this test case has.
const lodashAdvisory = `{"schema_version": "1.4.0", "id": "GHSA-jf85-cpcp-j695", "aliases": ["CVE-2019-10744"],
 "modified": "2023-01-09T05:02:38Z",
 "affected": [{"package": {"ecosystem": "npm", "name": "lodash"},
   "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}, {"fixed": "4.17.12"}]}]}],
 "severity": [{"type": "CVSS_V3", "score": "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:H/A:H"}]}`

// jobAct is the use of the scanner by jobs of a CI system at the same time.
type jobAct struct {
	s *stage
	v *service
}

// job runs it.
func job(ctx context.Context, s *stage) error {
	feed, db := s.back("job-feed"), s.at("state", "job.db")
	if err := writeTree(feed, map[string][]byte{"lodash.json": []byte(lodashAdvisory)}); err != nil {
		return err
	}
	if _, err := s.sh(ctx, "", s.program("imagescan"), "db", "build", feed, "--db-path", db); err != nil {
		return err
	}
	v, err := s.begin(ctx, "job", settings{database: db})
	if err != nil {
		return err
	}
	defer func() { _ = v.End() }()
	a := &jobAct{s, v}
	if err := a.prepare(); err != nil {
		return err
	}
	s.try("mark before scanning", func(r *row) error { return a.tooEarly(ctx, r) })
	s.try("jobs at the same time", func(r *row) error { return a.jobs(ctx, r) })
	s.try("dpkg install by a job", func(r *row) error { return a.dpkg(ctx, r) })
	s.try("marks after a kill", func(r *row) error { return a.kill(ctx, r) })
	s.try("tree of a Mac", func(r *row) error { return a.mac(ctx, r) })
	return nil
}

// root is the root of the system into which a job installs packages.
func (a *jobAct) root(parts ...string) string {
	return a.s.host(append([]string{"sysroot"}, parts...)...)
}

// prepare makes the workspaces and an empty system.
func (a *jobAct) prepare() error {
	for _, dir := range []string{
		a.s.host("build", "a"), a.s.host("build", "b"), a.root("var/lib/dpkg/info"), a.root("var/lib/dpkg/updates"),
		a.root("var/lib/dpkg/triggers"),
	} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return writeTree(a.root(), map[string][]byte{
		"etc/os-release": []byte("ID=debian\nVERSION_ID=\"12\"\n"), "var/lib/dpkg/status": nil,
	})
}

// lodash installs a package with a vulnerability in a workspace, as npm leaves it.
func (a *jobAct) lodash(workspace string) (packageFile, error) {
	u := unit{"npm", "lodash", "4.17.11"}
	dir := a.s.host("build", workspace)
	return u.at(dir), writeTree(dir, u.files())
}

// since reads the report of a job by the command, which must end with an exit status.
func (a *jobAct) since(ctx context.Context, r *row, job string, status int) (map[packageFile]bool, error) {
	if _, err := a.v.command(ctx, r, status, "", "report", "--since-job", job, "--fail-on", "critical"); err != nil {
		return nil, err
	}
	var list []api.HostPackage
	err := a.v.ask(ctx, "GET", "/v1/report/packages", map[string][]string{"since_job": {job}}, &list)
	return placed(list), err
}

// tooEarly marks a job while nothing is scanned: its report says that it is incomplete.
func (a *jobAct) tooEarly(ctx context.Context, r *row) error {
	for _, c := range []struct {
		status int
		args   string
	}{
		{0, "mark early"},
		{1, "mark early"},
		{7, "report --since-job early"},
		{1, "report --since-job unknown"},
		{2, "mark"},
	} {
		if _, err := a.v.command(ctx, r, c.status, "", strings.Fields(c.args)...); err != nil {
			return err
		}
	}
	_, err := a.v.command(ctx, r, 0, "Scan State: Real-Time", "real-time-scan", "start")
	if err != nil {
		return err
	}
	return a.v.quiet(ctx)
}

// jobs installs the same package in two workspaces: each job sees its own.
func (a *jobAct) jobs(ctx context.Context, r *row) error {
	for _, name := range []string{"a", "b"} {
		if _, err := a.v.command(ctx, r, 0, "", "mark", "job-"+name, "--path", a.s.host("build", name)); err != nil {
			return err
		}
	}
	one, err := a.lodash("a")
	if err != nil {
		return err
	}
	// Immediately: the report waits for what was written before it.
	got, err := a.since(ctx, r, "job-a", 8)
	if err != nil {
		return err
	}
	differ(r, map[packageFile]bool{one: true}, got, "missing", "additional")
	if got, err = a.since(ctx, r, "job-b", 0); err != nil {
		return err
	}
	differ(r, nil, got, "missing", "additional")
	other, err := a.lodash("b")
	if err != nil {
		return err
	}
	if got, err = a.since(ctx, r, "job-b", 8); err != nil {
		return err
	}
	differ(r, map[packageFile]bool{other: true}, got, "missing", "additional")
	r.Says = fmt.Sprintf("%d checks of two jobs with one package", r.All)
	return nil
}

// dpkg installs a package of Debian's form by dpkg while the host is watched.
func (a *jobAct) dpkg(ctx context.Context, r *row) error {
	if _, err := a.v.command(ctx, r, 0, "", "mark", "job-dpkg"); err != nil {
		return err
	}
	const name, version = "buildyard-job", "1.2-3"
	tree := a.s.back("deb")
	control := "Package: " + name + "\nVersion: " + version + "\nArchitecture: all\n" +
		"Maintainer: Test <test@example.test>\nDescription: test\n"
	if err := writeTree(tree, map[string][]byte{
		"DEBIAN/control": []byte(control), "usr/share/" + name + "/text": []byte("text\n"),
	}); err != nil {
		return err
	}
	file := a.s.back(name + ".deb")
	if _, err := a.s.sh(ctx, "", "dpkg-deb", "--root-owner-group", "--build", tree, file); err != nil {
		return err
	}
	if _, err := a.s.sh(ctx, "", "dpkg", "--root="+a.root(), "--install", file); err != nil {
		return err
	}
	// The database has no advisories for Debian, so that the report is incomplete, and says so.
	got, err := a.since(ctx, r, "job-dpkg", 7)
	want := map[packageFile]bool{{"deb", name, version, a.root("var/lib/dpkg/status")}: true}
	differ(r, want, got, "missing", "additional")
	r.Says = "in the report since the job immediately"
	return err
}

// kill ends the service: the marks and what came since are still known.
func (a *jobAct) kill(ctx context.Context, r *row) error {
	if err := a.v.Kill(); err != nil {
		return err
	}
	if err := a.v.up(ctx); err != nil {
		return err
	}
	got, err := a.since(ctx, r, "job-a", 8)
	differ(r, map[packageFile]bool{unit{"npm", "lodash", "4.17.11"}.at(a.s.host("build", "a")): true}, got, "missing",
		"additional")
	r.Says = "the report is as before"
	return err
}

// mac writes what macOS has: applications, and receipts of installer packages.
func (a *jobAct) mac(ctx context.Context, r *row) error {
	if _, err := a.v.command(ctx, r, 0, "", "mark", "job-mac", "-d", a.s.host()); err != nil {
		return err
	}
	receipt := func(id, version string) []byte {
		return fmt.Appendf(nil, "{ PackageIdentifier = %q; PackageVersion = %q; }", id, version)
	}
	const receipts, tools = "private/var/db/receipts/", "com.apple.pkg.CLTools_Executables"
	mac := a.s.host("mac")
	if err := writeTree(mac, map[string][]byte{
		"Applications/Xcode.app/Contents/Info.plist": []byte("{ CFBundleName = Xcode; " +
			`CFBundleShortVersionString = "13.3.1"; CFBundleIdentifier = "com.apple.dt.Xcode"; }`),
		receipts + tools + ".plist":            receipt(tools, "13.3.1.0.1"),
		receipts + tools + ".bom":              []byte("BOMStore usr\x00bin\x00git\x00"),
		receipts + "com.apple.pkg.Xcode.plist": receipt("com.apple.pkg.Xcode", "13.3.1.1"),
		receipts + "com.apple.pkg.Xcode.bom":   []byte("BOMStore Xcode.app\x00"),
	}); err != nil {
		return err
	}
	got, err := a.since(ctx, r, "job-mac", 7) // the database has no products, so applications are not evaluated
	want := map[packageFile]bool{
		{"macos-app", "Xcode", "13.3.1", filepath.Join(mac, "Applications/Xcode.app/Contents/Info.plist")}: true,
		{
			"macos-pkg", tools, "13.3.1.0.1", filepath.Join(mac, receipts, tools+".bom"),
		}: true,
	}
	differ(r, want, got, "missing", "additional")
	r.Says = "an application and a receipt, each once"
	return err
}
