package truthtable

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// trackerReleases are those of Debian that the table's entries name.
var trackerReleases = map[string]string{
	"jessie": "Debian:8", "buster": "Debian:10", "bullseye": "Debian:11", "bookworm": "Debian:12",
}

// addTracker adds the entries of Debian's tracker as records of another source.
func (n *naive) addTracker(file string, data []byte) error {
	var all map[string]map[string]struct {
		Releases map[string]struct {
			Status string
			Fixed  string `json:"fixed_version"`
		}
	}
	if err := json.Unmarshal(data, &all); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for name, entries := range all {
		for id, e := range entries {
			for codename, state := range e.Releases {
				eco := trackerReleases[codename]
				if eco == "" || state.Status != "resolved" {
					return fmt.Errorf("%s: %s %s %s: unexpected", file, name, id, codename)
				}
				fixed := state.Fixed
				n.records[eco+"/"+name] = append(n.records[eco+"/"+name], &record{
					file: file, source: "tracker", ecosystem: eco, name: name, ids: []string{id},
					held: func(v string) bool {
						c, ok := orders["Debian"](v, fixed)
						return ok && fixed != "0" && c < 0
					},
				})
			}
		}
	}
	return nil
}

// releases maps the release of a package to the ecosystems of its advisories.
func releases(p *catalog.Package) []string {
	id, version, _ := strings.Cut(p.Distribution, ":")
	major, _, _ := strings.Cut(version, ".")
	switch id {
	case "debian":
		return []string{"Debian:" + version}
	case "ubuntu":
		if strings.Contains(p.SourceVersion, "esm") {
			return []string{"Ubuntu:Pro:" + version + ":LTS"}
		}
		return []string{"Ubuntu:" + version + ":LTS", "Ubuntu:" + version}
	case "alpine":
		return []string{"Alpine:v" + version}
	case "rocky":
		return []string{"Rocky Linux:" + major}
	case "almalinux":
		return []string{"AlmaLinux:" + major}
	case "rhel":
		return []string{
			"Red Hat:enterprise_linux:" + major + "::appstream",
			"Red Hat:enterprise_linux:" + major + "::baseos",
		}
	}
	return nil
}

// distributionHas reports whether a record of a package's release contains it. The tracker decides
// where it has the vulnerability.
func (n *naive) distributionHas(p *catalog.Package, vulnerability string) bool {
	name, version := p.Source, p.SourceVersion
	switch {
	case p.Kind == catalog.RPM: // the table has names of packages alone
		name, version = p.Name, p.Version
	case name == "linux-signed-amd64":
		name, version = "linux", strings.Replace(version, "+", "-", 1)
	}
	var found []*record
	for _, eco := range releases(p) {
		for _, r := range n.records[eco+"/"+name] {
			if slices.Contains(r.ids, vulnerability) {
				found = append(found, r)
			}
		}
	}
	if tracked := slices.DeleteFunc(slices.Clone(found), func(r *record) bool { return r.source != "tracker" }); len(
		tracked) > 0 {
		found = tracked
	}
	return slices.ContainsFunc(found, func(r *record) bool { return r.held(version) })
}

// moduleMark begins the keys of packages of modules.
const moduleMark = "module"

// keyed is a version as texts that are compared in turn, each by its characters' ranks.
type keyed []string

// compareByKeys returns the order of versions whose parts are written so that their order is that of
// strings.
func compareByKeys(key func(string) (keyed, bool)) order {
	return func(a, b string) (int, bool) {
		x, ok := key(a)
		y, valid := key(b)
		if !ok || !valid || (x[0] == moduleMark) != (y[0] == moduleMark) {
			return 0, false
		}
		return slices.Compare(x, y), true
	}
}

// padded writes a number so that strings order it: its length, then its digits.
func padded(digits string) string {
	digits = strings.TrimLeft(digits, "0")
	return fmt.Sprintf("%03d%s", len(digits), digits)
}

var debVersion = regexp.MustCompile(`^(?:([0-9]+):)?([A-Za-z0-9.+~-]+?)(?:-([A-Za-z0-9.+~]+))?$`)

var digits = regexp.MustCompile(`[0-9]+`)

func debKey(v string) (keyed, bool) {
	m := debVersion.FindStringSubmatch(v)
	if m == nil {
		return nil, false
	}
	return append(append(keyed{padded(m[1])}, debPart(m[2])...), debPart(m[3])...), true
}

// debPart returns a part's texts and numbers in turn, in 32 places so that the next part begins at the
// same one.
func debPart(s string) keyed {
	out := make(keyed, 0, 32)
	words, numbers := digits.Split(s, -1), digits.FindAllString(s, -1)
	for i := range 16 {
		word, number := "", ""
		if i < len(words) {
			word = words[i]
		}
		if i < len(numbers) {
			number = numbers[i]
		}
		var b strings.Builder
		for _, c := range []byte(word) {
			switch {
			case c == '~':
				b.WriteByte(1)
			case c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z':
				b.WriteByte(c)
			default:
				b.WriteByte(128 + c)
			}
		}
		b.WriteByte(2) // the end is after a tilde
		out = append(out, b.String(), padded(number))
	}
	return out
}

var rpmVersion = regexp.MustCompile(`^(?:([0-9]+):)?([A-Za-z0-9._+~^]+)-([A-Za-z0-9._+~^]+)$`)

var rpmSegments = regexp.MustCompile(`[0-9]+|[A-Za-z]+|~|\^`)

func rpmKey(v string) (keyed, bool) {
	m := rpmVersion.FindStringSubmatch(v)
	if m == nil {
		return nil, false
	}
	out := keyed{padded(m[1])}
	for _, part := range m[2:] {
		for _, s := range rpmSegments.FindAllString(part, -1) {
			switch {
			case s == "~":
				out = append(out, "0")
			case s == "^":
				out = append(out, "2")
			case isNumber(s):
				out = append(out, "4"+padded(s))
			default:
				out = append(out, "3"+s)
			}
		}
		out = append(out, "1") // the end of a part
	}
	// A fix of a module is about packages of modules alone: no other is below or above it.
	if strings.Contains(v, ".module") {
		return append(keyed{moduleMark}, out...), true
	}
	return out, true
}

var apkVersion = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)*)([a-z]?)((?:_[a-z]+[0-9]*)*)(?:-r([0-9]+))?$`)

var apkSuffixPattern = regexp.MustCompile(`_([a-z]+)([0-9]*)`)

var apkOrder = map[string]string{
	"alpha": "00", "beta": "01", "pre": "02", "rc": "03", "cvs": "20", "svn": "21", "git": "22", "hg": "23", "p": "24",
}

// apkKey returns the parts of a version; "1" and its successors are the ranks of what follows the numbers.
func apkKey(v string) (keyed, bool) {
	m := apkVersion.FindStringSubmatch(v)
	if m == nil {
		return nil, false
	}
	var out keyed
	for part := range strings.SplitSeq(m[1], ".") {
		out = append(out, "9"+padded(part))
	}
	if m[2] != "" {
		out = append(out, "8"+m[2])
	}
	for _, s := range apkSuffixPattern.FindAllStringSubmatch(m[3], -1) {
		out = append(out, apkOrder[s[1]], "5"+padded(s[2]))
	}
	if m[4] != "" {
		out = append(out, "12"+padded(m[4]))
	}
	return append(out, "11"), true
}
