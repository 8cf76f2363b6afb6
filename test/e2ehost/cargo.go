package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"time"
)

// crate adds a crate to the registry in dir/back.
func (s *stage) crate(u unit) error {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	t := tar.NewWriter(z)
	for _, f := range [][2]string{
		{"Cargo.toml", fmt.Sprintf("[package]\nname = %q\nversion = %q\nedition = \"2021\"\n", u.name, u.version)},
		{"src/lib.rs", "\n"},
	} {
		head := &tar.Header{Name: u.name + "-" + u.version + "/" +
			f[0], Mode: 0o644, Size: int64(len(f[1])), ModTime: time.Unix(1_700_000_000, 0)}
		if err := t.WriteHeader(head); err != nil {
			return err
		}
		if _, err := t.Write([]byte(f[1])); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	if err := write(s.back("registry", u.name+"-"+u.version+".crate"), b.Bytes()); err != nil {
		return err
	}
	line := fmt.Sprintf("{\"name\":%q,\"vers\":%q,\"deps\":[],\"cksum\":\"%x\",\"features\":{},\"yanked\":false}\n",
		u.name, u.version, sha256.Sum256(b.Bytes()))
	file := s.back("registry", "index", indexed(u.name))
	old, _ := os.ReadFile(file) // missing for the first version
	return write(file, append(old, line...))
}

// indexed returns the path of a crate in the index of a registry.
func indexed(name string) string {
	switch len(name) {
	case 1, 2:
		return fmt.Sprintf("%d/%s", len(name), name)
	case 3:
		return fmt.Sprintf("3/%s/%s", name[:1], name)
	default:
		return fmt.Sprintf("%s/%s/%s", name[:2], name[2:4], name)
	}
}

// project writes the project that needs crates.
func (s *stage) project(crates []unit) error {
	var text strings.Builder
	text.WriteString("[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[dependencies]\n")
	for _, u := range crates {
		fmt.Fprintf(&text, "%s = \"=%s\"\n", u.name, u.version)
	}
	return writeTree(s.host("srv", "rust"),
		map[string][]byte{"Cargo.toml": []byte(text.String()), "src/main.rs": []byte("fn main() {}\n")})
}

// cargoInstall makes cargo lock a project and unpack its crates.
func cargoInstall(ctx context.Context, s *stage, rec *record) error {
	crates := units("rust")[first:]
	for _, u := range crates {
		if err := s.crate(u); err != nil {
			return err
		}
	}
	if err := s.project(crates); err != nil {
		return err
	}
	if _, err := s.cargo(ctx, "fetch"); err != nil {
		return err
	}
	return s.cargoNote(ctx, rec)
}

// cargoChange updates one crate and removes another.
func cargoChange(ctx context.Context, s *stage, rec *record) error {
	crates := units("rust")[first:]
	crates[0].version = bumped(crates[0].version)
	if err := s.crate(crates[0]); err != nil {
		return err
	}
	if err := s.project(append(crates[:1:1], crates[2:]...)); err != nil {
		return err
	}
	if _, err := s.cargo(ctx, "fetch"); err != nil {
		return err
	}
	return s.cargoNote(ctx, rec)
}
