package main

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// npmInstall installs projects with npm: one as usual, with a lock, and one with a store.
func npmInstall(ctx context.Context, s *stage, rec *record) error {
	for _, p := range []struct{ name, list, option string }{
		{"web", "npm.txt", "--package-lock"}, {"linked", "npm-linked.txt", "--install-strategy=linked"},
	} {
		dir := s.host("srv", p.name)
		if err := write(filepath.Join(dir, "package.json"),
			fmt.Appendf(nil, "{\"name\":%q,\"version\":\"1.0.0\",\"private\":true}\n", p.name)); err != nil {
			return err
		}
		if err := s.npm(ctx, dir, append([]string{"install", p.option}, words(p.list)...)...); err != nil {
			return fmt.Errorf("%w; packages that npm has in its cache are not downloaded again", err)
		}
		if err := s.npmNote(ctx, rec, dir); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) npm(ctx context.Context, dir string, args ...string) error {
	_, err := s.sh(ctx, dir, append(append([]string{"npm"}, args...), "--prefer-offline", "--ignore-scripts",
		"--no-audit", "--no-fund")...)
	return err
}

// npmNote records what npm lists in a project: each package in its directory, and in the lock.
func (s *stage) npmNote(ctx context.Context, rec *record, dir string) error {
	text, err := s.sh(ctx, dir, "npm", "ls", "--all", "--parseable", "--long")
	if err != nil {
		return err
	}
	lock := filepath.Join(dir, "package-lock.json")
	_, missing := os.Stat(lock)
	var list []packageFile
	for line := range strings.Lines(text) {
		at, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		full, target, ok := strings.Cut(rest, ":") // a link has its target
		if ok {
			at = target
		}
		i := strings.LastIndexByte(full, '@')
		if at == dir || i <= 0 {
			continue
		}
		list = append(list, packageFile{"npm", full[:i], full[i+1:], filepath.Join(at, "package.json")})
		if missing == nil {
			list = append(list, packageFile{"npm", full[:i], full[i+1:], lock})
		}
	}
	rec.replace("npm", dir, list)
	return rec.installed("npm", time.Time{}, list...)
}

// replace records as removed the packages of a directory that an installer's list lacks.
func (r *record) replace(how, dir string, list []packageFile) {
	for t := range r.there() {
		if strings.HasPrefix(t.path, dir+"/") && !slices.Contains(list, t) {
			r.removed(how, time.Now(), t)
		}
	}
}

func npmChange(ctx context.Context, s *stage, rec *record) error {
	dir := s.host("srv", "web")
	if err := s.npm(ctx, dir, "install", "lodash@4.17.21"); err != nil {
		return err
	}
	if err := s.npm(ctx, dir, "uninstall", "minimist"); err != nil {
		return err
	}
	return s.npmNote(ctx, rec, dir)
}

// first is the index of the first unit of a kind that no method installs.
var first = len(ways)

// gemBuild builds a gem.
func (s *stage) gemBuild(ctx context.Context, u unit) (file string, err error) {
	dir := s.back("gems", u.name+"-"+u.version)
	spec := fmt.Sprintf(
		"Gem::Specification.new do |s|\n  s.name = %q\n  s.version = %q\n  s.summary = 'It does little'\n  s.authors "+
			"= ['Nobody']\n"+
			"  s.license = 'MIT'\n  s.homepage = 'https://example.test'\n  s.files = ['lib/x.rb']\nend\n", u.name,
		u.version)
	if err := writeTree(dir,
		map[string][]byte{"x.gemspec": []byte(spec), "lib/x.rb": []byte("module X; end\n")}); err != nil {
		return "", err
	}
	file = filepath.Join(dir, "x.gem")
	_, err = s.sh(ctx, dir, "gem", "build", "--silent", "-o", file, "x.gemspec")
	return file, err
}

func (s *stage) gemAt(u unit) packageFile {
	return packageFile{"gem", u.name, u.version, s.host("srv", "gems", "specifications",
		u.name+"-"+u.version+".gemspec")}
}

func (s *stage) gemInstall(ctx context.Context, rec *record, list ...unit) error {
	args := []string{"gem", "install", "--local", "--no-document", "--install-dir", s.host("srv", "gems")}
	var came []packageFile
	for _, u := range list {
		file, err := s.gemBuild(ctx, u)
		if err != nil {
			return err
		}
		args, came = append(args, file), append(came, s.gemAt(u))
	}
	if _, err := s.sh(ctx, "", args...); err != nil {
		return err
	}
	return rec.installed("gem", time.Time{}, came...)
}

func gemInstall(ctx context.Context, s *stage, rec *record) error {
	return s.gemInstall(ctx, rec, units("gem")[first:]...)
}

func gemChange(ctx context.Context, s *stage, rec *record) error {
	up, away := units("gem")[first], units("gem")[first+1]
	next := up
	next.version = bumped(up.version)
	if err := s.gemInstall(ctx, rec, next); err != nil {
		return err
	}
	for _, u := range []unit{up, away} {
		home := s.host("srv", "gems")
		if _, err := s.sh(ctx, "", "GEM_HOME="+home, "GEM_PATH="+home, "gem", "uninstall", "--executables", u.name,
			"--version", u.version); err != nil {
			return err
		}
		if _, err := os.Stat(s.gemAt(u).path); err == nil {
			return fmt.Errorf("gem uninstall leaves %s", s.gemAt(u))
		}
		rec.removed("gem", time.Now(), s.gemAt(u))
	}
	return nil
}

// wheel builds a wheel.
func (s *stage) wheel(u unit) (string, error) {
	name := strings.ReplaceAll(u.name, "-", "_")
	info := fmt.Sprintf("%s-%s.dist-info/", name, u.version)
	file := s.back("wheels", fmt.Sprintf("%s-%s-py3-none-any.whl", name, u.version))
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range [][2]string{
		{name + "/__init__.py", "\n"},
		{info + "METADATA", fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n\n", u.name, u.version)},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: e2ehost\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "RECORD", fmt.Sprintf("%s/__init__.py,,\n%sMETADATA,,\n%sWHEEL,,\n%sRECORD,,\n", name, info, info,
			info)},
	} {
		w, err := z.Create(f[0])
		if err == nil {
			_, err = w.Write([]byte(f[1]))
		}
		if err != nil {
			return "", err
		}
	}
	if err := z.Close(); err != nil {
		return "", err
	}
	return file, write(file, b.Bytes())
}

func (s *stage) pip(ctx context.Context, args ...string) error {
	_, err := s.sh(ctx, "",
		append([]string{"python3", "-m", "pip", "--python", s.host("srv", "venv", "bin",
			"python"), "--disable-pip-version-check"}, args...)...)
	return err
}

// pipNote records what Python lists in the environment.
func (s *stage) pipNote(ctx context.Context, rec *record) error {
	found, err := filepath.Glob(s.host("srv", "venv", "lib", "python3*", "site-packages"))
	if err != nil || len(found) != 1 {
		return fmt.Errorf("%d directories of packages, %w", len(found), err)
	}
	list, err := s.listed(ctx, "python", "python3", "-c", pythonList, found[0])
	if err != nil {
		return err
	}
	rec.replace("pip", found[0], list)
	return rec.installed("pip", time.Time{}, list...)
}

func (s *stage) pipInstall(ctx context.Context, list ...unit) error {
	args := []string{"install", "--quiet", "--no-index", "--no-deps"}
	for _, u := range list {
		file, err := s.wheel(u)
		if err != nil {
			return err
		}
		args = append(args, file)
	}
	return s.pip(ctx, args...)
}

func pipInstall(ctx context.Context, s *stage, rec *record) error {
	if _, err := s.sh(ctx, "", "python3", "-m", "venv", "--without-pip", s.host("srv", "venv")); err != nil {
		return err
	}
	if err := s.pipInstall(ctx, units("python")[first:]...); err != nil {
		return err
	}
	return s.pipNote(ctx, rec)
}

func pipChange(ctx context.Context, s *stage, rec *record) error {
	up, away := units("python")[first], units("python")[first+1]
	up.version = bumped(up.version)
	if err := s.pipInstall(ctx, up); err != nil {
		return err
	}
	if err := s.pip(ctx, "uninstall", "--quiet", "--yes", away.name); err != nil {
		return err
	}
	return s.pipNote(ctx, rec)
}

// cargo runs cargo with the registry in dir/back, whose crates it unpacks below dir/host.
func (s *stage) cargo(ctx context.Context, args ...string) (string, error) {
	home, err := s.cargoHome(ctx)
	if err != nil {
		return "", err
	}
	return s.sh(ctx, s.host("srv", "rust"), append([]string{"CARGO_HOME=" + home, "cargo"}, args...)...)
}

// cargoHome returns cargo's directory, with a configuration that names the registry.
func (s *stage) cargoHome(context.Context) (string, error) {
	home := s.host("srv", "cargo")
	return home, write(filepath.Join(home, "config.toml"), fmt.Appendf(nil,
		"[source.crates-io]\nreplace-with = \"local\"\n\n[source.local]\nlocal-registry = %q\n\n[net]\noffline = "+
			"true\n", s.back("registry")))
}

// cargoList is cargo's output about a project.
type cargoList struct {
	Packages []struct {
		Name, Version string
		Source        *string
		Manifest      string `json:"manifest_path"`
	}
}

// cargoNote records what cargo lists: each crate in the lock and where it was unpacked.
func (s *stage) cargoNote(ctx context.Context, rec *record) error {
	text, err := s.cargo(ctx, "metadata", "--format-version=1")
	if err != nil {
		return err
	}
	var m cargoList
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return err
	}
	var locked, unpacked []packageFile
	for _, p := range m.Packages {
		if p.Source != nil {
			locked = append(locked, packageFile{"rust", p.Name, p.Version, s.host("srv", "rust", "Cargo.lock")})
			unpacked = append(unpacked, packageFile{"rust", p.Name, p.Version, p.Manifest})
		}
	}
	rec.replace("cargo", s.host("srv", "rust"), locked)
	return rec.installed("cargo", time.Time{}, append(locked, unpacked...)...)
}
