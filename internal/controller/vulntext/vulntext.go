package vulntext

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// The encoding of found vulnerabilities is a line for each: its IDs with commas between them, the package, its
// version, the fixed version and the severity, with tabs between them. The lines are in order, each once.

const (
	// maxText is the length of a field in bytes.
	maxText = 255
	// maxEventIDs is the number of IDs in an event.
	maxEventIDs = 100
	// maxEncoded is the size of all lines in a record, as JSON.
	maxEncoded = 768 << 10
)

var severities = []string{"", "low", "medium", "high", "critical", "unknown"}

// Encode returns found vulnerabilities as text.
func Encode(list []api.FoundVulnerability) (string, error) {
	if len(list) > api.MaxVersionFindings {
		return "", farm.Invalid("vulnerabilities", "must have at most %d elements", api.MaxVersionFindings)
	}
	lines := make([]string, len(list))
	for i := range list {
		if err := validate(&list[i]); err != nil {
			return "", err
		}
		lines[i] = line(&list[i])
	}
	slices.Sort(lines)
	text := strings.Join(slices.Compact(lines), "")
	if raw, err := json.Marshal(text); err != nil || len(text) > api.MaxVersionFindingText || len(raw) > maxEncoded {
		return "", farm.Invalid("vulnerabilities", "must have at most %d bytes in all fields",
			api.MaxVersionFindingText)
	}
	return text, nil
}

// EncodeSome is Encode for results that are kept in any case: what is invalid or exceeds a limit is left out, and
// reported. Of each ID one is kept before more of another, those of unknown severity first: new ones have none yet.
func EncodeSome(list []api.FoundVulnerability) (text string, truncated bool) {
	valid := slices.DeleteFunc(slices.Clone(list), func(v api.FoundVulnerability) bool { return validate(&v) != nil })
	slices.SortStableFunc(valid, func(a, b api.FoundVulnerability) int { return cmp.Compare(rank(b), rank(a)) })
	var first, more []string // lines: the first of each ID, and the others
	known := map[string]bool{}
	for i := range valid {
		id, to := Canonical(valid[i].ID), &more
		if !known[id] {
			known[id], to = true, &first
		}
		*to = append(*to, line(&valid[i]))
	}
	var lines []string
	seen := map[string]bool{}
	size, encoded := 0, 0
	for _, l := range append(first, more...) {
		if seen[l] {
			continue
		}
		raw, err := json.Marshal(l)
		size, encoded = size+len(l), encoded+len(raw)
		if truncated = err != nil || len(lines) == api.MaxVersionFindings || size > api.MaxVersionFindingText ||
			encoded > maxEncoded; truncated {
			break
		}
		seen[l], lines = true, append(lines, l)
	}
	slices.Sort(lines)
	return strings.Join(lines, ""), truncated || len(valid) < len(list)
}

// Merge adds vulnerabilities to those of a text, and replaces those of the same ID, package and version. It reports
// whether some were left out.
func Merge(text string, added []api.FoundVulnerability) (merged string, truncated bool) {
	type place struct{ id, name, version string }
	at := func(v *api.FoundVulnerability) place { return place{Canonical(v.ID), v.Package, v.Version} }
	list, known := slices.Clone(added), map[place]bool{}
	for i := range added {
		known[at(&added[i])] = true
	}
	for line := range strings.Lines(text) {
		names, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if v := decode(names, rest); !known[at(&v)] {
			list = append(list, v)
		}
	}
	return EncodeSome(list)
}

// rank orders severities; an unknown one may be any, and is not to be missed.
func rank(v api.FoundVulnerability) int {
	if i := slices.Index(severities[1:5], v.Severity); i >= 0 {
		return i
	}
	return len(severities)
}

func line(v *api.FoundVulnerability) string {
	names := []string{Canonical(v.ID)}
	for _, id := range v.Aliases {
		names = append(names, Canonical(id))
	}
	return strings.Join([]string{strings.Join(names, ","), v.Package, v.Version, v.Fixed, v.Severity}, "\t") + "\n"
}

func validate(v *api.FoundVulnerability) error {
	switch {
	case !ValidID(v.ID):
		return farm.Invalid("vulnerabilities", "must have in id an ID such as CVE-2019-10744, of at most %d bytes",
			api.MaxVulnerabilityBytes)
	case len(v.Aliases) > api.MaxAliases, slices.ContainsFunc(v.Aliases, func(id string) bool { return !ValidID(id) }):
		return farm.Invalid("vulnerabilities", "must have in aliases at most %d IDs of at most %d bytes",
			api.MaxAliases, api.MaxVulnerabilityBytes)
	case !slices.Contains(severities, v.Severity):
		return farm.Invalid("vulnerabilities", "must have in severity low, medium, high, critical or unknown")
	}
	for _, text := range []string{v.Package, v.Version, v.Fixed} {
		if len(text) > maxText || !utf8.ValidString(text) || strings.ContainsFunc(text, IsControl) {
			return farm.Invalid("vulnerabilities",
				"must have in package, version and fixed at most %d bytes and no control characters", maxText)
		}
	}
	return nil
}

// ValidID reports whether a text has the form of the ID of a vulnerability.
func ValidID(id string) bool {
	return id != "" && len(id) <= api.MaxVulnerabilityBytes &&
		!strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' || r == ',' })
}

// IsControl reports whether a character is a control character.
func IsControl(r rune) bool { return r < ' ' || r == 0x7f }

// decode returns the vulnerability of a line: names are its IDs.
func decode(names, rest string) (v api.FoundVulnerability) {
	all := strings.Split(names, ",")
	fields := strings.SplitN(rest, "\t", 4)
	v.ID = all[0]
	if len(all) > 1 {
		v.Aliases = all[1:]
	}
	for i, to := range []*string{&v.Package, &v.Version, &v.Fixed, &v.Severity} {
		if i < len(fields) {
			*to = fields[i]
		}
	}
	return v
}

// Canonical returns the spelling in which an ID is kept: in upper case, and those of GitHub as GitHub writes them.
func Canonical(id string) string {
	const github = "GHSA-"
	upper := strings.ToUpper(id)
	if rest, ok := strings.CutPrefix(upper, github); ok {
		return github + strings.ToLower(rest)
	}
	return upper
}

// Among returns the vulnerabilities of a text that have one of the IDs, which are in the spelling of Canonical.
func Among(text string, ids []string) (hit []api.FoundVulnerability) {
	var lines []int // where they begin
	for _, id := range ids {
		for from := 0; ; {
			i := strings.Index(text[from:], id)
			if i < 0 {
				break
			}
			at := from + i
			begin := strings.LastIndexByte(text[:at], '\n') + 1
			if isWholeID(text[begin:at], text[at+len(id):]) {
				lines = append(lines, begin)
			}
			from = at + len(id)
		}
	}
	slices.Sort(lines)
	for _, begin := range slices.Compact(lines) {
		line, _, _ := strings.Cut(text[begin:], "\n")
		names, rest, _ := strings.Cut(line, "\t")
		hit = append(hit, decode(names, rest))
	}
	return hit
}

// isWholeID reports whether a text is an ID: before is what precedes it in its line, after what follows.
func isWholeID(before, after string) bool {
	return (before == "" || before[len(before)-1] == ',' && !strings.Contains(before, "\t")) &&
		(strings.HasPrefix(after, ",") || strings.HasPrefix(after, "\t"))
}

// Added returns the IDs of the vulnerabilities that were not there before, in order, each once. One that is there
// with another of its IDs is not new.
func Added(before, after string) (added []string) {
	old := map[string]bool{}
	for line := range strings.Lines(before) {
		for _, id := range namesOf(line) {
			old[id] = true
		}
	}
	for line := range strings.Lines(after) {
		if ids := namesOf(line); !slices.ContainsFunc(ids, func(id string) bool { return old[id] }) {
			added = append(added, ids[0])
		}
	}
	slices.Sort(added)
	return slices.Compact(added)
}

// namesOf returns the IDs in a line.
func namesOf(line string) []string {
	names, _, _ := strings.Cut(line, "\t")
	return strings.Split(names, ",")
}

// FoundEvent returns the event that vulnerabilities were found that were not there before.
func FoundEvent(about map[string]any, added []string) farm.Event {
	about["count"], about["vulnerabilities"] = len(added), added[:min(len(added), maxEventIDs)]
	return farm.Event{Name: farm.EventVulnerabilityFound, Extra: about}
}
