package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha1" //nolint:gosec // apk identifies packages and files by it
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

const (
	alpineRelease = "ID=alpine\nVERSION_ID=3.20.3\n"
	apkDatabase   = "lib/apk/db/installed"
	apkArch       = "x86_64"
)

var (
	// apkVersion matches versions of authors that are in the grammar of apk and have the same order there.
	apkVersion = regexp.MustCompile(`^\d+(\.\d+)*$`)
	// repacked ends the version of a source of which Debian leaves out files.
	repacked = regexp.MustCompile(`[+~.]?(dfsg|ds)[0-9.]*$`)
)

// apkVersions returns the version of each entry of a history, newest first; false where apk has no such versions, or
// orders them in another way.
func apkVersions(h history) ([]string, bool) {
	out := make([]string, len(h))
	oldest, _ := upstream(h[len(h)-1].version)
	n, last := 0, ""
	for i := len(h) - 1; i >= 0; i-- {
		epoch, version := upstream(h[i].version)
		version = repacked.ReplaceAllString(version, "")
		if epoch != oldest || !apkVersion.MatchString(version) || last != "" && compareNumbers(version, last) < 0 {
			return nil, false
		}
		if n++; version != last {
			n, last = 0, version
		}
		out[i] = fmt.Sprintf("%s-r%d", version, n)
	}
	return out, true
}

// compareNumbers compares versions that consist of numbers.
func compareNumbers(a, b string) int {
	numbers := func(v string) (out []int) {
		for part := range strings.SplitSeq(v, ".") {
			n, _ := strconv.Atoi(part)
			out = append(out, n)
		}
		return out
	}
	return slices.Compare(numbers(a), numbers(b))
}

// writeAPKBUILD writes the recipe of a package, with the vulnerabilities that each version fixes, as Alpine keeps them.
// A recipe names a vulnerability once.
func writeAPKBUILD(file string, m model, versions []string, from int) error {
	version, release, _ := strings.Cut(versions[from], "-r")
	var text strings.Builder
	fmt.Fprintf(&text, "pkgname=%s\npkgver=%s\npkgrel=%s\nsubpackages=\"$pkgname-libs\"\n\n# secfixes:\n", m.name,
		version, release)
	first := fixesOf(m.newest)
	for i := from; i < len(m.newest); i++ {
		names := slices.DeleteFunc(slices.Clone(m.newest[i].names),
			func(name string) bool { return first[name] != m.newest[i].since })
		if len(names) == 0 {
			continue
		}
		fmt.Fprintf(&text, "#   %s:\n", versions[i])
		for _, name := range names {
			text.WriteString("#     - " + name + "\n")
		}
	}
	return writeFile(file, []byte(text.String()))
}

// readSecfixes reads the fixes of a recipe.
func readSecfixes(file string) (fixes, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	out := fixes{}
	version, inside := "", false
	for line := range strings.Lines(string(data)) {
		text, comment := strings.CutPrefix(strings.TrimRight(line, "\n"), "#")
		switch {
		case !comment:
			inside = false
		case strings.TrimSpace(text) == "secfixes:":
			inside = true
		case inside && strings.HasSuffix(text, ":"):
			version = strings.TrimSuffix(strings.TrimSpace(text), ":")
		case inside:
			out[strings.TrimPrefix(strings.TrimSpace(text), "- ")] = version
		}
	}
	return out, nil
}

// apkPackage is a package in apk's format, version 2: a control segment and the files.
type apkPackage struct {
	name, version, origin string
	files                 map[string][]byte // by path
}

// write writes the package: two gzip streams, whose archives together are one.
func (p apkPackage) write(file string) error {
	data, size, err := p.archive()
	if err != nil {
		return err
	}
	info := fmt.Sprintf("# Generated\npkgname = %s\npkgver = %s\npkgdesc = %s\nurl = https://example.org/\n"+
		"builddate = 1700000000\nsize = %d\narch = %s\norigin = %s\nlicense = MIT\ndatahash = %s\n", p.name, p.version,
		p.name, size, apkArch, p.origin, hashOf(data))
	var control bytes.Buffer
	z := gzip.NewWriter(&control)
	w := tar.NewWriter(z)
	if err := errors.Join(addToTar(w, ".PKGINFO", []byte(info), nil), w.Flush(), z.Close()); err != nil {
		return err
	}
	return writeFile(file, append(control.Bytes(), data...))
}

func hashOf(data []byte) string {
	sum := sha1.Sum(data) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}

// archive returns the segment of the files, which has their sums.
func (p apkPackage) archive() ([]byte, int, error) {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	size := 0
	for _, name := range slices.SortedFunc(maps.Keys(p.files), byDirectory) {
		data := p.files[name]
		size += len(data)
		if err := addToTar(w, name, data, map[string]string{"APK-TOOLS.checksum.SHA1": hashOf(data)}); err != nil {
			return nil, 0, err
		}
	}
	err := errors.Join(w.Close(), z.Close())
	return out.Bytes(), size, err
}

// byDirectory orders the files of a directory next to each other.
func byDirectory(a, b string) int {
	return cmp.Or(strings.Compare(path.Dir(a), path.Dir(b)), strings.Compare(a, b))
}

func addToTar(w *tar.Writer, name string, data []byte, records map[string]string) error {
	err := w.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: name, Size: int64(len(data)), Mode: 0o644, PAXRecords: records,
		Format: tar.FormatPAX,
	})
	if err == nil {
		_, err = w.Write(data)
	}
	return err
}

// installAPK unpacks a package into a system and returns its paragraph of the database.
func installAPK(tree, file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	in := &countingReader{r: bufio.NewReader(f)}
	z, err := gzip.NewReader(in)
	if err != nil {
		return "", err
	}
	z.Multistream(false)
	control, err := io.ReadAll(z)
	if err != nil {
		return "", err
	}
	segment := make([]byte, in.n)
	if _, err := f.ReadAt(segment, 0); err != nil {
		return "", err
	}
	info, err := readInfo(control)
	if err != nil {
		return "", err
	}
	sum := sha1.Sum(segment) //nolint:gosec // as above
	var b strings.Builder
	fmt.Fprintf(&b, "C:Q1%s\nP:%s\nV:%s\nA:%s\nS:1\nI:%s\nT:%s\nU:%s\nL:%s\no:%s\nt:%s\n",
		base64.StdEncoding.EncodeToString(sum[:]), info["pkgname"], info["pkgver"], info["arch"], info["size"],
		info["pkgdesc"], info["url"], info["license"], info["origin"], info["builddate"])
	if err := z.Reset(in); err != nil {
		return "", err
	}
	dir := "\x00"
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return b.String() + "\n", nil
		}
		if err != nil {
			return "", err
		}
		data, err := io.ReadAll(t)
		if err != nil {
			return "", err
		}
		if !filepath.IsLocal(h.Name) {
			return "", fmt.Errorf("the package has the file %q", h.Name)
		}
		if err := writeFile(filepath.Join(tree, h.Name), data); err != nil { //nolint:gosec // it is local
			return "", err
		}
		if d := path.Dir(h.Name); d != dir {
			dir = d
			fmt.Fprintf(&b, "F:%s\n", d)
		}
		fileSum := sha1.Sum(data) //nolint:gosec // as above
		fmt.Fprintf(&b, "R:%s\nZ:Q1%s\n", path.Base(h.Name), base64.StdEncoding.EncodeToString(fileSum[:]))
	}
}

// readInfo reads the fields of .PKGINFO.
func readInfo(archive []byte) (map[string]string, error) {
	t := tar.NewReader(bytes.NewReader(archive))
	if _, err := t.Next(); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(t)
	out := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " = ")
		out[key] = value
	}
	return out, err
}

// countingReader counts the bytes that a decompressor takes. It reads bytes one by one, as gzip does where it can.
type countingReader struct {
	r *bufio.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

func (c *countingReader) ReadByte() (byte, error) {
	b, err := c.r.ReadByte()
	if err == nil {
		c.n++
	}
	return b, err
}

// makeAPK makes the older and the newer system of Alpine, and returns the fixes of the newest recipes.
func makeAPK(s *site, models []model) (older, newer system, all map[string]fixes, err error) {
	all = map[string]fixes{}
	older = system{name: "older", dir: filepath.Join(s.dir, "alpine-older"), kind: catalog.APK}
	newer = system{name: "newer", dir: filepath.Join(s.dir, "alpine-newer"), kind: catalog.APK}
	databases := map[*system]string{}
	for _, m := range models {
		versions, ok := apkVersions(m.newest)
		if !ok {
			continue
		}
		known := map[*system]fixes{}
		for sys, i := range map[*system]int{&older: m.older, &newer: 0} {
			recipe := filepath.Join(s.dir, "aports", sys.name, m.name, "APKBUILD")
			if err := writeAPKBUILD(recipe, m, versions, i); err != nil {
				return older, newer, nil, err
			}
			if known[sys], err = readSecfixes(recipe); err != nil {
				return older, newer, nil, err
			}
			paragraphs, err := buildAPKs(s, sys, m, versions[i])
			if err != nil {
				return older, newer, nil, err
			}
			databases[sys] += paragraphs
		}
		all[m.name] = known[&newer]
		for sys, i := range map[*system]int{&older: m.older, &newer: 0} {
			fixed, affected := set{}, set{}
			for id := range known[&newer] {
				if known[sys][id] != "" {
					fixed.add(id)
				} else {
					affected.add(id)
				}
			}
			for _, name := range []string{m.name, m.name + "-libs"} {
				sys.packages = append(sys.packages, subject{
					name: name, version: versions[i], arch: apkArch, source: m.name, sourceVersion: versions[i],
					fixed: fixed, affected: affected,
				})
			}
		}
	}
	for _, sys := range []*system{&older, &newer} {
		err = errors.Join(err, writeFile(filepath.Join(sys.dir, "etc/os-release"), []byte(alpineRelease)),
			writeFile(filepath.Join(sys.dir, apkDatabase), []byte(databases[sys])))
	}
	return older, newer, all, err
}

// buildAPKs builds the packages of a model, installs them, and returns their paragraphs of the database.
func buildAPKs(s *site, sys *system, m model, version string) (string, error) {
	main := apkPackage{name: m.name, version: version, origin: m.name, files: map[string][]byte{
		"usr/share/doc/" + m.name + "/README": []byte(m.name + "\n"),
	}}
	for name, file := range m.files {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		main.files[strings.TrimPrefix(name, "/")] = data
	}
	libs := apkPackage{name: m.name + "-libs", version: version, origin: m.name, files: map[string][]byte{
		"usr/lib/lib" + m.name + ".so.1": []byte(m.name + "\n"),
	}}
	var out strings.Builder
	for _, p := range []apkPackage{main, libs} {
		file := filepath.Join(s.dir, "apks", sys.name, p.name+"-"+p.version+".apk")
		if err := p.write(file); err != nil {
			return "", err
		}
		text, err := installAPK(sys.dir, file)
		if err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
		out.WriteString(text)
	}
	return out.String(), nil
}

// writeAlpine writes the fixes as OSV publishes those of Alpine's recipes. In the release before, every vulnerability
// is open.
func writeAlpine(file string, all map[string]fixes) error {
	byID := map[string]*osvRecord{}
	for _, source := range slices.Sorted(maps.Keys(all)) {
		for id, version := range all[source] {
			r := byID[id]
			if r == nil {
				r = &osvRecord{ID: "ALPINE-" + id, Upstream: []string{id}}
				byID[id] = r
			}
			r.Affected = append(r.Affected, fixedIn("Alpine:v3.19", source, ""),
				fixedIn("Alpine:v3.20", source, version))
		}
	}
	return writeOSV(file, slices.Collect(maps.Values(byID)))
}
