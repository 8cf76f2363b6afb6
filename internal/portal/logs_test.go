package portal_test

import (
	"fmt"
	"html"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

// logWorld is a cloud whose registry has rows of two services.
func logWorld(t *testing.T) (*world, func(service string, rows ...string)) {
	t.Helper()
	w := newWorld(t, nil)
	r, err := client.NewRegistry(w.RegistryURL(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return w, func(service string, rows ...string) {
		t.Helper()
		var all []api.LogRow
		for _, content := range rows {
			all = append(all, api.LogRow{Service: service, MachineName: "m", Content: content})
		}
		if _, err := r.Send(t.Context(), all); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLogs: the rows of all services with level and fields, filtered, and untrusted rows that must not act as markup.
func TestLogs(t *testing.T) {
	w, send := logWorld(t)
	w.get("/logs").has(200, "No logs", "--enable-central-logging")
	id := "0197e1c2-0000-7c11-9f5e-0d6f4f0a1b22"
	send("node", hostile, "needle", "hay")
	send("ci", `{"level":"ERROR","msg":"start failed","instance_id":"`+id+`","step":"boot"}`,
		`{"level":"INFO","msg":"queue","waiting":8}`)
	w.get("/logs").has(200, "start failed", "needle", "&lt;script&gt;", "!<script>alert", `class="error"`,
		"<i>waiting=<b>8</b></i>", `href="/instances/`+id+`"`, `href="/logs/node"`, "node m",
		"/api/v1/log/archive?service=node", `id="follow"`, "!Failed VMs", "!rel=\"next\"")
	w.get("/logs?q=level:error").has(200, "start failed", "!needle", "!queue", `aria-current="true">Errors`)
	w.get("/logs?q=step:boot").has(200, "start failed", "!needle")
	w.get("/logs?q=service:node+NEEDLE").has(200, "needle", "!start failed", "!hay")
	w.get("/logs/node?q=nowhere").has(200, "No matching rows", "Show all")
	w.get("/logs/node").has(200, "needle", "!start failed", "Download file", `id="l-`)
	w.get("/logs/node?q=service:ci").has(200, "this page shows only node", `aria-invalid="true"`)
	w.get("/logs?q=level:loud").has(200, "must be debug, info, warn or error", `aria-invalid="true"`)
	w.get("/logs?range=15m").has(200, `aria-current="true">15 m`, "needle")
	w.get("/logs?at=x").has(400, "address of a page is incomplete")
	w.get("/logs?since=yesterday").has(400, "must be a time such as")
	w.get("/logs/no-such-service").has(404, "Not found")
	w.get("/logs/ci?q=step:boot&range=1h&at=1900000000000-0").has(200, "field=step%3Dboot", "since=20", "until=2030-")
	refresh := map[string]string{"HX-Request": "true"}
	w.ask("GET", "/logs?since=2026-01-01T00:00:00Z", nil, refresh).has(200, "needle", "!data-full", "!curl -s")
	for i := range 9 {
		send(fmt.Sprint("other-", i), strings.Split(strings.Repeat("more,", 49)+"more", ",")...)
	}
	w.ask("GET", "/logs/other-1?lines=50&since=2026-01-01T00:00:00Z", nil, refresh).has(200, `id="log" data-full`)
	w.get("/logs").has(200, "of the 8 services that wrote last")
}

// TestLogPages: each row is on one of the pages, in order, and Newer leads back.
func TestLogPages(t *testing.T) {
	w, send := logWorld(t)
	var want []string
	for i := range 120 {
		row := fmt.Sprintf("row %03d of 120", i)
		want = append(want, row)
		send([]string{"ci", "node"}[i%7%2], row)
	}
	slices.Reverse(want)
	files, err := w.API.Logs().Files(t.Context(), "ci")
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	row := regexp.MustCompile(`<span class="msg">(row \d+ of 120)`)
	link := regexp.MustCompile(`href="([^"]+)" rel="next"`)
	read := func(path string) (rows, pages []string) {
		for path != "" {
			s := w.get(path)
			s.has(200)
			pages = append(pages, html.UnescapeString(s.Text))
			for _, m := range row.FindAllStringSubmatch(s.Text, -1) {
				rows = append(rows, m[1])
			}
			next := link.FindStringSubmatch(s.Text)
			if path = ""; next != nil {
				path = html.UnescapeString(next[1])
			}
		}
		return rows, pages
	}
	rows, pages := read("/logs?lines=50&q=of+120")
	sorted := slices.Clone(rows) // rows of one millisecond are in the order of their services
	slices.Sort(sorted)
	slices.Reverse(sorted)
	if !slices.Equal(sorted, want) || len(pages) != 3 {
		t.Errorf("%d rows on %d pages: %q", len(rows), len(pages), rows)
	}
	if !strings.Contains(pages[1], `href="/logs?lines=50&q=of+120" rel="prev"`) ||
		strings.Contains(pages[1], `id="follow"`) {
		t.Error("the second page does not lead to the newest rows, or follows")
	}
	newestFirst := func(a, b string) int { return strings.Compare(b, a) }
	rows, pages = read("/logs/ci?lines=50&file=" + url.QueryEscape(files[0].Name))
	if n := len(rows); n < 60 || len(pages) != 2 || !slices.IsSortedFunc(rows, newestFirst) {
		t.Errorf("%d rows on %d pages: %q", n, len(pages), rows)
	}
}

// TestVMLogs: a link to the logs of failed VMs is only where there are some.
func TestVMLogs(t *testing.T) {
	w, _ := logWorld(t)
	id := "0197e1c2-0000-7c11-9f5e-0d6f4f0a1b22"
	w.get("/logs/vm").has(200, "None. When a VM cannot be started")
	w.get("/logs/vm/"+id).has(404, "Not found")
	r, err := client.NewRegistry(w.RegistryURL(), client.Options{})
	if err == nil {
		_, err = r.Upload(t.Context(), "logs/"+id+"/start.log", strings.NewReader("no firmware "+hostile+"\n"), "")
	}
	if err != nil {
		t.Fatal(err)
	}
	w.get("/logs").has(200, `href="/logs/vm"`)
	w.get("/logs/vm").has(200, `href="/logs/vm/`+id+`"`)
	w.get("/logs/vm/"+id).has(200, "no firmware", "!<script>alert")
}

// TestLogLinks: the pages of a node and of an instance link to the logs of the nodes only where these have rows about
// them.
func TestLogLinks(t *testing.T) {
	w, send := logWorld(t)
	nodes := w.join("mac", 2)
	w.push(debian, "debian")
	ids := w.start(client.StartRequest{TemplateID: debian, Count: 2})
	send("node", "mac-0001 has started", `{"level":"INFO","msg":"started","instance_id":"`+ids[0]+`"}`)
	byName := map[string]string{}
	for _, n := range nodes {
		byName[n.NodeName] = "/nodes/" + n.NodeID
	}
	w.get(byName["mac-0001"]).has(200, `href="/logs/node?q=mac-0001"`)
	w.get(byName["mac-0002"]).has(200, "none in the central logs", `!href="/logs/node`)
	w.get("/instances/"+ids[0]).has(200, `href="/logs/node?q=`+ids[0]+`"`)
	w.get("/instances/"+ids[1]).has(200, `!href="/logs/node`)
}
