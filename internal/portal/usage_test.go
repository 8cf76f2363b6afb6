package portal_test

import (
	"testing"

	"github.com/buildyard/buildyard/client"
)

// TestUsage: the starts of a cloud are in its usage by template.
func TestUsage(t *testing.T) {
	w := newWorld(t, nil)
	w.get("/usage").has(200, "No usage in this range.")
	w.push(debian, "debian")
	w.join("mac", 1)
	w.start(client.StartRequest{TemplateID: debian, Count: 3})
	w.await("the usage", func() (bool, error) {
		report, err := w.API.UsageReport(t.Context(), "template", "24h")
		return len(report.Rows) == 1 && report.Rows[0].Starts == 3, err
	})
	w.get("/usage?by=template&range=7d").has(200, `href="/templates/`+debian+`">debian</a>`,
		`data-l="Starts">3</td>`, `href="/usage?by=template&amp;range=7d" aria-current="true"`, "!<script>")
	w.get("/usage?by=x&range=y").has(200, "By group")
}

// TestSearch: the search finds all kinds of records, and commands without a text.
func TestSearch(t *testing.T) {
	w := newWorld(t, nil)
	w.push(debian, "debian")
	node := w.join("mac", 1)[0]
	id := w.start(client.StartRequest{TemplateID: debian, Name: "needle", ExternalID: "job-77"})[0]
	w.get("/search").has(200, "Start an instance", "Go to Nodes")
	for text, want := range map[string]string{
		"needle": `href="/instances/` + id + `"`, "job-77": `href="/instances/` + id + `"`,
		node.NodeName: `href="/nodes/` + node.NodeID + `"`, "debi": `href="/templates/` + debian + `"`,
	} {
		w.get("/search?q="+text).has(200, want)
	}
	w.get("/search?q=nothing-like-it").has(200, "Nothing matches.")
	w.get("/search?q=%3Cscript%3E").has(200, "&lt;script&gt;", "!<script>a")
}
