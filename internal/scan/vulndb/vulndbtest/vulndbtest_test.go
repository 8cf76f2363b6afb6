package vulndbtest

import (
	"testing"

	"github.com/buildyard/buildyard/internal/scan/vulndb"
)

func TestOpen(t *testing.T) {
	db := Open(t, Content{
		Advisories: []vulndb.Advisory{
			{ID: "B", Ecosystem: vulndb.NPM, Name: "x"}, {ID: "A", Ecosystem: vulndb.NPM, Name: "x"},
		},
		Vulnerabilities: []vulndb.Vulnerability{{ID: "CVE-2020-0002"}, {ID: "CVE-2020-0001"}},
		Applicabilities: []vulndb.Applicability{{
			ID: "CVE-2020-0001",
			Nodes: []vulndb.Node{{Criteria: []vulndb.Criterion{
				{CPE: "cpe:2.3:a:v:q:*:*:*:*:*:*:*:*", Vulnerable: true},
				{CPE: "cpe:2.3:a:v:p:*:*:*:*:*:*:*:*", Vulnerable: true},
			}}},
		}},
	})
	if list, err := db.Advisories(vulndb.NPM, "x"); err != nil || len(list) != 2 || list[0].ID != "A" {
		t.Errorf("advisories: %v, %v", list, err)
	}
	for _, p := range []string{"p", "q"} {
		n := 0
		for _, err := range db.EachApplicability("v", p) {
			check(t, err)
			n++
		}
		if n != 1 {
			t.Errorf("%d applicabilities of %s", n, p)
		}
	}
}

func TestFromFeeds(t *testing.T) {
	db, report := FromFeeds(t, map[string]string{
		"a/GHSA-1.json": `{"id":"GHSA-1","aliases":["CVE-2020-0001"],"affected":[{"package":{"ecosystem":"npm","name":"x"},"ranges":[{"type":"SEMVER","events":[{"introduced":"0"},{"fixed":"1.0.0"}]}]}]}`,
	})
	if list, err := db.Advisories(vulndb.NPM, "x"); err != nil || len(list) != 1 || report.Info.Advisories != 1 {
		t.Errorf("advisories: %v, %v", list, err)
	}
}
