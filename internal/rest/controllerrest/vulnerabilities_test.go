package controllerrest_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
)

// findingsIn is the body with a vulnerability in a version.
func findingsIn(template string, ids ...string) string {
	v := api.VersionFindings{
		TemplateID: template, Tag: "v1", ContentID: strings.Repeat("0", 64), Database: time.Unix(1e9, 0),
		Vulnerabilities: []api.FoundVulnerability{},
	}
	for _, id := range ids {
		v.Vulnerabilities = append(v.Vulnerabilities, api.FoundVulnerability{
			ID: id, Aliases: []string{"GHSA-" + id}, Package: "lodash", Version: "1", Fixed: "2",
		})
	}
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// counted returns how many versions, nodes and instances are in a response.
func counted(t *testing.T, a answer) string {
	t.Helper()
	var got api.Affected
	a.into(t, &got)
	return fmt.Sprint(len(got.Versions), len(got.Nodes), len(got.Instances))
}

// TestAffectedOverTheWire: what was reported is found by each of its IDs until it is removed, and invalid requests
// are refused by name.
func TestAffectedOverTheWire(t *testing.T) {
	c := newCloud(t)
	node, template := c.memberNode("n").NodeID, scannedID
	find := func(id string) string {
		t.Helper()
		return counted(t, c.call("GET", api.PathAffected+"?id="+url.QueryEscape(id), ""))
	}
	put := func(body string) answer { return c.call("PUT", api.PathVersionFindings, body) }
	if a := put(findingsIn(template, "CVE-2026-1")); a.code != 200 || a.Status != "OK" {
		t.Fatalf("%d %s", a.code, a.Message)
	}
	if a := c.call("PUT", "/api/v1/node/scan?id="+node, scanAt(time.Now(), nil)); a.code != 200 || a.Status != "OK" {
		t.Fatalf("%d %s", a.code, a.Message)
	}
	for id, want := range map[string]string{
		"CVE-2026-1": "1 1 0", "cve-2026-1": "1 1 0", "ghsa-cve-2026-1": "1 0 0", "CVE-2026-2": "0 0 0",
		"CVE-2026-2, CVE-2026-1": "1 1 0",
	} {
		if got := find(id); got != want {
			t.Errorf("%s: %s, want %s", id, got, want)
		}
	}
	for _, id := range []string{"", "a b", strings.Repeat("x", 65), strings.Repeat("x,", 21)} {
		if a := c.call("GET", api.PathAffected+"?id="+url.QueryEscape(id), ""); a.Status != "FAIL" ||
			!strings.HasPrefix(a.Message, "id: ") {
			t.Errorf("%q: %d %s", id, a.code, a.Message)
		}
	}
	for body, field := range map[string]string{
		findingsIn("x"):                    "template_id",
		findingsIn(uuid.NewString()):       "Not found",
		findingsIn(template, "CVE 1"):      "vulnerabilities",
		`{"vulnerabilities":{}}`:           "vulnerabilities",
		`{"vulnerabilities":[1]}`:          "vulnerabilities",
		`{"tag":1,"vulnerabilities":[]}`:   "tag",
		strings.Repeat(" ", 5<<20) + `{}`:  "The request body",
		`[]`:                               "The request body",
		`{"vulnerabilities":[],"tag":"a"}`: "template_id",
	} {
		if a := put(body); a.Status != "FAIL" || !strings.HasPrefix(a.Message, field) {
			t.Errorf("%.40s: %d %s", body, a.code, a.Message)
		}
	}
	if a := put(findingsIn(template)); a.Status != "OK" || find("CVE-2026-1") != "0 1 0" {
		t.Errorf("after the removal: %d %s", a.code, a.Message)
	}
}

// TestWhoSeesWhatIsAffected: versions and nodes are listed as far as the caller may see them.
func TestWhoSeesWhatIsAffected(t *testing.T) {
	m := newManaged(t)
	as := func(who string) []string { return []string{"Authorization", m.sessions[who]} }
	if a := m.call("PUT", api.PathVersionFindings,
		findingsIn(scannedID, "CVE-2026-1"), as("ann")...); a.Message != "Not found" {
		t.Errorf("of a template that ann does not see: %d %s", a.code, a.Message)
	}
	for _, node := range []string{m.hidden.NodeID, m.open.NodeID} {
		if a := m.call("PUT", "/api/v1/node/scan?id="+node, scanAt(time.Now(), nil), as("root")...); a.Status != "OK" {
			t.Fatalf("%d %s", a.code, a.Message)
		}
	}
	if a := m.call("PUT", api.PathVersionFindings,
		findingsIn(scannedID, "CVE-2026-1"), as("root")...); a.Status != "OK" {
		t.Fatalf("%d %s", a.code, a.Message)
	}
	const path = api.PathAffected + "?id=CVE-2026-1"
	for who, want := range map[string]int{"root": 1, "ann": 0} {
		var list []api.ReportedVersion
		m.call("GET", api.PathVersionFindings, "", as(who)...).into(t, &list)
		if len(list) != want {
			t.Errorf("%s sees %d reports, want %d", who, len(list), want)
		}
	}
	if got := counted(t, m.call("GET", path, "", as("root")...)); got != "1 2 0" {
		t.Errorf("root: %s", got)
	}
	if got := counted(t, m.call("GET", path, "", as("ann")...)); got != "0 1 0" {
		t.Errorf("ann: %s", got)
	}
	if err := m.grants.Change(t.Context(), func(g auth.Grants) (auth.Grants, error) {
		return g.SetGroup(farm.ServiceController, "ci", []farm.Permission{"list_vms"})
	}); err != nil {
		t.Fatal(err)
	}
	if got := counted(t, m.call("GET", path, "", as("ann")...)); got != "0 0 0" {
		t.Errorf("ann without list_nodes: %s", got)
	}
}
