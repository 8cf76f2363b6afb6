package main

import (
	"archive/zip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// modified is the date of all records: that of the archive changes nothing.
const modified = "2026-01-01T00:00:00Z"

// trackerRelease is the state of a release in Debian's security tracker.
type trackerRelease struct {
	Status       string            `json:"status"`
	Repositories map[string]string `json:"repositories,omitempty"`
	Fixed        string            `json:"fixed_version,omitempty"`
	Urgency      string            `json:"urgency"`
}

type trackerEntry struct {
	Scope    string                    `json:"scope"`
	Releases map[string]trackerRelease `json:"releases"`
}

// writeTracker writes the fixes as Debian's security tracker publishes them. In the releases before and after, every
// vulnerability is open: that must not be reported.
func writeTracker(file string, all map[string]fixes) error {
	out := map[string]map[string]trackerEntry{}
	for source, list := range all {
		out[source] = map[string]trackerEntry{}
		for id, version := range list {
			open := trackerRelease{Status: "open", Urgency: "not yet assigned"}
			out[source][id] = trackerEntry{Scope: "remote", Releases: map[string]trackerRelease{
				"bullseye": open, "trixie": open, "sid": open,
				release: {
					Status: "resolved", Fixed: version, Urgency: "not yet assigned",
					Repositories: map[string]string{release: version},
				},
			}}
		}
	}
	text, err := json.Marshal(out)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

// osvRecord is an advisory in the format of OSV, with the fields that feeds of distributions have.
type osvRecord struct {
	SchemaVersion string        `json:"schema_version"`
	ID            string        `json:"id"`
	Modified      string        `json:"modified"`
	Upstream      []string      `json:"upstream,omitempty"`
	Related       []string      `json:"related,omitempty"`
	Summary       string        `json:"summary,omitempty"`
	Affected      []osvAffected `json:"affected"`
}

type osvAffected struct {
	Package  osvPackage   `json:"package"`
	Ranges   []osvRange   `json:"ranges"`
	Versions []string     `json:"versions,omitempty"`
	Specific *osvSpecific `json:"ecosystem_specific,omitempty"`
}

type osvPackage struct {
	Name      string `json:"name"`
	Ecosystem string `json:"ecosystem"`
}

type osvRange struct {
	Type   string              `json:"type"`
	Events []map[string]string `json:"events"`
}

type osvSpecific struct {
	Urgency  string              `json:"urgency,omitempty"`
	Binaries []map[string]string `json:"binaries,omitempty"`
}

// fixedIn returns an entry of a record; without a version the vulnerability is open.
func fixedIn(ecosystem, name, version string) osvAffected {
	events := []map[string]string{{"introduced": "0"}}
	if version != "" {
		events = append(events, map[string]string{"fixed": version})
	}
	return osvAffected{
		Package: osvPackage{Name: name, Ecosystem: ecosystem},
		Ranges:  []osvRange{{Type: "ECOSYSTEM", Events: events}},
	}
}

// writeDebianOSV writes the fixes as OSV publishes the data of the tracker: a record for each vulnerability.
func writeDebianOSV(file string, all map[string]fixes) error {
	byID := map[string]*osvRecord{}
	for _, source := range slices.Sorted(maps.Keys(all)) {
		for id, version := range all[source] {
			r := byID[id]
			if r == nil {
				r = &osvRecord{ID: "DEBIAN-" + id, Upstream: []string{id}}
				byID[id] = r
			}
			one := fixedIn("Debian:"+releaseNumber, source, version)
			one.Specific = &osvSpecific{Urgency: "not yet assigned"}
			r.Affected = append(r.Affected, fixedIn("Debian:11", source, ""), one, fixedIn("Debian:13", source, ""))
		}
	}
	return writeOSV(file, slices.Collect(maps.Values(byID)))
}

// writeOSV writes records into an archive as OSV publishes them: a file for each.
func writeOSV(file string, records []*osvRecord) (err error) {
	slices.SortFunc(records, func(a, b *osvRecord) int { return strings.Compare(a.ID, b.ID) })
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	z := zip.NewWriter(f)
	for _, r := range records {
		r.SchemaVersion, r.Modified = "1.7.0", modified
		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if err := writeEntry(z, r.ID+".json", text); err != nil {
			return fmt.Errorf("%s: %w", r.ID, err)
		}
	}
	return z.Close()
}

func writeEntry(z *zip.Writer, name string, text []byte) error {
	var w io.Writer
	w, err := z.Create(name)
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}
