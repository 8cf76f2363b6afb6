package apidoc

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/rest"
)

var service = Service{
	Name: "Controller", FileName: "/api/v1/openapi", PagePath: "/api", Permission: "get_config",
	Tags: []string{"Controller"},
}

func get(t *testing.T, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	rest.Handler(service.Routes(), nil).ServeHTTP(w, r)
	if w.Code >= 400 {
		t.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	return w
}

// TestPage: the page shows the operations of its tags with their parameters, and contains no external resources
// and no script.
func TestPage(t *testing.T) {
	w := get(t, "/api")
	text := w.Body.String()
	for _, want := range []string{
		`id="post-api-v1-vm"`, `port_forwarding_override[].guest_port`, `1 to 1000; 1 by default`,
		`<code>start_vm</code>`,
		`href="#schema-Instance"`, `id="schema-VMInfo"`, `fbuf, pg`, `href="/api/v1/openapi.yaml"`,
		`<code>Not found</code>`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %s", want)
		}
	}
	for _, bad := range []string{
		"/registry/v2/push/{session}/commit</span>", "<script", "javascript:", "<img", "<link",
		"@import", "url(",
	} {
		if strings.Contains(text, bad) {
			t.Errorf("the page has %s", bad)
		}
	}
	if outside := regexp.MustCompile(`(?:href|src|action)="(?:https?:)?//`).FindString(text); outside != "" {
		t.Errorf("the page leads outside: %s", outside)
	}
	for _, ref := range regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(text, -1) {
		if !strings.Contains(text, `id="`+ref[1]+`"`) {
			t.Errorf("the page has no %s", ref[1])
		}
	}
	if p := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(p, "default-src 'none'; style-src 'sha256-") {
		t.Errorf("policy %q", p)
	}
	if !strings.Contains(text, "<style>"+style+"</style>") {
		t.Error("the style is not the one that the policy allows")
	}
}

// TestFile: the file is served as it is and as JSON, and not again to a client that has it.
func TestFile(t *testing.T) {
	w := get(t, "/api/v1/openapi.yaml")
	if w.Body.String() != string(api.OpenAPI) {
		t.Error("the file is another one")
	}
	if again := get(t, "/api/v1/openapi.yaml", "If-None-Match",
		w.Header().Get("ETag")); again.Code != http.StatusNotModified {
		t.Errorf("asked again: %d", again.Code)
	}
	var doc struct {
		OpenAPI string
		Paths   map[string]any
	}
	if err := json.Unmarshal(get(t, "/api/v1/openapi.json").Body.Bytes(), &doc); err != nil || len(doc.Paths) < 30 ||
		doc.OpenAPI == "" {
		t.Errorf("as JSON: %v, %d paths", err, len(doc.Paths))
	}
}

// TestProse: text in the file that looks like markup is text on the page.
func TestProse(t *testing.T) {
	for in, want := range map[string]string{
		"a `b` c":              "<p>a <code>b</code> c</p>",
		"<b>\n\nx":             "<p>&lt;b&gt;</p><p>x</p>",
		"one:\n- a\n- **b**":   "<p>one:</p><ul><li>a</li><li><strong>b</strong></li></ul>",
		"2 * 3":                "<p>2 * 3</p>",
		"`<script>`":           "<p><code>&lt;script&gt;</code></p>",
		"- only\n- a list":     "<ul><li>only</li><li>a list</li></ul>",
		"":                     "",
		"text *with* emphasis": "<p>text <em>with</em> emphasis</p>",
	} {
		if got := string(proseHTML(in)); got != want {
			t.Errorf("%q: %q, and %q was expected", in, got, want)
		}
	}
}

// TestBrokenFile: a file that cannot be read is an error and no page.
func TestBrokenFile(t *testing.T) {
	for _, text := range []string{"", "a: [", "a: 1\n---\nb: 2\n..."} {
		if tr, err := parseYAML([]byte(text)); err == nil && tr.child("paths").exists() {
			t.Errorf("%q is read", text)
		}
	}
}
