package portal_test

import (
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/client"
)

// TestExport: a list is exported as a whole, as CSV and as JSON; no value acts as a formula.
func TestExport(t *testing.T) {
	w := newWorld(t, nil)
	w.push(debian, "debian")
	w.join("mac", 1)
	ids := w.start(client.StartRequest{TemplateID: debian, Name: "=cmd()", ExternalID: "ci,\"7\"", Count: 2})
	file := w.get("/export/instances?q=state:started")
	file.has(200, "'=cmd()")
	if at := file.Header.Get("Content-Disposition"); at != `attachment; filename="instances.csv"` {
		t.Errorf("the file is %q", at)
	}
	rows, err := csv.NewReader(strings.NewReader(file.Text)).ReadAll()
	if err != nil || len(rows) != 3 || rows[0][0] != "id" {
		t.Fatalf("%v, %v", rows, err)
	}
	for _, row := range rows[1:] {
		if row[0] != ids[0] && row[0] != ids[1] || row[2] != `ci,"7"` || row[3] != "Started" {
			t.Errorf("a row is %q", row)
		}
	}
	var list []map[string]string
	err = json.Unmarshal([]byte(w.get("/export/nodes?format=json").Text), &list)
	if err != nil || len(list) != 1 || list[0]["name"] != "mac-0001" || list[0]["vms"] != "2" {
		t.Errorf("%v, %v", list, err)
	}
	w.get("/export/templates").has(200, "debian")
	w.get("/export/instances?q=colour:red").has(400, "unknown field")
	w.get("/export/keys").has(404, "List keys not found")
	w.get("/instances/0197e1c2-0000-7c11-9f5e-0d6f4f0a1b22").has(404, `href="/instances">All instances`,
		`href="/events?q=instance%3A0197e1c2-0000-7c11-9f5e-0d6f4f0a1b22"`)
}

// TestExportNeedsLogin: as every page.
func TestExportNeedsLogin(t *testing.T) {
	newGuarded(t).get("/export/instances").leadsTo("/login?return=")
}
