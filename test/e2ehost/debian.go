package main

import (
	"archive/zip"
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// debs returns the Debian packages of a list, from the cache or from the apt sources of this
// machine.
func (s *stage) debs(ctx context.Context, list string) ([]string, error) {
	names := words(list)
	dir := filepath.Join(s.cache, fmt.Sprintf("debs-%x", sha256.Sum256([]byte(strings.Join(names, "\n"))))[:20])
	if _, err := os.Stat(dir); err != nil {
		part, err := os.MkdirTemp(s.cache, "part-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(part)
		get := append([]string{"apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download"}, names...)
		if _, err := s.sh(ctx, part, get...); err != nil {
			if _, err := s.sh(ctx, part, "apt-get", "-qq", "update"); err != nil {
				return nil, fmt.Errorf("the Debian packages of %s could not be downloaded: %w", list, err)
			}
			if _, err := s.sh(ctx, part, get...); err != nil {
				return nil, fmt.Errorf("the Debian packages of %s could not be downloaded: %w", list, err)
			}
		}
		if err := os.Rename(part, dir); err != nil {
			return nil, err
		}
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err == nil && len(found) != len(names) {
		err = fmt.Errorf("%s has %d packages instead of %d: remove it", dir, len(found), len(names))
	}
	return found, err
}

// unpack unpacks the packages of a list in place.
func (s *stage) unpack(ctx context.Context, list string) error {
	files, err := s.debs(ctx, list)
	if err != nil {
		return err
	}
	for _, f := range files {
		if _, err := s.sh(ctx, "", "dpkg-deb", "-x", f, s.host()); err != nil {
			return err
		}
	}
	return nil
}

// listed runs a program whose lines are name, version and file, and returns the packages.
func (s *stage) listed(ctx context.Context, kind string, args ...string) (out []packageFile, err error) {
	text, err := s.sh(ctx, "", args...)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		if len(f) != 3 {
			return nil, fmt.Errorf("%s said %q", args[0], line)
		}
		out = append(out, packageFile{kind, f[0], f[1], f[2]})
	}
	return out, nil
}

// rubyList makes RubyGems read specifications.
const rubyList = `Dir.glob(ARGV[0] + "/**/specifications/*.gemspec").each { |f| ` +
	`next if File.symlink?(f); s = Gem::Specification.load(f); puts [s.name, s.version, f].join("\t") }`

func debianRuby(ctx context.Context, s *stage, rec *record) error {
	if err := s.unpack(ctx, "debian-ruby.txt"); err != nil {
		return err
	}
	list, err := s.listed(ctx, "gem", "ruby", "-e", rubyList, s.host("usr"))
	if err != nil {
		return err
	}
	return rec.installed("dpkg-deb", time.Time{}, list...)
}

// pythonList makes Python list distributions.
const pythonList = `
import importlib.metadata as m, os, sys
for d in m.distributions(path=sys.argv[1:]):
    at = str(d._path)
    if os.path.isdir(at):
        at = os.path.join(at, "METADATA" if at.endswith(".dist-info") else "PKG-INFO")
    print(d.metadata["Name"], d.version, at, sep="\t")
`

func debianPython(ctx context.Context, s *stage, rec *record) error {
	if err := s.unpack(ctx, "debian-python.txt"); err != nil {
		return err
	}
	list, err := s.listed(ctx, "python", "python3", "-c", pythonList, s.host("usr/lib/python3/dist-packages"))
	if err != nil {
		return err
	}
	return rec.installed("dpkg-deb", time.Time{}, list...)
}

func debianJava(ctx context.Context, s *stage, rec *record) error {
	if err := s.unpack(ctx, "debian-java.txt"); err != nil {
		return err
	}
	var list []packageFile
	err := filepath.WalkDir(s.host("usr", "share"), func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || filepath.Ext(name) != ".jar" {
			return err
		}
		t, err := maven(name)
		list = append(list, t)
		return err
	})
	if err != nil {
		return err
	}
	return rec.installed("dpkg-deb", time.Time{}, list...)
}

// maven reads Maven's name and version from an archive.
func maven(file string) (t packageFile, err error) {
	z, err := zip.OpenReader(file)
	if err != nil {
		return t, err
	}
	defer func() { _ = z.Close() }() // read only
	for _, f := range z.File {
		if filepath.Base(f.Name) != "pom.properties" {
			continue
		}
		r, err := f.Open()
		if err != nil {
			return t, err
		}
		values := map[string]string{}
		lines := bufio.NewScanner(io.LimitReader(r, 1<<20))
		for lines.Scan() {
			key, value, _ := strings.Cut(lines.Text(), "=")
			values[key] = strings.TrimSpace(value)
		}
		return packageFile{"java", values["groupId"] + ":" + values["artifactId"], values["version"], file},
			errors.Join(lines.Err(), r.Close())
	}
	return t, fmt.Errorf("%s has no pom.properties", file)
}
