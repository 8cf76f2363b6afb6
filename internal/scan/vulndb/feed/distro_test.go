package feed

import (
	"bufio"
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/input"
)

// advisory formats an advisory: "Debian:12 curl [CVE-1] 1.0..2.0".
func advisoryText(a vulndb.Advisory) string {
	s := string(a.Ecosystem) + " " + a.Name + " " + strings.Join(a.CVEs, ",")
	for _, r := range a.Ranges {
		s += " " + r.Introduced + ".." + r.Fixed + r.LastAffected
	}
	return s
}

// basesystem is the module of SUSE that has its OpenSSL.
const basesystem = "SUSE:Linux Enterprise Module for Basesystem 15 SP5"

func TestDistributions(t *testing.T) {
	all, _, bad := records(t, filepath.Join("testdata", "distribution"))
	if len(bad) > 0 {
		t.Errorf("bad files: %v", bad)
	}
	for id, want := range map[string][]string{
		"debian DEBIAN-CVE-2024-58382": {
			"Debian:12 php-league-commonmark CVE-2024-58382 ..",
			"Debian:13 php-league-commonmark CVE-2024-58382 ..2.6.0-1",
		},
		"ubuntu UBUNTU-CVE-2022-1292": {
			"Ubuntu:Pro:14.04:LTS openssl CVE-2022-1292 ..1.0.1f-1ubuntu2.27+esm10",
			"Ubuntu:22.04:LTS openssl CVE-2022-1292 ..3.0.2-0ubuntu1.5",
		},
		"alpine ALPINE-CVE-2023-5363": {"Alpine:v3.18 openssl CVE-2023-5363 ..3.1.4-r0"},
		"almalinux ALSA-2022:6158": {
			"AlmaLinux:8 php CVE-2022-31625 ..7.4.19-4.module_el8.6.0+3238+624bf8b8",
		},
		"almalinux ALBA-2019:3482": nil,
		"rocky RLSA-2020-4641": {
			"Rocky Linux:8 babel CVE-2020-14422 ..0:2.7.0-10.module+el8.4.0+570+c2eaf144",
		},
		"redhat RHSA-2025:9978": { // of two repositories
			"Red Hat:enterprise_linux:9::appstream sudo CVE-2025-32462 ..0:1.9.5p2-10.el9_6.1",
		},
		"redhat RHSA-2026:76750": { // without extended support
			"Red Hat:enterprise_linux:9::appstream nodejs CVE-2026-19534 ..1:22.23.2-2.module+el9.8.0+24958+80b2ac6e",
		},
		"suse SUSE-SU-2026:0312-1": {
			basesystem + " libopenssl3 CVE-2024-2511,CVE-2024-4603 ..3.0.8-150500.5.30.1",
			basesystem + " openssl-3 CVE-2024-2511,CVE-2024-4603 ..3.0.8-150500.5.30.1",
		},
		"debian-tracker prototypejs/CVE-2007-2383": {"Debian:10 prototypejs CVE-2007-2383"},
		"debian-tracker prototypejs/CVE-2008-7220": {"Debian:10 prototypejs CVE-2008-7220 ..1.6.0.2-1"},
		"debian-tracker glibc/TEMP-0000000-9A7C3E": {"Debian:12 glibc  .."},
	} {
		r, ok := all[id]
		if !ok {
			t.Errorf("%s is missing", id)
			continue
		}
		var got []string
		for _, a := range r.Advisories {
			got = append(got, advisoryText(a))
			if len(a.Versions) > 0 {
				t.Errorf("%s: the list repeats its ranges: %q", id, a.Versions)
			}
		}
		diff(t, id, want, got)
		if len(r.Rejected) > 0 || want == nil && r.Dropped != NoVulnerability {
			t.Errorf("%s: %q, rejected %v", id, r.Dropped, r.Rejected)
		}
	}
}

func TestSeveritiesOfDistributions(t *testing.T) {
	all, _, _ := records(t, filepath.Join("testdata", "distribution"))
	const multi = `{"id": "RHSA-1:1", "upstream": ["CVE-2024-1001", "CVE-2024-1002"], "severity": [{"type": "CVSS_V3",
		"score": "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"}], "affected": [{"package": {"name": "x",
		"ecosystem": "Red Hat:enterprise_linux:9::baseos"}, "ranges": [{"type": "ECOSYSTEM", "events": [
		{"introduced": "0"}]}]}]}`
	all["several"] = Item{Kind: kindOSV, Data: []byte(multi)}.Parse()[0]
	for id, want := range map[string]vulndb.Score{
		"ubuntu UBUNTU-CVE-2022-1292":              {Severity: vulndb.Medium, Source: vulndb.UbuntuOSV},
		"almalinux ALSA-2022:6158":                 {Severity: vulndb.Medium, Source: vulndb.AlmaErrata},
		"debian DEBIAN-CVE-2024-58382":             {Severity: vulndb.Unknown},
		"debian-tracker prototypejs/CVE-2007-2383": {Severity: vulndb.Low, Source: vulndb.DebianTracker},
		"debian-tracker prototypejs/CVE-2008-7220": {Severity: vulndb.High, Source: vulndb.DebianTracker},
		// The score of an update is that of its worst vulnerability.
		"several": {Severity: vulndb.Critical, Source: vulndb.RedHatErrata},
	} {
		r := all[id]
		if len(r.Vulnerabilities) == 0 {
			t.Errorf("%s: no vulnerability", id)
			continue
		}
		diff(t, id, want, r.Vulnerabilities[0].Score)
	}
}

func TestBadDistributionRecords(t *testing.T) {
	tracker := func(s string) string { return `{"x": {` + s + `}}` }
	for name, tc := range map[string]struct {
		kind   Kind
		text   string
		reason string // "" for one that says nothing
	}{
		"no fix of what is resolved": {
			kindTracker, tracker(`"CVE-2024-1001": {"releases": {"bookworm": {"status": "resolved"}}}`), "unknown status",
		},
		"undetermined": {
			kindTracker, tracker(`"CVE-2024-1001": {"releases": {"bookworm": {"status": "undetermined"}}}`), "",
		},
		"of no release":       {kindTracker, tracker(`"CVE-2024-1001": {"releases": {"sid": {"status": "open"}}}`), ""},
		"no vulnerability":    {kindTracker, tracker(`"x": {"releases": {"bookworm": {"status": "open"}}}`), "is not the name"},
		"releases are a list": {kindTracker, tracker(`"CVE-2024-1001": {"releases": []}`), "cannot unmarshal"},
		"too much": {
			kindOSV, tooManyIDs(), "1500 vulnerabilities",
		},
	} {
		r := Item{Kind: tc.kind, Name: name, Data: []byte(tc.text)}.Parse()[0]
		if len(r.Advisories) > 0 || !strings.Contains(reasons(r), tc.reason) || tc.reason == "" && len(r.Rejected) > 0 {
			t.Errorf("%s: got %+v", name, r)
		}
	}
}

// tooManyIDs returns a record of 1500 vulnerabilities of 1500 packages.
func tooManyIDs() string {
	type affected struct {
		Package map[string]string `json:"package"`
	}
	var r struct {
		ID       string     `json:"id"`
		Upstream []string   `json:"upstream"`
		Affected []affected `json:"affected"`
	}
	r.ID = "RHSA-1:1"
	for i := range 1500 {
		r.Upstream = append(r.Upstream, "CVE-2024-"+strings.Repeat("1", 4)+string(rune('0'+i%10))+
			string(rune('0'+i/10%10))+string(rune('0'+i/100%10))+string(rune('0'+i/1000)))
		r.Affected = append(r.Affected, affected{map[string]string{"name": "x", "ecosystem": "AlmaLinux:9"}})
	}
	b, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// The tracker is read package by package; one that ends early keeps what it had.
func TestTrackerEndsEarly(t *testing.T) {
	text := `{"a": {"CVE-2024-1001": {"releases": {"bookworm": {"status": "open"}}}}, "b": {"CVE-2024-1`
	if got := recognizeFormat(".json", []byte(text)); got != kindTracker {
		t.Fatalf("recognized as %q", got)
	}
	var got []string
	file := input.File{Name: "t.json", Reader: bufio.NewReader(bytes.NewReader([]byte(text)))}
	err := readFile(file, kindTracker, func(it Item) error { got = append(got, it.Name); return nil })
	if err == nil || !slices.Equal(got, []string{"t.json[a]"}) {
		t.Errorf("got %q, %v", got, err)
	}
}

// Events of one version, as PYSEC-2023-72, PYSEC-2022-42972 and others list them.
func TestEventsOfOneVersion(t *testing.T) {
	in := func(v string) osvEvent { return osvEvent{Introduced: v} }
	fixed := func(v string) osvEvent { return osvEvent{Fixed: v} }
	last := func(v string) osvEvent { return osvEvent{LastAffected: v} }
	for name, tc := range map[string]struct {
		events []osvEvent
		want   []vulndb.Range
	}{
		"PYSEC-2023-72": {
			[]osvEvent{in("0"), fixed("3.1.1"), in("3.2.0"), fixed("3.2.2"), in("3.1.1"), fixed("3.2.0")},
			[]vulndb.Range{
				{Fixed: "3.1.1"}, {Introduced: "3.1.1", Fixed: "3.2.0"}, {Introduced: "3.2.0", Fixed: "3.2.2"},
			},
		},
		"PYSEC-2022-42972": {
			[]osvEvent{in("0.13.0"), fixed("0.14.0rc1"), in("0.12.2"), fixed("0.13.0")},
			[]vulndb.Range{{Introduced: "0.12.2", Fixed: "0.13.0"}, {Introduced: "0.13.0", Fixed: "0.14.0rc1"}},
		},
		"an empty interval": {
			[]osvEvent{fixed("1.0"), in("1.0")}, []vulndb.Range{{Introduced: "1.0", Fixed: "1.0"}},
		},
		"two ends and a beginning": {
			[]osvEvent{in("0"), in("2.0"), fixed("2.0"), fixed("2.0.0")},
			[]vulndb.Range{{Fixed: "2.0"}, {Introduced: "2.0", Fixed: "2.0.0"}},
		},
		"one version": {
			[]osvEvent{last("1.0"), in("1.0.0")}, []vulndb.Range{{Introduced: "1.0.0", LastAffected: "1.0"}},
		},
		"not comparable": {
			[]osvEvent{in("0"), in("x"), fixed("x"), fixed("y")},
			[]vulndb.Range{{Fixed: "x"}, {Introduced: "x", Fixed: "y"}},
		},
	} {
		diff(t, name, tc.want, intervals(sortEvents(vulndb.PyPI, tc.events)))
	}
}
