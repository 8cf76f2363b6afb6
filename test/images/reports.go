package main

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/license"
	"github.com/buildyard/buildyard/internal/scan/disk/udif/udiftest"
	"github.com/buildyard/buildyard/internal/scan/fs/apfs/apfstest"
	"github.com/buildyard/buildyard/internal/scan/fs/hfsplus/hfsplustest"
	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
	"github.com/buildyard/buildyard/test/rig"
)

// The formats of one tree: in each, the scanner's report is the same except for its source.
const reportTree = "one tree"

// scanner is the program, its license and its database.
type scanner struct {
	program, dir string
}

// reports scans one tree in several forms.
func (s *stage) reports(ctx context.Context) {
	dir := filepath.Join(s.dir, "reports")
	var p *scanner
	var want []string // lines of the report on the directory
	for _, f := range []struct {
		name string
		make func(ctx context.Context, dir string) (source string, more []string, done func() error, err error)
	}{
		{"dir", asDirectory},
		{"ext4", asExt4},
		{"xfs", asXFS},
		{"btrfs", asBtrfs},
		{"apfs", asAPFS},
		{"hfsplus", asHFSPlus},
		{"qcow2", asQcow2},
		{"vmdk", asVMDK},
		{"ova", asOVA},
		{"dmg", asDMG},
		{"lvm", asLVM},
		{"luks", asLUKS},
		{"template", asTemplate},
		{"OCI layout", asOCI},
		{"OCI archive", asOCIArchive},
		{"OCI archive zstd", asZstdArchive},
		{"Docker archive", asDockerArchive},
		{"SBOM", func(ctx context.Context, dir string) (string, []string, func() error, error) {
			return p.asSBOM(ctx, dir)
		}},
	} {
		s.try(reportTree, f.name, func(r *row) (err error) {
			if p == nil {
				if p, err = s.scanner(ctx, dir); err != nil {
					return err
				}
			}
			source, more, done, err := f.make(ctx, dir)
			if err != nil {
				return err
			}
			got, err := p.scan(ctx, source, more)
			if err := errors.Join(err, done()); err != nil {
				return err
			}
			if want == nil {
				want = got
			}
			if strings.HasPrefix(source, "sbom:") {
				return equalReports(r, withoutPrograms(want), got)
			}
			return equalReports(r, want, got)
		})
	}
}

// withoutPrograms returns lines of a report as they are when no program was read.
func withoutPrograms(lines []string) []string {
	out := make([]string, len(lines))
	for i, line := range lines {
		for _, known := range []string{"linked", "not linked"} {
			line = strings.Replace(line, `"reachable":"`+known+`"`, `"reachable":"unknown"`, 1)
		}
		out[i] = line
	}
	return out
}

// equalReports counts the lines that both have.
func equalReports(r *row, want, got []string) error {
	kinds := map[string]bool{}
	r.All = len(want)
	for i, line := range want {
		var p struct {
			Type     string `json:"type"`
			Artifact struct{ Type string }
		}
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			return err
		}
		kinds[p.Type+p.Artifact.Type] = true
		if i < len(got) && got[i] == line {
			r.Equal++
		} else if len(r.Differences) < most {
			r.Differences = append(r.Differences, "not as in the directory: "+line)
		}
	}
	if len(got) != len(want) {
		r.Differences = append(r.Differences, fmt.Sprintf("%d lines instead of %d", len(got), len(want)))
	}
	if len(kinds) < 9 {
		r.Differences = append(r.Differences, fmt.Sprintf("the tree shows only %d kinds of packages", len(kinds)))
	}
	return nil
}

// scanner builds the program, a license for it, and a database of all real advisories.
func (s *stage) scanner(ctx context.Context, dir string) (*scanner, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	p := &scanner{program: filepath.Join(dir, "imagescan"), dir: dir}
	if _, err := rig.Output(ctx, ".", "go", "build", "-trimpath", "-o", p.program, "./cmd/imagescan"); err != nil {
		return nil, err
	}
	secret, public := filepath.Join(dir, "a.key"), filepath.Join(dir, "a.pub")
	if err := license.GenerateKeys(secret, public); err != nil {
		return nil, err
	}
	signer, err := license.ReadSecret(secret)
	if err != nil {
		return nil, err
	}
	key, err := license.IssueKey(signer,
		license.License{Product: license.ImageScanner, Tier: farm.TierBasic, Expires: time.Now().Add(time.Hour)})
	if err != nil {
		return nil, err
	}
	if _, err := p.run(ctx, "license", "activate", key); err != nil {
		return nil, err
	}
	vuln, err := filepath.Abs(filepath.Join(s.shared, "data", "vuln"))
	if err != nil {
		return nil, err
	}
	if _, err := p.run(ctx, "db", "build", vuln); err != nil {
		return nil, err
	}
	return p, plant(ctx, p)
}

func (p *scanner) run(ctx context.Context, args ...string) (string, error) {
	return rig.Output(ctx, p.dir, p.program,
		append(args, "-q", "--license-authority", "a.pub", "--db-path", "vuln.db")...)
}

// scan returns packages and matches of a source, each as a line of JSON.
func (p *scanner) scan(ctx context.Context, source string, more []string) ([]string, error) {
	var packages api.ScanPackages
	var found api.ScanReport
	for _, q := range []struct {
		into any
		args []string
	}{{&packages, []string{"-p"}}, {&found, nil}} {
		raw, err := p.run(ctx, slices.Concat([]string{source, "-u", "-f", "json"}, q.args, more)...)
		if err == nil {
			err = json.Unmarshal([]byte(raw), q.into)
		}
		if err != nil {
			return nil, err
		}
	}
	var out []string
	for _, v := range packages.Packages {
		out = append(out, line(v))
	}
	for _, v := range found.Matches {
		out = append(out, line(v))
	}
	if len(found.Matches) == 0 {
		return nil, errors.New("the scanner found no vulnerability")
	}
	return out, nil
}

func line(v any) string {
	raw, _ := json.Marshal(v)
	return string(raw)
}

// plant creates the tree: a package of every kind, the scanner itself as a Go program.
func plant(ctx context.Context, p *scanner) error {
	tree := filepath.Join(p.dir, "tree")
	for name, text := range map[string]string{
		"usr/lib/node_modules/lodash/package.json":      `{"name": "lodash", "version": "4.17.11", "license": "MIT"}`,
		"Users/ci/app/node_modules/lodash/package.json": `{"name": "lodash", "version": "4.17.11", "license": "MIT"}`,
		"usr/lib/python3/dist-packages/requests-2.19.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: " +
			"requests\nVersion: 2.19.0\nLicense: Apache 2.0\n",
		"var/lib/gems/3.1.0/specifications/rack-2.0.1.gemspec": "Gem::Specification.new do " +
			"|s|\n  s.name = \"rack\".freeze\n  s.version = \"2.0.1\"\n  s.licenses = [\"MIT\".freeze]\nend\n",
		"srv/crate/Cargo.lock": "version " +
			"= 3\n\n[[package]]\nname = \"time\"\nversion = \"0.1.43\"\nsource = \"registry+https://index.example\"\n",
		"srv/mod/go.mod": "module example.com/m\n\ngo " +
			"1.20\n\nrequire golang.org/x/net v0.1.0\n",
		"opt/homebrew/Cellar/openssl@3/3.0.1/INSTALL_RECEIPT.json": `{"homebrew_version": "4.0.0", "source": {"versions": {"stable": "3.0.1"}}}`,
		"Applications/Firefox.app/Contents/Info.plist": plist("Firefox",
			"org.mozilla.firefox", "110.0"),
		"Users/ci/Größe/Podfile.lock": "PODS:\n  - AFNetworking " +
			"(2.5.0):\n    - AFNetworking/Serialization (= 2.5.0)\n  - AFNetworking/Serialization " +
			"(2.5.0)\n\nDEPENDENCIES:\n  - AFNetworking\n\nCOCOAPODS: 1.11.0\n",
		"usr/share/doc/a long name with spaces and 日本語/not-a-package/package.json.txt": "{}",
	} {
		if err := write(filepath.Join(tree, name), []byte(text)); err != nil {
			return err
		}
	}
	jar, err := archive("META-INF/maven/org.apache.logging.log4j/log4j-core/pom.properties",
		"groupId=org.apache.logging.log4j\nartifactId=log4j-core\nversion=2.14.1\n")
	if err != nil {
		return err
	}
	if err := write(filepath.Join(tree, "opt/app/lib/log4j-core-2.14.1.jar"), jar); err != nil {
		return err
	}
	if err := os.Symlink("../lib/node_modules", filepath.Join(tree, "usr/share/modules")); err != nil {
		return err
	}
	_, err = rig.Output(ctx, ".", "install", "-D", p.program, filepath.Join(tree, "usr/local/bin/imagescan"))
	return err
}

func plist(name, id, version string) string {
	return `<?xml version="1.0" encoding="UTF-8"?><plist version="1.0"><dict><key>CFBundleName</key><string>` + name +
		`</string><key>CFBundleIdentifier</key><string>` + id +
		`</string><key>CFBundleShortVersionString</key><string>` + version + `</string></dict></plist>`
}

func archive(name, text string) ([]byte, error) {
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	f, err := z.Create(name)
	if err == nil {
		_, err = f.Write([]byte(text))
	}
	err = errors.Join(err, z.Close())
	return out.Bytes(), err
}

func write(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

func nothing() error { return nil }

func asDirectory(_ context.Context, dir string) (string, []string, func() error, error) {
	return "dir:" + filepath.Join(dir, "tree"), nil, nothing, nil
}

func asExt4(ctx context.Context, dir string) (string, []string, func() error, error) {
	_, err := rig.Output(ctx, dir, "mke2fs", "-q", "-t", "ext4", "-F", "-d", "tree", "tree.img", "128M")
	return "vm_image:" + filepath.Join(dir, "tree.img"), nil, nothing, err
}

func asXFS(ctx context.Context, dir string) (string, []string, func() error, error) {
	image := filepath.Join(dir, "xfs.img")
	err := rig.FormatXFS(ctx, image, ext4Size)
	if err == nil {
		err = treetest.Fill(ctx, image, filepath.Join(dir, "tree"), "true")
	}
	return "vm_image:" + image, nil, nothing, err
}

func asBtrfs(ctx context.Context, dir string) (string, []string, func() error, error) {
	image := filepath.Join(dir, "btrfs.img")
	err := rig.FormatBtrfs(ctx, image, ext4Size)
	if err == nil {
		err = treetest.Fill(ctx, image, filepath.Join(dir, "tree"), "true")
	}
	return "vm_image:" + image, nil, nothing, err
}

func asHFSPlus(ctx context.Context, dir string) (string, []string, func() error, error) {
	image := filepath.Join(dir, "hfsplus.img")
	err := rig.MakeHFSPlus(image, hfsplustest.Volume{Name: "Filled", Size: ext4Size})
	if err == nil {
		err = rig.FillHFSPlus(ctx, image, filepath.Join(dir, "tree"), ":")
	}
	return "vm_image:" + image, nil, nothing, err
}

// asAPFS writes the tree as the data volume of a Mac.
func asAPFS(_ context.Context, dir string) (string, []string, func() error, error) {
	c := apfstest.Container{Volumes: []apfstest.Volume{{Name: "Macintosh HD - Data", Role: apfstest.Data}}}
	tree := filepath.Join(dir, "tree")
	err := filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(tree, path)
		if err != nil {
			return err
		}
		f := apfstest.File{Path: filepath.ToSlash(name)}
		if d.Type() == fs.ModeSymlink {
			f.Mode = apfstest.Link | 0o777
			f.Target, err = os.Readlink(path)
		} else {
			f.Data, err = os.ReadFile(path) //nolint:gosec // the tree is our own
			if info, e := d.Info(); e == nil {
				f.Mode = apfstest.Regular | uint16(info.Mode().Perm())
			}
		}
		c.Volumes[0].Files = append(c.Volumes[0].Files, f)
		return err
	})
	if err != nil {
		return "", nil, nil, err
	}
	to, err := os.Create(filepath.Join(dir, "apfs.img"))
	if err != nil {
		return "", nil, nil, err
	}
	_, err = apfstest.Write(to, c)
	return "vm_image:" + to.Name(), nil, nothing, errors.Join(err, to.Close())
}

func asQcow2(ctx context.Context, dir string) (string, []string, func() error, error) {
	_, err := rig.Output(ctx, dir, "qemu-img", "convert", "-c", "-f", "raw", "-O", "qcow2", "tree.img", "tree.qcow2")
	return "vm_image:" + filepath.Join(dir, "tree.qcow2"), nil, nothing, err
}

func asVMDK(ctx context.Context, dir string) (string, []string, func() error, error) {
	name, err := writeVMDK(ctx, dir, "tree.img", "monolithicSparse")
	return "vm_image:" + name, nil, nothing, err
}

func asOVA(ctx context.Context, dir string) (string, []string, func() error, error) {
	name, err := writeOVA(ctx, dir, "tree.img")
	return "vm_image:" + name, nil, nothing, err
}

// asDMG writes the disk of asAPFS.
func asDMG(_ context.Context, dir string) (string, []string, func() error, error) {
	name, err := writeDMG(dir, filepath.Join(dir, "apfs.img"), udiftest.Named("lzfse"))
	return "vm_image:" + name, nil, nothing, err
}

func asLVM(ctx context.Context, dir string) (string, []string, func() error, error) {
	name := filepath.Join(dir, "lvm.img")
	return "vm_image:" + name, nil, nothing, rig.MakeLVM(ctx, filepath.Join(dir, "tree.img"), name)
}

// asLUKS encrypts the disk, whose passphrase is in a file.
func asLUKS(ctx context.Context, dir string) (string, []string, func() error, error) {
	key, to := filepath.Join(dir, "passphrase"), filepath.Join(dir, "luks.img")
	err := os.WriteFile(key, []byte("correct horse"), 0o600)
	if err == nil {
		err = rig.MakeLUKS(ctx, filepath.Join(dir, "tree.img"), to, key)
	}
	return "vm_image:" + to, []string{"--key-file", key}, nothing, err
}

// asTemplate pushes the disk to a registry, which continues to run.
func asTemplate(ctx context.Context, dir string) (string, []string, func() error, error) {
	d := &made{dir: dir, raw: filepath.Join(dir, "tree.img")}
	o, err := template(ctx, d)
	return "registry_template:" + templateID, []string{"-s", filepath.Join(dir, "storage")}, o.close, err
}
