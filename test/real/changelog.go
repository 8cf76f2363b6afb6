package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// entry is what the changelog of a package states about one version.
type entry struct {
	version string
	date    time.Time
	names   []string // vulnerabilities, sorted

	// since is the lowest version that has the change: this one, or that of a newer entry. A package of a newer
	// release that is built for an older one has a lower version, and the same history: 590-2.1~deb12u1 has the
	// changes of 590-2.1.
	since string
}

// history has the entries of a changelog, newest first.
type history []entry

var (
	vulnerability = regexp.MustCompile(`\bCVE-[0-9]{4}-[0-9]{4,7}\b`)
	// debianEntry begins an entry: "openssl (3.0.20-1~deb12u2) bookworm-security; urgency=medium".
	debianEntry = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]* \(([^()\s]+)\) [^;]*;`)
)

// dateLayout is that of the last line of an entry: " -- Name <mail>  Mon, 02 Jan 2006 15:04:05 +0000".
const dateLayout = "Mon, 2 Jan 2006 15:04:05 -0700"

// maxLine limits a line of a changelog.
const maxLine = 1 << 20

// parseDebianChangelog reads a changelog of deb-changelog(5).
func parseDebianChangelog(r io.Reader) (history, error) {
	var out history
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		line := lines.Text()
		if m := debianEntry.FindStringSubmatch(line); m != nil {
			out = append(out, entry{version: m[1], since: m[1]})
			continue
		}
		if len(out) == 0 {
			continue
		}
		e := &out[len(out)-1]
		if rest, ok := strings.CutPrefix(line, " -- "); ok {
			_, date, _ := strings.Cut(rest, ">")
			e.date, _ = time.Parse(dateLayout, strings.TrimSpace(date)) // some old entries have others
			continue
		}
		e.names = append(e.names, vulnerability.FindAllString(line, -1)...)
	}
	for i := range out {
		slices.Sort(out[i].names)
		out[i].names = slices.Compact(out[i].names)
	}
	return out, lines.Err()
}

// errNoChangelog reports a package without a changelog of its version.
var errNoChangelog = errors.New("the package has no changelog of its version")

// readChangelog reads the changelog of an installed package. That of a package without a Debian revision has the name
// that the changelog of the authors has elsewhere, so the first entry must be of the installed version.
func readChangelog(root *os.Root, name, version string) (history, error) {
	for _, file := range []string{"changelog.Debian.gz", "changelog.gz"} {
		h, err := readGzip(root, path.Join("usr/share/doc", name, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s of %s: %w", file, name, err)
		}
		if len(h) > 0 && h[0].version == version {
			return h, nil
		}
	}
	return nil, errNoChangelog
}

func readGzip(root *os.Root, name string) (history, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return parseDebianChangelog(z)
}

// lowestVersions prints, for lines of versions, each version or the lowest one before it, as dpkg orders them. Old
// changelogs have versions that dpkg does not accept.
const lowestVersions = `use Dpkg::Version;
while (<STDIN>) {
	my ($lowest, @rest) = split;
	print $lowest;
	for my $v (@rest) {
		$lowest = $v if eval { version_compare($v, $lowest) < 0 };
		print " $lowest";
	}
	print "\n";
}`

// setSince sets since of all entries.
func setSince(ctx context.Context, all []history) error {
	var in strings.Builder
	for _, h := range all {
		for _, e := range h {
			in.WriteString(e.version + " ")
		}
		in.WriteString("\n")
	}
	cmd := exec.CommandContext(ctx, "perl", "-e", lowestVersions)
	cmd.Stdin = strings.NewReader(in.String())
	text, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("perl: %w", err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(lines) != len(all) {
		return fmt.Errorf("perl has %d lines instead of %d", len(lines), len(all))
	}
	for i, h := range all {
		versions := strings.Fields(lines[i])
		if len(versions) != len(h) {
			return fmt.Errorf("perl has %d versions instead of %d", len(versions), len(h))
		}
		for k := range h {
			h[k].since = versions[k]
		}
	}
	return nil
}

// index returns the place of a version's entry, -1 for none.
func (h history) index(version string) int {
	return slices.IndexFunc(h, func(e entry) bool { return e.version == version })
}

// names returns the vulnerabilities that the entries name.
func (h history) names() set {
	out := set{}
	for _, e := range h {
		out.add(e.names...)
	}
	return out
}

// set has names of vulnerabilities.
type set map[string]bool

func (s set) add(names ...string) {
	for _, n := range names {
		s[n] = true
	}
}
