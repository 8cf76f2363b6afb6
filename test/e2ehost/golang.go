package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// largest is the maximum size in bytes of the module archives to download.
const largest = 300 << 10

// goModules makes go download modules that this repository needs and that are in this user's cache,
// without go mod tidy.
func goModules(ctx context.Context, s *stage, rec *record) error {
	names, from, err := s.goNames(ctx)
	if err != nil {
		return err
	}
	cache := s.host("srv", "go", "pkg", "mod")
	proxy, err := s.sh(ctx, s.repo, "go", "env", "GOPROXY")
	if err != nil {
		return err
	}
	args := []string{"GOMODCACHE=" + cache, "GOPROXY=file://" + from + "," +
		proxy, "GONOSUMDB=*", "GOFLAGS=-modcacherw", "go", "mod", "download", "-json"}
	if err := write(s.back("download", "go.mod"), []byte("module example.test/download\n\ngo 1.24\n")); err != nil {
		return err
	}
	text, err := s.sh(ctx, s.back("download"), append(args, names...)...)
	if err != nil {
		return err
	}
	var list []packageFile
	for d := json.NewDecoder(strings.NewReader(text)); d.More(); {
		var m struct{ Path, Version, Dir, Error string }
		if err := d.Decode(&m); err != nil || m.Error != "" {
			return fmt.Errorf("go mod download: %s %w", m.Error, err)
		}
		file := filepath.Join(m.Dir, "go.mod")
		if _, err := os.Stat(file); err != nil {
			continue // older than go.mod files: no file in its directory describes it
		}
		list = append(list, packageFile{"go", m.Path, m.Version, file})
	}
	return rec.installed("go mod download", time.Time{}, list...)
}

// goNames lists modules whose archives are small.
func (s *stage) goNames(ctx context.Context) (names []string, from string, err error) {
	cache, err := s.sh(ctx, s.repo, "go", "env", "GOMODCACHE")
	if err != nil {
		return nil, "", err
	}
	from = filepath.Join(cache, "cache", "download")
	text, err := s.sh(ctx, s.repo, "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}@{{.Version}}{{end}}",
		"./cmd/hostscan", "./cmd/imagescan", "./cmd/buildyard")
	if err != nil {
		return nil, "", err
	}
	known := map[string]bool{}
	for name := range strings.FieldsSeq(text) {
		path, version, _ := strings.Cut(name, "@")
		info, err := os.Stat(filepath.Join(from, path, "@v", version+".zip"))
		if version != "" && !known[name] && err == nil && info.Size() <= largest {
			known[name] = true
			names = append(names, name)
		}
	}
	return names, from, nil
}

// goPrograms builds programs for several systems. The expected modules come from go version.
func goPrograms(ctx context.Context, s *stage, rec *record) error {
	bin := s.host("srv", "go", "bin")
	for _, system := range []string{"linux", "darwin", "windows"} {
		file := filepath.Join(bin, "archtool-"+system+"1.2")
		if system == "windows" {
			file = filepath.Join(bin, "archtool.exe")
		}
		if _, err := s.sh(ctx, s.repo, "CGO_ENABLED=0", "GOOS="+system, "GOARCH=amd64", "go", "build", "-trimpath",
			"-o", file, "./test/scantree/program"); err != nil {
			return err
		}
	}
	var list []packageFile
	err := filepath.WalkDir(bin, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		in, err := s.goVersion(ctx, name)
		list = append(list, in...)
		return err
	})
	if err != nil {
		return err
	}
	return rec.installed("go build", time.Time{}, list...)
}

// goVersion returns the modules that go version lists for a program.
func (s *stage) goVersion(ctx context.Context, file string) (out []packageFile, err error) {
	text, err := s.sh(ctx, "", "go", "version", "-m", file)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, file+":"):
			out = append(out, packageFile{"go", "stdlib", strings.TrimPrefix(f[1], "go"), file})
		case len(f) >= 3 && (f[0] == "mod" || f[0] == "dep"):
			out = append(out, packageFile{"go", f[1], f[2], file})
		case len(f) >= 3 && f[0] == "=>":
			out[len(out)-1] = packageFile{"go", f[1], f[2], file}
		}
	}
	return out, nil
}
