package main

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/buildyard/buildyard/api"
)

// queries requests parts of the report, and compares them with the filtered whole.
func (a *useAct) queries(ctx context.Context, r *row) error {
	whole, err := a.v.whole(ctx)
	if err != nil {
		return err
	}
	between := a.began
	for _, p := range whole.Packages { // a time in the middle of the installs
		if p.Name == installedBad[0].name && p.Version == installedBad[0].version {
			between = p.CreationTime
		}
	}
	for _, q := range []struct {
		from  time.Time
		score float64
	}{{between, 0}, {a.began, 0}, {time.Time{}, 7}, {time.Time{}, 9.8}, {between, 5.5}, {time.Now(), 0}} {
		if err := a.query(ctx, r, whole, q.from, q.score); err != nil {
			return err
		}
	}
	var nothing any
	r.check(a.v.ask(ctx, "GET", "/v1/report", url.Values{"fromTime": {"yesterday"}}, &nothing) != nil,
		"fromTime=yesterday is taken")
	r.check(a.v.ask(ctx, "GET", "/v1/report", url.Values{"min_score": {"eleven"}}, &nothing) != nil,
		"min_score=eleven is taken")
	r.Says = fmt.Sprintf("%d packages, %d vulnerabilities in all", len(whole.Packages), len(whole.Vulnerabilities))
	return nil
}

// query requests one part, by GET and by POST.
func (a *useAct) query(ctx context.Context, r *row, whole api.HostReport, from time.Time, score float64) error {
	q := url.Values{}
	if !from.IsZero() {
		q.Set("fromTime", from.Format(time.RFC3339Nano))
	}
	if score > 0 {
		q.Set("min_score", fmt.Sprint(score))
	}
	want := map[string]bool{}
	for _, v := range whole.Vulnerabilities {
		if !v.Vulnerability.Known.Before(from) && v.Vulnerability.Score >= score {
			want[v.Package.ID+" "+v.Vulnerability.ID] = true
		}
	}
	young := 0
	for _, p := range whole.Packages {
		if !p.CreationTime.Before(from) {
			young++
		}
	}
	for _, method := range []string{"GET", "POST"} {
		var got []api.HostVulnerability
		if err := a.v.ask(ctx, method, "/v1/report/vulnerabilities", q, &got); err != nil {
			return err
		}
		same := len(got) == len(want)
		for _, v := range got {
			same = same && want[v.Package.ID+" "+v.Vulnerability.ID]
		}
		r.check(same, "%s ?%s gives %d vulnerabilities instead of %d", method, q.Encode(), len(got), len(want))
		if score > 0 {
			continue
		}
		var packages []api.HostPackage
		if err := a.v.ask(ctx, method, "/v1/report/packages", q, &packages); err != nil {
			return err
		}
		r.check(len(packages) == young, "%s ?%s gives %d packages instead of %d", method, q.Encode(), len(packages),
			young)
	}
	return nil
}
