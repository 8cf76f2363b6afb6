package sdk_test

import (
	"errors"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

func (x *tour) vulnerabilities() {
	ctx := x.Context()
	detail, err := x.c.Template(ctx, debian)
	x.ok(err)
	v := api.VersionFindings{
		TemplateID: debian, Tag: "v1", ContentID: detail.Versions[0].ContentID, Database: time.Now(),
		Vulnerabilities: []api.FoundVulnerability{{ID: "CVE-2026-2", Aliases: []string{"GO-2026-2"}, Package: "a"}},
	}
	x.ok(x.c.PutVersionFindings(ctx, v))
	list, err := x.c.ReportedVersions(ctx)
	x.ok(err)
	if len(list) != 1 || list[0].Sum != v.Sum() {
		x.Errorf("reports: %+v", list)
	}
	got, err := x.c.Affected(ctx, "CVE-2026-9", "go-2026-2")
	x.ok(err)
	if len(got.Versions) != 1 || got.Versions[0].Vulnerabilities[0].ID != "CVE-2026-2" {
		x.Errorf("%+v", got)
	}
	v.Database = v.Database.Add(-time.Hour)
	if err := x.c.PutVersionFindings(ctx, v); !errors.Is(err, client.ErrConflict) {
		x.Errorf("older ones: %v", err)
	}
	for id, want := range map[string]int{"cve-2026-1": 1, "CVE-2026-2": 0} {
		exposed, err := x.c.NodeExposure(ctx, x.good, "CVE-2026-9", id) // of the scan before
		x.ok(err)
		if exposed.NodeID != x.good || exposed.Findings != want {
			x.Errorf("exposed to %s: %+v", id, exposed)
		}
	}
}
