package truthtable

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var (
	frontMatter = regexp.MustCompile("(?s)^\\s*```toml\n(.*?)\n```")
	tomlKey     = regexp.MustCompile(`^([a-z_-]+)\s*=\s*(.*)$`)
	tomlText    = regexp.MustCompile(`"([^"]*)"`)
)

// rustRecord parses the front matter of a record of RustSec: not TOML in general, only keys of
// tables, texts and lists of texts.
func rustRecord(file string, data []byte) ([]*record, error) {
	m := frontMatter.FindSubmatch(data)
	if m == nil {
		return nil, errors.New(file + " has no front matter")
	}
	values := map[string][]string{}
	table, key, raw := "", "", ""
	for line := range strings.SplitSeq(string(m[1]), "\n") {
		line = strings.TrimSpace(line)
		k := tomlKey.FindStringSubmatch(line)
		switch {
		case strings.HasPrefix(line, "#"):
			continue
		case key != "": // within a list of several lines
			raw += line
		case k != nil:
			key, raw = table+"."+k[1], k[2]
		case strings.HasPrefix(line, "["):
			table = strings.Trim(line, "[]")
			continue
		}
		if strings.HasPrefix(raw, "[") && !strings.HasSuffix(raw, "]") {
			continue
		}
		for _, t := range tomlText.FindAllStringSubmatch(raw, -1) {
			values[key] = append(values[key], t[1])
		}
		key, raw = "", ""
	}
	if _, withdrawn := values["advisory.withdrawn"]; withdrawn || values["advisory.informational"] != nil {
		return nil, nil
	}
	if values["advisory.package"] == nil || values["advisory.id"] == nil {
		return nil, errors.New(file + " names no package")
	}
	r := &record{
		file: file, source: "rustsec", ecosystem: crates, name: values["advisory.package"][0],
		ids: cves(values["advisory.aliases"]), unconfirmed: reviewed,
	}
	if len(r.ids) == 0 {
		r.ids = values["advisory.id"][:1]
	}
	var sound [][]cargoBound
	for _, q := range append(slices.Clone(values["versions.patched"]), values["versions.unaffected"]...) {
		all, err := parseCargo(q)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		sound = append(sound, all)
		for _, b := range all {
			r.bounds = append(r.bounds, strings.TrimSuffix(b.version, "-0"))
		}
	}
	r.held = func(v string) bool {
		if _, ok := compareSemver(v, v); !ok {
			return false
		}
		return !slices.ContainsFunc(sound, func(all []cargoBound) bool {
			return !slices.ContainsFunc(all, func(b cargoBound) bool { return !b.holds(v) })
		})
	}
	return []*record{r}, nil
}

// cargoBound is one end of a requirement; ^ and ~ become two of them.
type cargoBound struct{ op, version string }

func (b cargoBound) holds(v string) bool {
	c, _ := compareSemver(v, b.version)
	return c < 0 && strings.HasPrefix(b.op, "<") || c > 0 && strings.HasPrefix(b.op, ">") ||
		c == 0 && strings.HasSuffix(b.op, "=")
}

func parseCargo(s string) ([]cargoBound, error) {
	var out []cargoBound
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		version := strings.TrimSpace(strings.TrimLeft(part, "<>=~^"))
		op := strings.TrimSpace(part[:len(part)-len(strings.TrimLeft(part, "<>=~^"))])
		v, ok := parseSemver(version)
		if !ok {
			return nil, fmt.Errorf("no requirement: %q", part)
		}
		switch op {
		case "<", "<=", ">", ">=", "=":
			out = append(out, cargoBound{op, version})
		case "", "^", "~":
			core, _, _ := strings.Cut(version, "-")
			// The end is that version's lowest pre-release, so that all its pre-releases are
			// excluded.
			out = append(out, cargoBound{">=", version},
				cargoBound{"<", cargoEnd(op, v.core, strings.Count(core, ".")+1) + "-0"})
		default:
			return nil, fmt.Errorf("no requirement: %q", part)
		}
	}
	return out, nil
}

// cargoEnd returns the first version excluded by ^ or ~ of a version with so many given numbers.
func cargoEnd(op string, core [3]string, given int) string {
	at := 0 // the number that is incremented
	switch {
	case op == "~" && given > 1:
		at = 1
	case op == "~":
	default:
		for at < given-1 && numbers(core[at], "0") == 0 {
			at++
		}
	}
	end := [3]string{"0", "0", "0"}
	copy(end[:], core[:at])
	end[at] = plusOne(core[at])
	return strings.Join(end[:], ".")
}
