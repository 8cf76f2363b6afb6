package controllerrest_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
)

// scanAt is the body with the results of a scan.
func scanAt(at time.Time, change func(map[string]any)) string {
	body := map[string]any{
		"host": "build-7", "scanner": "hostscan", "version": "1.0", "scanned": at,
		"counts": map[string]any{"high": 1, "packages": 2, "exploited": 1},
		"vulnerabilities": []any{map[string]any{
			"Vulnerability": map[string]any{"ID": "CVE-2026-1"}, "Package": map[string]any{"Name": "lodash"},
		}},
		"packages": []any{map[string]any{"name": "lodash"}, map[string]any{"name": "left-pad"}},
		"left_out": map[string]any{"packages": 0},
	}
	if change != nil {
		change(body)
	}
	raw, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func packed(text string) string {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = io.WriteString(z, text)
	_ = z.Close()
	return out.String()
}

// TestWhoMayReportANode: a node may report only itself, other callers with the permission the nodes that they
// see.
func TestWhoMayReportANode(t *testing.T) {
	m := newManaged(t)
	now := time.Now()
	body := func(node string) string {
		now = now.Add(time.Second)
		return scanAt(now, func(b map[string]any) {
			if node != "" {
				b["node_id"] = node
			}
		})
	}
	put := func(node, as string) int {
		a := m.call("PUT", "/api/v1/node/scan?id="+node, body(""), "Authorization", m.sessions[as])
		if a.code == 200 && a.Message == "Not found" {
			return 404
		}
		return a.code
	}
	for name, c := range map[string]struct{ got, want int }{
		"nobody": {m.call("PUT", "/api/v1/node/scan?id="+m.open.NodeID, body("")).code, 401},
		"a node": {m.call("POST", api.PathScan, body(m.open.NodeID), "Authorization",
			"Bearer "+m.open.Credential).code, 200},
		"of another one": {m.call("POST", api.PathScan, body(m.seen.NodeID), "Authorization",
			"Bearer "+m.open.Credential).code, 401},
		"of none": {m.call("POST", api.PathScan, body(""), "Authorization",
			"Bearer "+m.open.Credential).code, 401},
		"no node":       {m.call("POST", api.PathScan, body(m.open.NodeID), "Authorization", "Bearer x").code, 401},
		"no node, much": {m.call("POST", api.PathScan, strings.Repeat(" ", 1<<20)+body(m.open.NodeID)).code, 401},
		"a node by PUT": {m.call("PUT", "/api/v1/node/scan?id="+m.open.NodeID, body(""), "Authorization",
			"Bearer "+m.open.Credential).code, 401},
		"root":            {put(m.hidden.NodeID, "root"), 200},
		"of what is seen": {put(m.open.NodeID, "ann"), 200},
		"of what is not":  {put(m.hidden.NodeID, "ann"), 404},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", name, c.got, c.want)
		}
	}
	var list []api.NodeScanSummary
	m.call("GET", "/api/v1/node/scans", "", "Authorization", m.sessions["ann"]).into(t, &list)
	if len(list) != 1 || list[0].NodeID != m.open.NodeID {
		t.Errorf("ann sees %+v", list)
	}
	m.call("GET", "/api/v1/node/scans", "", "Authorization", m.sessions["root"]).into(t, &list)
	if len(list) != 2 {
		t.Errorf("root sees %+v", list)
	}
	if a := m.call("GET", "/api/v1/node/scan?id="+m.hidden.NodeID, "", "Authorization",
		m.sessions["ann"]); a.Message != "Not found" {
		t.Errorf("ann reads %d %s", a.code, a.Message)
	}
	instances := func(node string) (int, string) {
		a := m.call("GET", api.PathNodeScanInstances+"?id="+node, "", "Authorization", m.sessions["ann"])
		return a.code, a.Message
	}
	if code, message := instances(m.open.NodeID); code != 200 || message != "" {
		t.Errorf("ann lists exposed instances: %d %s", code, message)
	}
	if _, message := instances(m.hidden.NodeID); message != "Not found" {
		t.Errorf("ann lists exposed instances of a node that she does not see: %s", message)
	}
	if err := m.grants.Change(t.Context(), func(g auth.Grants) (auth.Grants, error) {
		return g.SetGroup(farm.ServiceController, "ci", []farm.Permission{"list_nodes"})
	}); err != nil {
		t.Fatal(err)
	}
	if code, message := instances(m.open.NodeID); code != 403 || !strings.Contains(message, "list_vms") {
		t.Errorf("exposed instances without the permission: %d %s", code, message)
	}
	if a := m.call("PUT", "/api/v1/node/scan?id="+m.open.NodeID, body(""), "Authorization",
		m.sessions["ann"]); a.code != 403 || !strings.Contains(a.Message, "report_scan") {
		t.Errorf("without the permission: %d %s", a.code, a.Message)
	}
}

// TestScansOverTheWire: sent results are returned, compressed or not; invalid ones are refused by name.
func TestScansOverTheWire(t *testing.T) {
	c := newCloud(t)
	id, now := c.memberNode("n").NodeID, time.Now().UTC().Truncate(time.Second)
	path := "/api/v1/node/scan?id=" + id
	if a := c.call("GET", path, ""); a.code != 200 || a.Message != "Not found" {
		t.Errorf("before any: %d %s", a.code, a.Message)
	}
	for i, send := range []func(at time.Time) answer{
		func(at time.Time) answer { return c.call("PUT", path, scanAt(at, nil)) },
		func(at time.Time) answer {
			return c.call("PUT", path, packed(scanAt(at, nil)), "Content-Encoding", "gzip")
		},
	} {
		at := now.Add(time.Duration(i) * time.Second)
		if a := send(at); a.code != 200 || a.Status != "OK" {
			t.Fatalf("%d: %d %s", i, a.code, a.Message)
		}
		var got api.NodeScan
		c.call("GET", path, "").into(t, &got)
		if got.NodeID != id || !got.Scanned.Equal(at) || got.Counts.Exploited != 1 ||
			got.Vulnerabilities[0].Package.Name != "lodash" || got.Packages[1].Name != "left-pad" {
			t.Errorf("%d: %+v", i, got)
		}
	}
	large := scanAt(now.Add(time.Minute),
		func(b map[string]any) { b["padding"] = strings.Repeat("x", api.MaxNodeScan) })
	for name, r := range map[string]struct {
		body   string
		header []string
		code   int
		says   string
	}{
		"older":     {scanAt(now.Add(-time.Second), nil), nil, 409, "Newer host scan results"},
		"too large": {large, nil, 413, "larger than"},
		"unpacked":  {packed(large), []string{"Content-Encoding", "gzip"}, 413, "larger than"},
		"no gzip":   {scanAt(now, nil), []string{"Content-Encoding", "gzip"}, 400, "Content-Encoding"},
		"cut gzip": {
			packed(scanAt(now, nil))[:40],
			[]string{"Content-Encoding", "gzip"},
			400,
			"Content-Encoding",
		},
		"other coding": {scanAt(now, nil), []string{"Content-Encoding", "br"}, 400, "Content-Encoding"},
		"no JSON":      {"{", nil, 400, "not a JSON object"},
		"null":         {"null", nil, 400, "not a JSON object"},
		"an array":     {"[]", nil, 400, "not a JSON object"},
		"no counts":    {scanAt(now, func(b map[string]any) { delete(b, "counts") }), nil, 400, "counts"},
		"text as counts": {scanAt(now,
			func(b map[string]any) { b["counts"] = map[string]any{"high": "x"} }), nil, 400, "counts"},
		"no packages": {scanAt(now, func(b map[string]any) { b["packages"] = nil }), nil, 400, "packages"},
		"no list": {scanAt(now,
			func(b map[string]any) { b["vulnerabilities"] = map[string]any{} }), nil, 400, "vulnerabilities"},
		"no time":      {scanAt(now, func(b map[string]any) { b["scanned"] = "yesterday" }), nil, 400, "scanned"},
		"another node": {scanAt(now, func(b map[string]any) { b["node_id"] = "x" }), nil, 400, "node_id"},
	} {
		if a := c.call("PUT", path, r.body, r.header...); a.code != r.code || !strings.Contains(a.Message, r.says) {
			t.Errorf("%s: %d %s", name, a.code, a.Message)
		}
	}
	for _, unknown := range []string{"x", "11111111-2222-4333-8444-555555555555"} {
		if a := c.call("PUT", "/api/v1/node/scan?id="+unknown, scanAt(now, nil)); a.code != 200 ||
			a.Message != "Not found" {
			t.Errorf("unknown node: %d %s", a.code, a.Message)
		}
	}
	if a := c.call("PUT", "/api/v1/node/scan", scanAt(now, nil)); a.code != 400 || !strings.HasPrefix(a.Message, "id") {
		t.Errorf("no node: %d %s", a.code, a.Message)
	}
}
