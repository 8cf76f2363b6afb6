package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/internal/release"
)

// writeManifests writes the compose file and the manifests for Kubernetes, with the tag of the image.
func (r *distribution) writeManifests(context.Context) error {
	compose, err := r.tagged("container/compose.yaml")
	if err != nil {
		return err
	}
	err = os.WriteFile(filepath.Join(r.out, "buildyard_"+r.version+"_compose.yaml"), compose, 0o644)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Join(r.root, "packaging", "kubernetes"))
	if err != nil {
		return err
	}
	var list []member
	for _, e := range entries {
		text, err := r.tagged("kubernetes/" + e.Name())
		if err != nil {
			return err
		}
		list = append(list, member{name: "buildyard-kubernetes/" + e.Name(), mode: 0o644, content: text})
	}
	return writeTarGz(filepath.Join(r.out, "buildyard_"+r.version+"_kubernetes.tar.gz"), list, r.date)
}

// tagged returns a file of packaging/ with the tag of the image in it.
func (r *distribution) tagged(name string) ([]byte, error) {
	raw, err := os.ReadFile(filepath.Join(r.root, "packaging", filepath.FromSlash(name)))
	return bytes.ReplaceAll(raw, []byte("@VERSION@"), []byte(r.imageTag())), err
}

// The view of the template of the formula.
type (
	formula struct {
		Version, License string
		Systems          []formulaSystem
	}
	formulaSystem struct {
		Name  string
		Archs []formulaArch
	}
	formulaArch struct{ Name, URL, SHA256 string }
)

// writeFormula writes the formula for Homebrew, which installs the archives.
func (r *distribution) writeFormula(context.Context) error {
	view := formula{Version: r.version, License: "Apache-2.0"}
	for _, system := range [][2]string{{"darwin", "macos"}, {"linux", "linux"}} {
		s := formulaSystem{Name: system[1]}
		for _, p := range r.platforms {
			if p.OS != system[0] {
				continue
			}
			a, err := r.formulaArch(p)
			if err != nil {
				return err
			}
			s.Archs = append(s.Archs, a)
		}
		if len(s.Archs) > 0 {
			view.Systems = append(view.Systems, s)
		}
	}
	text, err := r.render("homebrew/buildyard.rb.tmpl", view)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, "buildyard.rb"), text, 0o644)
}

func (r *distribution) formulaArch(p release.Platform) (a formulaArch, err error) {
	name := r.archiveName(p) + ".tar.gz"
	f, err := os.Open(filepath.Join(r.out, name))
	if err != nil {
		return a, err
	}
	h := sha256.New()
	_, err = io.Copy(h, f)
	if err := errors.Join(err, f.Close()); err != nil {
		return a, err
	}
	a.Name = map[string]string{"amd64": "intel", "arm64": "arm"}[p.Arch]
	a.URL = "https://github.com/buildyard/buildyard/releases/download/v" + r.version + "/" + name
	a.SHA256 = hex.EncodeToString(h.Sum(nil))
	return a, nil
}
