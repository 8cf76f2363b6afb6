package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
)

// bad is a package with a vulnerability from the shared data.
type bad struct {
	unit
	id        string
	score     float64 // minimum
	exploited bool    // it is known to be
}

// seeds are installed before the first scan.
var seeds = []bad{
	{unit{"gem", "rack", "2.2.2"}, "CVE-2020-8184", 0, false},
	{unit{"python", "django", "3.2.0"}, "CVE-2021-35042", 0, false},
	{unit{"npm", "lodash", "4.17.11"}, "CVE-2019-10744", 9, false},
	{unit{"java", "org.apache.logging.log4j:log4j-core", "2.14.0"}, "CVE-2021-44228", 9, true},
	{unit{"brew", "unzip", "6.0_6"}, "CVE-2019-13232", 0, false},
	{unit{"go", "example.test/anything", "v1.0.0"}, "", 0, false},
	{unit{"rust", "anything", "1.0.0"}, "", 0, false},
	{unit{"macos-app", "Anything", "1.0"}, "", 0, false},
	{unit{"pod", "Anything", "1.0"}, "", 0, false},
}

// installedBad are installed while the host is watched.
var installedBad = []bad{
	{unit{"gem", "rack", "2.2.1"}, "CVE-2020-8184", 0, false},
	{unit{"python", "django", "3.1.0"}, "CVE-2021-31542", 0, false},
	{unit{"npm", "lodash", "4.17.15"}, "CVE-2020-8203", 7, false},
	{unit{"java", "org.apache.logging.log4j:log4j-core", "2.13.0"}, "CVE-2021-44228", 9, true},
	{unit{"brew", "unzip", "6.0_5"}, "CVE-2019-13232", 0, false},
}

// later are packages with vulnerabilities that only the newer database has.
var later = []bad{
	{unit{"rust", "time", "0.1.42"}, "CVE-2020-26235", 0, false},
	{unit{"go", "golang.org/x/net", "v0.5.0"}, "CVE-2023-3978", 0, false},
}

// vulnerableUnits installs them.
func vulnerableUnits(_ context.Context, s *stage, rec *record) error {
	for _, b := range slices.Concat(installedBad, later) {
		to := s.host("bad", b.kind)
		if err := writeTree(to, b.files()); err != nil {
			return err
		}
		if err := rec.installed("cp", time.Time{}, b.at(to)); err != nil {
			return err
		}
	}
	return nil
}

// findings checks that a report has vulnerabilities of packages in a directory.
func findings(r *row, rep api.HostReport, list []bad, dir string) {
	for _, b := range list {
		if b.id == "" {
			continue
		}
		v, ok := find(rep, b, b.at(filepath.Join(dir, b.kind)))
		r.check(ok, "%s is not said to have %s", b.at(dir), b.id)
		r.check(!ok || v.Score >= b.score && v.Exploited == b.exploited, "%s %s: score %v, exploited %v", b.name, b.id,
			v.Score, v.Exploited)
	}
	r.Says = fmt.Sprintf("%d vulnerabilities in the report", len(rep.Vulnerabilities))
}

func find(rep api.HostReport, b bad, t packageFile) (api.HostFinding, bool) {
	for _, v := range rep.Vulnerabilities {
		p := v.Package
		if v.Vulnerability.ID == b.id && p.Type == t.kind && strings.EqualFold(p.Name, t.name) &&
			p.Version == t.version &&
			slices.Contains(p.Locations, api.ScanLocation{Path: t.path}) {
			return v.Vulnerability, true
		}
	}
	return api.HostFinding{}, false
}

// decide makes the report decide as a job of a CI system does.
func (a *useAct) decide(ctx context.Context, r *row) error {
	if err := a.v.quiet(ctx); err != nil {
		return err
	}
	rep, err := a.v.whole(ctx)
	if err != nil {
		return err
	}
	findings(r, rep, installedBad, a.s.host("bad"))
	now := time.Now().Format(time.RFC3339Nano)
	for _, c := range []struct {
		status int
		args   string
	}{
		{8, "report --fail-on critical"},
		{8, "report --fail-on kev"},
		{8, "report vulnerabilities --fail-on 9.5"},
		{0, "report"},
		{0, "report --fail-on low -t " + now},
		{0, "report --fail-on kev --timestamp " + now},
		{2, "report --fail-on often"},
	} {
		if _, err := a.v.command(ctx, r, c.status, "", strings.Fields(c.args)...); err != nil {
			return err
		}
	}
	return nil
}
