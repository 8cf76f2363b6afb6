package controllerrest_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
)

// TestSeriesParameters: each request is answered, or refused with the name of the wrong parameter.
func TestSeriesParameters(t *testing.T) {
	c := newCloud(t)
	var group api.Group
	if err := json.Unmarshal(c.call("POST", "/api/v1/group", `{"name":"ci"}`).Body, &group); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		"": "", "range=7d": "", "by=group": "", "by=node&node_id=a,b": "", "group_id=" + group.ID: "",
		"range=1y":                       "range: ",
		"by=color":                       "by: ",
		"by=node":                        "node_id: ",
		"by=group&node_id=a":             "by: ",
		"by=group&group_id=" + group.ID:  "by: ",
		"node_id=a,b":                    "node_id: ",
		"node_id=a&group_id=" + group.ID: "group_id: ",
		"by=node&node_id=" + strings.Repeat("a,", api.MaxSparklines) + "b": "node_id: ",
	} {
		got := c.call("GET", "/api/v1/stats/series?"+query, "")
		if (got.Status == "OK") != (want == "") || !strings.HasPrefix(got.Message, want) {
			t.Errorf("%q: %s %q, want %q", query, got.Status, got.Message, want)
		}
	}
	for _, query := range []string{"node_id=unknown", "group_id=unknown"} {
		if got := c.call("GET", "/api/v1/stats/series?"+query, ""); got.Status != "FAIL" || got.Message == "" {
			t.Errorf("%s: %s %q", query, got.Status, got.Message)
		}
	}
}

// TestSeriesShape: which of the two lists a response has.
func TestSeriesShape(t *testing.T) {
	c := newCloud(t)
	c.call("POST", "/api/v1/group", `{"name":"ci"}`)
	var groups api.Series
	if err := json.Unmarshal(c.call("GET", "/api/v1/stats/series?by=group&range=24h", "").Body, &groups); err != nil {
		t.Fatal(err)
	}
	if groups.By != api.ByGroup || groups.Points == nil || len(groups.Series) != 1 || groups.Series[0].Name != "ci" ||
		len(groups.Series[0].Running) != 144 || groups.Step != 600 || groups.Series[0].Now == nil ||
		groups.Series[0].Now.Nodes != 0 {
		t.Errorf("%+v", groups)
	}
}

// TestFailedInstances: nodes can be sorted and filtered by how many instances failed on them.
func TestFailedInstances(t *testing.T) {
	c := newCloud(t)
	for path, status := range map[string]string{
		"/api/v1/node/page?sort=-failed&filter=failed%3E0": "OK", "/api/v1/node?filter=failed%3E0": "OK",
		"/api/v1/node/page?sort=failures": "FAIL",
	} {
		if got := c.call("GET", path, ""); got.Status != status {
			t.Errorf("%s: %s %s", path, got.Status, got.Message)
		}
	}
}

// TestUsageParameters of the usage report.
func TestUsageParameters(t *testing.T) {
	c := newCloud(t)
	for query, want := range map[string]string{
		"": "", "by=owner": "", "by=template&range=7d": "", "by=node": "by: ", "range=1h": "range: ",
	} {
		got := c.call("GET", "/api/v1/stats/usage?"+query, "")
		if (got.Status == "OK") != (want == "") || !strings.HasPrefix(got.Message, want) {
			t.Errorf("%q: %s %q, want %q", query, got.Status, got.Message, want)
		}
		var report api.UsageReport
		if want == "" && (json.Unmarshal(got.Body, &report) != nil || report.Rows == nil || report.From.IsZero()) {
			t.Errorf("%q: %s", query, got.Body)
		}
	}
}
