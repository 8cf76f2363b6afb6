package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/scan/catalog"
	"github.com/buildyard/buildyard/test/rig"
)

// rpmSystem is a kind of system of RPM packages.
type rpmSystem struct {
	name      string
	osRelease string
	// release returns the release of the n-th package of a version, from 1.
	release func(n int) string
	// convert converts the database of a system to another form; nil: SQLite is that of the system.
	convert func(ctx context.Context, s *site, tree string) error
	errata  errataForm
}

const rpmDir = "var/lib/rpm"

var rpmSystems = []rpmSystem{
	{
		"rocky", "ID=\"rocky\"\nVERSION_ID=\"9.4\"\n", redHatRelease("el9"), nil,
		errataForm{prefix: "RLSA-", ecosystem: "Rocky Linux:9", epoch: "0:"},
	},
	{
		"almalinux", "ID=\"almalinux\"\nVERSION_ID=\"8.10\"\n", redHatRelease("el8"), toBerkeleyDB,
		errataForm{prefix: "ALSA-", ecosystem: "AlmaLinux:8", related: true},
	},
	{
		"sles", "ID=\"sles\"\nVERSION_ID=\"15.5\"\n", func(n int) string { return fmt.Sprintf("150500.%d.1", n) },
		toNDB,
		errataForm{
			prefix: "SUSE-SU-", suffix: "-1", binaries: true,
			ecosystem: "SUSE:Linux Enterprise Module for Basesystem 15 SP5",
		},
	},
}

// redHatRelease returns releases as Red Hat numbers them: 1.el9, 1.el9_4.1, 2.el9.
func redHatRelease(tag string) func(n int) string {
	return func(n int) string {
		if n%2 == 0 {
			return fmt.Sprintf("%d.%s_4.1", n/2, tag)
		}
		return fmt.Sprintf("%d.%s", n/2+1, tag)
	}
}

// rpmVersion is a version of an RPM package.
type rpmVersion struct{ epoch, version, release string }

func (v rpmVersion) String() string {
	if v.epoch == "" {
		return v.version + "-" + v.release
	}
	return v.epoch + ":" + v.version + "-" + v.release
}

var notInRPM = regexp.MustCompile(`[^A-Za-z0-9._+~^]`)

// rpmHistory returns the history of a source, oldest first, with the versions that RPM packages of it have. An entry
// that RPM does not order after the one before is joined with the next one.
func rpmHistory(ctx context.Context, m model, release func(int) string) ([]entry, []rpmVersion, error) {
	entries := slices.Clone(m.newest)
	slices.Reverse(entries)
	versions := make([]rpmVersion, len(entries))
	n, last := 0, ""
	for i, e := range entries {
		epoch, version := upstream(e.version)
		v := rpmVersion{epoch: epoch, version: notInRPM.ReplaceAllString(version, ".")}
		if n++; epoch+":"+v.version != last {
			n, last = 1, epoch+":"+v.version
		}
		v.release = release(n)
		versions[i] = v
	}
	var script strings.Builder
	for i := range versions {
		for k := range i {
			fmt.Fprintf(&script, "print(rpm.vercmp('%s', '%s')..' ') ", versions[i], versions[k])
		}
	}
	text, err := rig.Output(ctx, "", "rpm", "--eval", "%{lua: "+script.String()+"}")
	if err != nil {
		return nil, nil, err
	}
	order := strings.Fields(text)
	if want := len(versions) * (len(versions) - 1) / 2; len(order) != want {
		return nil, nil, fmt.Errorf("rpm compared %d versions instead of %d: %.200s", len(order), want, text)
	}
	var outEntries []entry
	var outVersions []rpmVersion
	var joined []string
	var kept []int
	for i := range versions {
		if slices.ContainsFunc(kept, func(k int) bool { return order[i*(i-1)/2+k] != "1" }) {
			joined = append(joined, entries[i].names...)
			continue
		}
		e := entries[i]
		e.names = append(slices.Clone(e.names), joined...)
		joined, kept = nil, append(kept, i)
		outEntries, outVersions = append(outEntries, e), append(outVersions, versions[i])
	}
	return outEntries, outVersions, nil
}

// rpmSpec writes the spec file of a source in the version of the last entry. Every other source has a package whose
// version is its own.
func rpmSpec(m model, entries []entry, versions []rpmVersion) string {
	v := versions[len(versions)-1]
	var b strings.Builder
	epoch := ""
	if v.epoch != "" {
		epoch = "Epoch: " + v.epoch + "\n"
	}
	fmt.Fprintf(&b, "Name: %s\n%sVersion: %s\nRelease: %s\nSummary: %[1]s\nLicense: MIT\n", m.name, epoch, v.version,
		v.release)
	b.WriteString("%description\nTest.\n%package libs\nSummary: Libraries\n%description libs\nTest.\n")
	if hasPlugin(m) {
		p := pluginVersion(versions)
		fmt.Fprintf(&b, "%%package plugin\nEpoch: %s\nVersion: %s\nRelease: %s\nSummary: Plugin\n", p.epoch, p.version,
			p.release)
		b.WriteString("%description plugin\nTest.\n")
	}
	fmt.Fprintf(&b, "%%install\ncp -a %%{_sourcedir}/%s/. %%{buildroot}\n", m.name)
	fmt.Fprintf(&b, "%%files -f %%{_sourcedir}/%s.files\n", m.name)
	fmt.Fprintf(&b, "%%files libs\n/usr/lib64/lib%s.so.1\n", m.name)
	if hasPlugin(m) {
		fmt.Fprintf(&b, "%%files plugin\n/usr/lib64/%s/plugin.so\n", m.name)
	}
	b.WriteString("%changelog\n")
	date := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, e := range slices.Backward(entries) {
		if d := e.date; d.Before(date) && !d.IsZero() {
			date = d // rpmbuild refuses others
		}
		fmt.Fprintf(&b, "* %s Builder <builder@example.org> - %s\n", date.Format("Mon Jan 02 2006"), versions[i])
		for _, name := range e.names {
			fmt.Fprintf(&b, "- Fix %s\n", name)
		}
		if len(e.names) == 0 {
			b.WriteString("- Rebuild\n")
		}
	}
	return b.String()
}

func hasPlugin(m model) bool { return len(m.name)%2 == 0 }

// pluginVersion is the version of a package that is built of the same source: the number of the entry.
func pluginVersion(versions []rpmVersion) rpmVersion {
	return rpmVersion{epoch: "3", version: fmt.Sprintf("0.%d", len(versions)), release: "1"}
}

// buildRPMs builds the packages of models, in their older or in their newest version, into a directory.
func buildRPMs(ctx context.Context, dir string, kind rpmSystem, models []model, newest bool) error {
	sources := filepath.Join(dir, "SOURCES")
	args := []string{
		"-bb", "--nodeps", "--quiet", "--define", "_topdir " + dir, "--define", "debug_package %{nil}", "--define",
		"_build_id_links none", "--define", "__os_install_post %{nil}", "--define", "_buildhost test",
		"--define", "_changelog_trimtime 0", "--define", "_changelog_trimage 0", "--target", "x86_64-redhat-linux",
	}
	for _, m := range models {
		entries, versions, err := rpmHistory(ctx, m, kind.release)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if !newest {
			want := m.newest[m.older].version
			n := slices.IndexFunc(entries, func(e entry) bool { return e.version == want })
			if n < 0 {
				continue // RPM does not order it after the ones before
			}
			entries, versions = entries[:n+1], versions[:n+1]
		}
		if err := rpmFiles(m, filepath.Join(sources, m.name)); err != nil {
			return err
		}
		spec := filepath.Join(dir, "SPECS", m.name+".spec")
		if err := writeFile(spec, []byte(rpmSpec(m, entries, versions))); err != nil {
			return err
		}
		args = append(args, spec)
	}
	_, err := rig.Output(ctx, dir, "rpmbuild", args...)
	return err
}

// rpmFiles writes what a package has into a directory, and the list of the files of its first part.
func rpmFiles(m model, dir string) error {
	var list strings.Builder
	list.WriteString("/usr/share/doc/" + m.name + "/README\n")
	for name := range m.files {
		list.WriteString("\"" + name + "\"\n")
	}
	files := []string{"usr/share/doc/" + m.name + "/README", "usr/lib64/lib" + m.name + ".so.1"}
	if hasPlugin(m) {
		files = append(files, "usr/lib64/"+m.name+"/plugin.so")
	}
	for _, name := range files {
		if err := writeFile(filepath.Join(dir, name), []byte(m.name+"\n")); err != nil {
			return err
		}
	}
	return errors.Join(writeFile(dir+".files", []byte(list.String())), m.install(dir))
}

// rpm runs rpm on a system.
func rpm(ctx context.Context, tree string, args ...string) (string, error) {
	return rig.Output(ctx, "", "rpm", append([]string{
		"--root", tree, "--dbpath", "/" + rpmDir, "--define", "_db_backend sqlite",
	}, args...)...)
}

// makeRPM makes the older and the newer system of a kind.
func makeRPM(
	ctx context.Context, s *site, kind rpmSystem, models []model,
) (older, newer system, all []erratum, err error) {
	fail := func(err error) (system, system, []erratum, error) { return older, newer, nil, err }
	older = system{name: "older", dir: filepath.Join(s.dir, kind.name+"-older"), kind: catalog.RPM}
	newer = system{name: "newer", dir: filepath.Join(s.dir, kind.name+"-newer"), kind: catalog.RPM}
	if err := errors.Join(os.MkdirAll(filepath.Join(older.dir, rpmDir), 0o755),
		writeFile(filepath.Join(older.dir, "etc/os-release"), []byte(kind.osRelease))); err != nil {
		return fail(err)
	}
	for _, sys := range []*system{&older, &newer} {
		built := filepath.Join(s.dir, "rpmbuild-"+kind.name+"-"+sys.name)
		if err := buildRPMs(ctx, built, kind, models, sys == &newer); err != nil {
			return fail(err)
		}
		action := "-i"
		if sys == &newer {
			if _, err := rig.Output(ctx, "", "cp", "-a", older.dir, newer.dir); err != nil {
				return fail(err)
			}
			action = "-U"
		}
		files, err := filepath.Glob(filepath.Join(built, "RPMS", "*", "*.rpm"))
		if err != nil {
			return fail(err)
		}
		args := append([]string{action, "--nodeps", "--ignorearch", "--ignoreos", "--nosignature"}, files...)
		if _, err := rpm(ctx, sys.dir, args...); err != nil {
			return fail(err)
		}
	}
	if all, err = readRPMs(ctx, &older, &newer); err != nil {
		return fail(err)
	}
	if kind.convert != nil {
		err = errors.Join(kind.convert(ctx, s, older.dir), kind.convert(ctx, s, newer.dir))
	}
	return older, newer, all, err
}
