package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/agent/service"
	"github.com/buildyard/buildyard/internal/release"
)

// stateDir is a directory that a package creates, or a file whose owner it sets.
type stateDir struct{ Mode, User, Group, Path string }

// linuxPackage is a package for Debian and RPM systems. Its exported fields are for the templates of the scripts.
type linuxPackage struct {
	Name        string
	Summary     string
	Programs    []string
	Users       []string // of the system, each with a group of its name
	Groups      []string
	Directories []stateDir
	Settings    []stateDir // files that are given to a group of the package
	Units       string     // names, for systemctl
	Data        []string   // directories and files that only "purge" removes
	RunsVMs     bool       // processes with open files in Data outlive the service
	recommends  []string   // of Debian
	files       map[string]packagedFile
}

// packagedFile is a file of a package that is not a program, by its path.
type packagedFile struct {
	content  []byte
	mode     os.FileMode
	isConfig bool // an upgrade keeps it if it was changed
}

var commonDir = stateDir{"0755", "root", "root", "/var/lib/buildyard"}

// linuxPackages returns the packages of a release.
func (r *distribution) linuxPackages() ([]linuxPackage, error) {
	cloud, err := r.cloudPackage()
	node, nodeErr := r.nodePackage()
	scanners, scannersErr := r.scannerPackage()
	return []linuxPackage{cloud, node, scanners}, errors.Join(err, nodeErr, scannersErr)
}

func (r *distribution) cloudPackage() (linuxPackage, error) {
	p := linuxPackage{
		Name: "buildyard", Summary: "Open build cloud: controller, registry and command line",
		Programs: []string{"buildyard"}, Users: []string{"build-cloud"},
		Directories: []stateDir{
			commonDir,
			{"0700", "build-cloud", "build-cloud", "/var/lib/buildyard/controller"},
			{"0700", "build-cloud", "build-cloud", "/var/lib/buildyard/registry"},
		},
		Settings: []stateDir{
			{"0640", "root", "build-cloud", "/etc/buildyard/controller.env"},
			{"0640", "root", "build-cloud", "/etc/buildyard/registry.env"},
		},
		Data:  []string{"/var/lib/buildyard/controller", "/var/lib/buildyard/registry"},
		files: map[string]packagedFile{},
	}
	for _, unit := range serviceUnits {
		text, err := r.render("systemd/buildyard.service.tmpl", unit)
		if err != nil {
			return p, err
		}
		p.addUnit(unit.Name, text)
	}
	for name, text := range environmentFiles() {
		p.files[name] = packagedFile{text, 0o640, true}
	}
	return p, r.addSystemFiles(&p, "buildyard")
}

func (r *distribution) nodePackage() (linuxPackage, error) {
	p := linuxPackage{
		Name: "buildnode", Summary: "Open build cloud: node agent, which runs the VMs of a machine",
		Programs: []string{"buildnode"}, Users: []string{"buildyard"},
		Directories: []stateDir{commonDir, {"0755", "root", "root", "/var/lib/buildyard/node"}},
		Data:        []string{"/var/lib/buildyard/node"},
		RunsVMs:     true,
		recommends:  []string{"qemu-system-x86", "qemu-utils", "nftables"},
		files:       map[string]packagedFile{},
	}
	unit, err := service.PackagedUnit("/usr/bin/buildnode", "/var/lib/buildyard/node")
	if err != nil {
		return p, err
	}
	p.addUnit("buildnode.service", unit)
	env, err := os.ReadFile(filepath.Join(r.root, "packaging", "systemd", "buildnode.env"))
	if err != nil {
		return p, err
	}
	p.files[service.EnvironmentFile] = packagedFile{env, 0o640, true}
	return p, r.addSystemFiles(&p, "buildnode")
}

func (r *distribution) scannerPackage() (linuxPackage, error) {
	p := linuxPackage{
		Name: "buildyard-scanners", Summary: "Open build cloud: vulnerability scanners of images and hosts",
		Programs: []string{"imagescan", "hostscan"}, Groups: []string{"hostscan"},
		Directories: []stateDir{commonDir, {"0750", "root", "hostscan", "/var/lib/buildyard/hostscan"}},
		Data:        []string{"/var/lib/buildyard/hostscan"},
		files:       map[string]packagedFile{},
	}
	from := filepath.Join(r.root, "packaging", "hostscan")
	unit, err := os.ReadFile(filepath.Join(from, "hostscan.service"))
	settings, settingsErr := os.ReadFile(filepath.Join(from, "hostscan.yml"))
	if err := errors.Join(err, settingsErr); err != nil {
		return p, err
	}
	p.addUnit("hostscan.service", unit)
	p.files["/etc/buildyard/hostscan.yml"] = packagedFile{settings, 0o644, true}
	return p, r.addSystemFiles(&p, "hostscan")
}

func (p *linuxPackage) addUnit(name string, text []byte) {
	p.Units = strings.TrimSpace(p.Units + " " + name)
	p.files["/usr/lib/systemd/system/"+name] = packagedFile{text, 0o644, false}
}

// addSystemFiles adds users, directories, manual pages, completions and documents. base names the files of
// packaging/systemd.
func (r *distribution) addSystemFiles(p *linuxPackage, base string) error {
	for kind, dir := range map[string]string{"sysusers": "/usr/lib/sysusers.d/", "tmpfiles": "/usr/lib/tmpfiles.d/"} {
		text, err := os.ReadFile(filepath.Join(r.root, "packaging", "systemd", base+"."+kind))
		if err != nil {
			return err
		}
		p.files[dir+p.Name+".conf"] = packagedFile{text, 0o644, false}
	}
	for _, program := range p.Programs {
		if err := r.addManuals(p, program); err != nil {
			return err
		}
	}
	docs := "/usr/share/doc/" + p.Name + "/"
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	changes, changesErr := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err := errors.Join(err, changesErr); err != nil {
		return err
	}
	p.files[docs+"copyright"] = packagedFile{license, 0o644, false}
	p.files[docs+"changelog.gz"] = packagedFile{compressed(changes), 0o644, false}
	return nil
}

func (r *distribution) addManuals(p *linuxPackage, program string) error {
	pages, err := os.ReadDir(filepath.Join(r.work, "man"))
	if err != nil {
		return err
	}
	for _, page := range pages {
		if name := page.Name(); name == program+".1" || strings.HasPrefix(name, program+"-") {
			text, err := os.ReadFile(filepath.Join(r.work, "man", name))
			if err != nil {
				return err
			}
			p.files["/usr/share/man/man1/"+name+".gz"] = packagedFile{compressed(text), 0o644, false}
		}
	}
	for file, to := range map[string]string{
		program + ".bash": "/usr/share/bash-completion/completions/" + program,
		"_" + program:     "/usr/share/zsh/site-functions/_" + program,
		program + ".fish": "/usr/share/fish/vendor_completions.d/" + program + ".fish",
	} {
		text, err := os.ReadFile(filepath.Join(r.work, "completions", file))
		if err != nil {
			return err
		}
		p.files[to] = packagedFile{text, 0o644, false}
	}
	return nil
}

// compressed returns the gzip form of a text, without a time.
func compressed(text []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(text) // a buffer takes everything
	_ = w.Close()
	return b.Bytes()
}

// packageVersion returns the version in the order of package managers: "~" sorts before the end of a text. Builds
// between releases are in the order of their commits.
func (r *distribution) packageVersion() string {
	return strings.Replace(r.version, "-dev", "~dev."+r.date.Format("20060102150405"), 1)
}

// writePackages writes the deb and rpm files.
func (r *distribution) writePackages(ctx context.Context) error {
	list, err := r.linuxPackages()
	if err != nil {
		return err
	}
	for _, p := range list {
		for _, platform := range r.platforms {
			if platform.OS != "linux" {
				continue
			}
			for _, format := range []string{"deb", "rpm"} {
				if err := r.writePackage(ctx, p, platform, format); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (r *distribution) writePackage(ctx context.Context, p linuxPackage, at release.Platform, format string) error {
	dir := filepath.Join(r.work, format, p.Name+"_"+at.Arch)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	settings, err := r.nfpmSettings(p, at, dir)
	if err != nil {
		return err
	}
	if format == "rpm" {
		settings["release"] = "1"
	} else {
		settings["recommends"] = p.recommends
	}
	raw, err := json.MarshalIndent(settings, "", " ") // JSON is YAML
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "nfpm.yaml")
	if err := os.WriteFile(file, raw, 0o644); err != nil {
		return err
	}
	arch := map[string]map[string]string{
		"deb": {"amd64": "amd64", "arm64": "arm64"}, "rpm": {"amd64": "x86_64", "arm64": "aarch64"},
	}[format][at.Arch]
	name := p.Name + "_" + r.packageVersion() + "_" + arch + ".deb"
	if format == "rpm" {
		name = p.Name + "-" + r.packageVersion() + "-1." + arch + ".rpm"
	}
	_, err = r.command(ctx, []string{"SOURCE_DATE_EPOCH=" + r.epoch()}, r.nfpm, "package", "--config", file,
		"--packager", format, "--target", filepath.Join(r.out, name))
	return err
}

// nfpmSettings returns the settings of nfpm for a package, and writes the files that they name.
func (r *distribution) nfpmSettings(p linuxPackage, at release.Platform, dir string) (map[string]any, error) {
	modified := r.date.Format(time.RFC3339)
	var contents []map[string]any
	add := func(source, to, kind string, mode os.FileMode) {
		contents = append(contents, map[string]any{
			"src": source, "dst": to, "type": kind,
			"file_info": map[string]any{"mode": mode, "owner": "root", "group": "root", "mtime": modified},
		})
	}
	for _, program := range p.Programs {
		add(r.program(at, program), "/usr/bin/"+program, "", 0o755)
	}
	for to, f := range p.files {
		source := filepath.Join(dir, strings.ReplaceAll(strings.TrimPrefix(to, "/"), "/", "%"))
		if err := os.WriteFile(source, f.content, 0o644); err != nil {
			return nil, err
		}
		kind := ""
		if f.isConfig {
			kind = "config|noreplace"
		}
		add(source, to, kind, f.mode)
	}
	slices.SortFunc(contents, func(a, b map[string]any) int {
		return strings.Compare(fmt.Sprint(a["dst"]), fmt.Sprint(b["dst"]))
	})

	scripts := map[string]string{}
	for key, name := range map[string]string{"postinstall": "postinst", "preremove": "prerm", "postremove": "postrm"} {
		text, err := r.render(path.Join("scripts", name+".tmpl"), p)
		if err != nil {
			return nil, err
		}
		scripts[key] = filepath.Join(dir, name)
		if err := os.WriteFile(scripts[key], text, 0o755); err != nil {
			return nil, err
		}
	}
	return map[string]any{
		"name": p.Name, "arch": at.Arch, "platform": "linux", "version": r.packageVersion(), "version_schema": "none",
		"section": "admin", "priority": "optional",
		"maintainer":  "Buildyard maintainers <maintainers@buildyard.invalid>",
		"description": p.Summary, "homepage": "https://github.com/buildyard/buildyard", "license": "Apache-2.0",
		"mtime": modified, "contents": contents, "scripts": scripts,
		"rpm": map[string]any{"buildhost": "buildyard", "compression": "gzip"},
		"deb": map[string]any{"compression": "gzip"},
	}, nil
}
