package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/test/rig"
)

const (
	release       = "bookworm" // of the system
	releaseNumber = "12"
)

// wantedPackages are packages that the system has in any case, as far as the archive has them.
//
//go:embed lists/debian.txt
var wantedPackages string

const (
	// maxOthers limits the packages that are chosen only because the archive has two versions of their sources.
	maxOthers = 160
	// maxOtherBytes limits the size of one of them.
	maxOtherBytes = 4 << 20
	// maxDownload limits what is downloaded, in bytes.
	maxDownload = 2 << 30
)

// offer is a version of a package in the archive.
type offer struct {
	name, version, arch   string
	source, sourceVersion string
	size                  int64
}

// file is the name under which apt downloads it.
func (o offer) file() string {
	return o.name + "_" + strings.ReplaceAll(o.version, ":", "%3a") + "_" + o.arch + ".deb"
}

// choice is a package in its oldest and its newest version, which may be the same.
type choice struct{ oldest, newest offer }

// archive is what apt of this machine offers.
type archive struct {
	offers map[string][]offer // by package
	cache  string             // directory of downloaded packages
}

// readArchive reads the lists of apt, of all suites of the release: the release itself, its updates and its security
// updates.
func readArchive(ctx context.Context, cache string) (*archive, error) {
	a := &archive{offers: map[string][]offer{}, cache: cache}
	text, err := rig.Output(ctx, "", "apt-get", "indextargets", "--format", "$(CODENAME) $(FILENAME)",
		"Created-By: Packages", "Origin: Debian")
	if err != nil {
		return nil, err
	}
	suites := 0
	for line := range strings.Lines(text) {
		codename, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		if codename != release && !strings.HasPrefix(codename, release+"-") {
			continue
		}
		suites++
		if err := a.readList(ctx, file); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	if suites < 2 {
		return nil, fmt.Errorf("apt has %d suites of %s, want the release and its security updates: add them to the "+
			"sources of apt, and run apt-get update", suites, release)
	}
	return a, nil
}

func (a *archive) readList(ctx context.Context, file string) (err error) {
	cmd := exec.CommandContext(ctx, "/usr/lib/apt/apt-helper", "cat-file", file)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cmd.Wait()) }()
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, maxLine)
	var o offer
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ": ")
		switch key {
		case "Package":
			o = offer{name: value, source: value}
		case "Version":
			o.version = value
		case "Architecture":
			o.arch = value
		case "Source":
			o.source = value
		case "Size":
			o.size, _ = strconv.ParseInt(value, 10, 64)
		case "":
			a.add(o)
			o = offer{}
		}
	}
	a.add(o)
	_, readErr := io.Copy(io.Discard, out)
	return errors.Join(lines.Err(), readErr)
}

func (a *archive) add(o offer) {
	if o.name == "" || o.version == "" {
		return
	}
	source, version, _ := strings.Cut(o.source, " ")
	o.source, o.sourceVersion = source, o.version
	if version != "" {
		o.sourceVersion = strings.Trim(version, "()")
	}
	if !slices.ContainsFunc(a.offers[o.name], func(x offer) bool { return x.version == o.version }) {
		a.offers[o.name] = append(a.offers[o.name], o)
	}
}

// choose returns the packages of the system: those on the list, those of the minimal system, and the smallest one of
// each other source that the archive has in two versions.
func (a *archive) choose(ctx context.Context, minimal []string) ([]choice, error) {
	var out []choice
	sources := map[string]bool{}
	take := func(name string) (offer, error) {
		c, err := a.choice(ctx, name)
		if err == nil {
			out = append(out, c)
			sources[c.newest.source] = true
		}
		return c.newest, err
	}
	names := append(strings.Fields(wantedPackages), minimal...)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if len(a.offers[name]) == 0 {
			continue
		}
		if _, err := take(name); err != nil {
			return nil, err
		}
	}
	others := map[string]offer{} // the smallest package of each source
	for _, name := range slices.Sorted(maps.Keys(a.offers)) {
		list := a.offers[name]
		if o := list[0]; isPlain(o) && differ(list) && !sources[o.source] &&
			(others[o.source].name == "" || o.size < others[o.source].size) {
			others[o.source] = o
		}
	}
	n := 0
	for _, source := range slices.Sorted(maps.Keys(others)) {
		if n++; n > maxOthers {
			break
		}
		if _, err := take(others[source].name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// isPlain reports whether a package is small and has more than debugging symbols.
func isPlain(o offer) bool {
	return o.size <= maxOtherBytes && !strings.HasSuffix(o.name, "-dbg") && !strings.HasSuffix(o.name, "-dbgsym")
}

// differ reports whether there are two versions of the source.
func differ(list []offer) bool {
	return slices.ContainsFunc(list, func(o offer) bool { return o.sourceVersion != list[0].sourceVersion })
}

// choice returns the oldest and the newest version of a package, as dpkg orders them.
func (a *archive) choice(ctx context.Context, name string) (choice, error) {
	list := a.offers[name]
	c := choice{list[0], list[0]}
	for _, o := range list[1:] {
		older, err := isOlder(ctx, o.version, c.oldest.version)
		if err != nil {
			return c, err
		}
		newer, err := isOlder(ctx, c.newest.version, o.version)
		if err != nil {
			return c, err
		}
		if older {
			c.oldest = o
		}
		if newer {
			c.newest = o
		}
	}
	return c, nil
}

// isOlder reports whether dpkg orders a before b.
func isOlder(ctx context.Context, a, b string) (bool, error) {
	err := exec.CommandContext(ctx, "dpkg", "--compare-versions", a, "lt", b).Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
		return false, nil
	}
	return err == nil, err
}

// download downloads packages, unless they are in the cache.
func (a *archive) download(ctx context.Context, list []offer) error {
	if err := os.MkdirAll(a.cache, 0o755); err != nil {
		return err
	}
	var missing []string
	total := int64(0)
	for _, o := range list {
		if st, err := os.Stat(filepath.Join(a.cache, o.file())); err != nil || st.Size() != o.size {
			missing = append(missing, o.name+"="+o.version)
			total += o.size
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if total > maxDownload {
		return fmt.Errorf("the packages have %d MiB to download, more than %d MiB", total>>20, maxDownload>>20)
	}
	args := append([]string{"-qq", "-o", "APT::Sandbox::User=root", "download"}, missing...)
	_, err := rig.Output(ctx, a.cache, "apt-get", args...)
	return err
}
