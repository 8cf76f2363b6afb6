package portal_test

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/portal"
)

// TestExport: a list is exported as a whole, as CSV and as JSON; no value acts as a formula.
func TestExport(t *testing.T) {
	w := newWorld(t, nil)
	w.push(debian, "debian")
	w.join("mac", 1)
	ids := w.start(client.StartRequest{TemplateID: debian, Name: "=cmd()", ExternalID: "ci,\"7\"", Count: 2})
	w.start(client.StartRequest{TemplateID: debian, Name: "  =1+1", ExternalID: "\uff1d1+1", Count: 1})
	w.get("/export/instances?q=state:started").has(200, "'  =1+1", "'\uff1d1+1")
	file := w.get("/export/instances?q=state:started%20name:%22=cmd()%22")
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
	var list []map[string]any
	err = json.Unmarshal([]byte(w.get("/export/nodes?format=json").Text), &list)
	if err != nil || len(list) != 1 || list[0]["name"] != "mac-0001" || list[0]["vms"] != 3.0 ||
		list[0]["cpu_util"] == "" {
		t.Errorf("%v, %v", list, err)
	}
	w.get("/export/templates").has(200, "debian")
	w.get("/export/templates?format=json").has(200, `"name":"debian"`, `"tags":2,`)
	w.get("/export/instances?q=name:nothing&format=json").has(200, "[\n]\n")
	packed := w.ask("GET", "/export/instances?q=state:started", nil, map[string]string{"Accept-Encoding": "gzip"})
	if packed.Code != 200 || packed.Header.Get("Content-Encoding") != "gzip" && len(packed.Text) > 1024 {
		t.Errorf("the export is not compressed: %d %v", packed.Code, packed.Header)
	}
	w.get("/export/instances?q=colour:red").has(400, "unknown field")
	w.get("/export/keys").has(404, "List keys not found")
	w.get("/instances/0197e1c2-0000-7c11-9f5e-0d6f4f0a1b22").has(404, `href="/instances">All instances`,
		`href="/events?q=instance%3A0197e1c2-0000-7c11-9f5e-0d6f4f0a1b22"`)
}

// TestExportNeedsLogin: as every page.
func TestExportNeedsLogin(t *testing.T) {
	newGuarded(t).get("/export/instances").leadsTo("/login?return=")
}

// TestExportAsItIsRead: rows are sent before the next ones are read, compressed where the browser accepts it; an
// export that cannot be completed breaks off instead of ending as if it were whole.
func TestExportAsItIsRead(t *testing.T) {
	for _, format := range []string{"csv", "json"} {
		wanted := make(chan struct{}) // closed once the first rows have arrived
		fake := http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				if skip, _ := strconv.Atoi(r.URL.Query().Get("skip")); skip > 0 {
					select {
					case <-wanted:
					case <-r.Context().Done():
					}
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				page := api.InstancePage{Total: 1500}
				for i := range 1000 {
					page.Instances = append(page.Instances, api.InstanceItem{InstanceID: "instance-" + strconv.Itoa(i)})
				}
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(map[string]any{"status": "OK", "body": page})
			})
		server := httptest.NewServer(portal.Handler(portal.Options{
			Logger: slog.New(slog.DiscardHandler), API: fake,
		}))
		t.Cleanup(server.Close)
		limited, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		r, err := http.NewRequestWithContext(limited, "GET", server.URL+"/export/instances?format="+format, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultTransport.RoundTrip(r) // which accepts gzip, and decodes it
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text := bufio.NewReader(answer.Body)
		first, err := text.ReadString('\n')
		if first == "" || err != nil {
			t.Errorf("%s: the first line is %q: %v", format, first, err)
		}
		close(wanted)
		if _, err := io.Copy(io.Discard, text); err == nil || !answer.Uncompressed {
			t.Errorf("%s: the export ended with %v; it was compressed: %t", format, err, answer.Uncompressed)
		}
	}
}
