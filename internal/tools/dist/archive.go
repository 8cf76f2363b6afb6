package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/release"
)

// member is a file or directory of an archive. A directory has a name that ends in "/".
type member struct {
	name    string
	mode    int64
	uid     int    // and group
	source  string // file with the content; "": content
	content []byte
}

// directory lists the files below a directory as members below a prefix.
func directory(dir, prefix string, mode int64) ([]member, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var list []member
	for _, e := range entries {
		list = append(list, member{name: path.Join(prefix, e.Name()), mode: mode, source: filepath.Join(dir, e.Name())})
	}
	return list, nil
}

// writeTarGz writes an archive whose bytes depend on the members and the time alone.
func writeTarGz(file string, members []member, modified time.Time) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	zipped := gzip.NewWriter(f)
	return errors.Join(writeTar(zipped, members, modified), zipped.Close())
}

// writeTar writes members in the order of their names, all owned by root unless they say otherwise.
func writeTar(w io.Writer, members []member, modified time.Time) error {
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.name, b.name) })
	out := tar.NewWriter(w)
	for _, m := range members {
		if err := writeMember(out, m, modified); err != nil {
			return err
		}
	}
	return out.Close()
}

func writeMember(out *tar.Writer, m member, modified time.Time) error {
	header := &tar.Header{
		Typeflag: tar.TypeReg, Name: m.name, Mode: m.mode, Uid: m.uid, Gid: m.uid, ModTime: modified.UTC(),
		Format: tar.FormatUSTAR, Size: int64(len(m.content)),
	}
	if strings.HasSuffix(m.name, "/") {
		header.Typeflag = tar.TypeDir
	}
	if m.source == "" {
		if err := out.WriteHeader(header); err != nil {
			return err
		}
		_, err := out.Write(m.content)
		return err
	}
	f, err := os.Open(m.source)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	header.Size = info.Size()
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(out, f)
	return err
}

// archiveName returns the name of a platform's archive without its suffix.
func (r *distribution) archiveName(p release.Platform) string {
	return "buildyard_" + r.version + "_" + p.OS + "_" + p.Arch
}

// writeArchives writes a tar.gz with all programs for each platform.
func (r *distribution) writeArchives(context.Context) error {
	man, err := directory(filepath.Join(r.work, "man"), "man", 0o644)
	if err != nil {
		return err
	}
	completions, err := directory(filepath.Join(r.work, "completions"), "completions", 0o644)
	if err != nil {
		return err
	}
	for _, p := range r.platforms {
		list := slices.Concat(man, completions)
		for _, name := range programs {
			list = append(list, member{name: name, mode: 0o755, source: r.program(p, name)})
		}
		for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
			list = append(list, member{name: name, mode: 0o644, source: filepath.Join(r.root, name)})
		}
		for i := range list {
			list[i].name = r.archiveName(p) + "/" + list[i].name
		}
		if err := writeTarGz(filepath.Join(r.out, r.archiveName(p)+".tar.gz"), list, r.date); err != nil {
			return err
		}
	}
	return nil
}

// writeAgentPackages writes the packages that controllers offer to nodes.
func (r *distribution) writeAgentPackages(context.Context) error {
	for _, p := range r.platforms {
		// The version comes first, so that it is found without reading the program.
		list := []member{
			{name: release.VersionFile, mode: 0o644, content: []byte(r.full + "\n")},
			{name: "buildnode", mode: 0o755, source: r.program(p, "buildnode")},
		}
		if err := writeTarGz(filepath.Join(r.out, p.PackageFile()), list, r.date); err != nil {
			return err
		}
	}
	return nil
}
