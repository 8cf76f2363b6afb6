package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// erratum is an update of packages that fixes vulnerabilities, as distributions of RPM packages announce them.
type erratum struct {
	source string
	names  []string          // vulnerabilities
	fixed  map[string]string // versions by package
}

// errataForm is how a distribution publishes errata in OSV.
type errataForm struct {
	prefix, suffix, ecosystem string
	epoch                     string // of versions without one
	related                   bool   // vulnerabilities are in "related" instead of "upstream"
	binaries                  bool   // the source is the package, and has a list of what is built from it
}

// write writes errata into an archive of OSV.
func (f errataForm) write(file string, all []erratum) error {
	var records []*osvRecord
	for i, e := range all {
		r := &osvRecord{
			ID:      fmt.Sprintf("%s2026:%04d%s", f.prefix, i+1, f.suffix),
			Summary: "Moderate: " + e.source + " security update",
		}
		if f.related {
			r.Related = e.names
		} else {
			r.Upstream = e.names
		}
		if f.binaries {
			one := fixedIn(f.ecosystem, e.source, e.fixed[e.source])
			one.Specific = &osvSpecific{Binaries: []map[string]string{e.fixed}}
			r.Affected = []osvAffected{one}
		} else {
			for _, name := range slices.Sorted(maps.Keys(e.fixed)) {
				version := e.fixed[name]
				if !strings.Contains(version, ":") {
					version = f.epoch + version
				}
				r.Affected = append(r.Affected, fixedIn(f.ecosystem, name, version))
			}
		}
		records = append(records, r)
	}
	return writeOSV(file, records)
}

// readRPMs reads the packages of both systems as rpm lists them, what changelogs state about them, and the errata of
// the newer changelogs.
func readRPMs(ctx context.Context, older, newer *system) ([]erratum, error) {
	newest := map[string]history{} // by source
	for _, s := range []*system{newer, older} {
		logs, err := listRPMs(ctx, s)
		if err != nil {
			return nil, err
		}
		for i := range s.packages {
			p := &s.packages[i]
			if s == newer {
				newest[p.source] = logs[p.name]
			}
			t, ok := truthOf(logs[p.name], newest[p.source], p.sourceVersion)
			if !ok {
				return nil, fmt.Errorf("the changelog of %s has no entry of %s", p.name, p.sourceVersion)
			}
			p.fixed, p.affected = t.fixed, t.affected
		}
	}
	var out []erratum
	for _, source := range slices.Sorted(maps.Keys(newest)) {
		out = append(out, errataOf(newer, source, newest[source])...)
	}
	return out, nil
}

// errataOf returns an erratum for each entry that is the first to name a vulnerability.
func errataOf(s *system, source string, h history) []erratum {
	first := fixesOf(h)
	var out []erratum
	for i, e := range h {
		var names []string
		for _, name := range e.names {
			if first[name] == e.version {
				names = append(names, name)
			}
		}
		if len(names) == 0 {
			continue
		}
		fixed := map[string]string{}
		for _, p := range s.packages {
			switch {
			case p.source != source:
			case p.version == p.sourceVersion:
				fixed[p.name] = e.version
			default:
				fixed[p.name] = pluginVersion(make([]rpmVersion, len(h)-i)).String()
			}
		}
		out = append(out, erratum{source: source, names: names, fixed: fixed})
	}
	return out
}

// listRPMs sets the packages of a system to those that rpm lists, and returns the changelog of each.
func listRPMs(ctx context.Context, s *system) (map[string]history, error) {
	text, err := rpm(ctx, s.dir, "-qa", "--qf",
		`%{NAME}\t%|EPOCH?{%{EPOCH}:}|%{VERSION}-%{RELEASE}\t%{ARCH}\t%{SOURCERPM}\n`)
	if err != nil {
		return nil, err
	}
	epochs := map[string]string{} // by the name of the source's file: it has none
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		if len(f) != 4 {
			return nil, fmt.Errorf("rpm lists %q", line)
		}
		p := subject{name: f[0], version: f[1], arch: f[2]}
		full := strings.TrimSuffix(f[3], ".src.rpm")
		k := strings.LastIndexByte(full, '-')
		k = strings.LastIndexByte(full[:max(k, 0)], '-')
		if k < 0 {
			return nil, fmt.Errorf("rpm lists the source %q", f[3])
		}
		p.source, p.sourceVersion = full[:k], full[k+1:]
		if epoch, rest, ok := strings.Cut(p.version, ":"); ok && rest == p.sourceVersion {
			epochs[full] = epoch + ":"
		}
		s.packages = append(s.packages, p)
	}
	for i := range s.packages {
		p := &s.packages[i]
		p.sourceVersion = epochs[p.source+"-"+p.sourceVersion] + p.sourceVersion
	}
	logs := map[string]history{}
	text, err = rpm(ctx, s.dir, "-qa", "--qf", `[%{=NAME}\t%{CHANGELOGNAME}\t%{CHANGELOGTEXT}\f]`)
	if err != nil {
		return nil, err
	}
	for record := range strings.SplitSeq(text, "\f") {
		f := strings.SplitN(record, "\t", 3)
		if len(f) < 3 {
			continue
		}
		_, version, ok := strings.Cut(f[1], "> - ")
		if !ok {
			return nil, fmt.Errorf("rpm lists the entry %q of %s", f[1], f[0])
		}
		logs[f[0]] = append(logs[f[0]],
			entry{version: version, since: version, names: vulnerability.FindAllString(f[2], -1)})
	}
	return logs, nil
}
