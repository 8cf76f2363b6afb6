package imagescan_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/buildyard/buildyard/api"
)

// controller runs a controller until the script ends, whose URL is in $CONTROLLER. It appends a line for each report
// to a file: controller FILE. While the file newer exists, it has results of a newer database; while the file
// used exists, it keeps those of removed versions. The files hidden and refused have
// the ID of a template of which it takes no reports. The command forgets what was reported before.
func controller(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: controller FILE")
	}
	f, err := os.Create(ts.MkAbs(args[0]))
	ts.Check(err)
	var mu sync.Mutex
	reported := map[string]api.ReportedVersion{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet && r.URL.Path == api.PathVersionFindings {
			raw, err := json.Marshal(slices.Collect(maps.Values(reported)))
			if err == nil && len(reported) > 0 {
				_, _ = fmt.Fprintf(w, `{"status": "OK", "body": %s}`, raw)
			} else {
				_, _ = w.Write([]byte(`{"status": "OK", "body": []}`))
			}
			return
		}
		var v api.VersionFindings
		if r.Method != http.MethodPut || r.URL.Path != api.PathVersionFindings ||
			json.NewDecoder(r.Body).Decode(&v) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if _, err := os.Stat(ts.MkAbs("newer")); err == nil {
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte(`{"status": "FAIL", "message": "Findings of a newer vulnerability database exist"}`))
			return
		}
		for file, message := range map[string]string{"hidden": "Not found", "refused": "Refused"} {
			if id, err := os.ReadFile(ts.MkAbs(file)); err == nil && strings.TrimSpace(string(id)) == v.TemplateID {
				_, _ = fmt.Fprintf(w, `{"status": "FAIL", "message": %q}`, message)
				return
			}
		}
		id := v.TemplateID + v.ContentID
		reported[id] = api.ReportedVersion{
			TemplateID: v.TemplateID, Tag: v.Tag, ContentID: v.ContentID, Reported: time.Now(), Sum: v.Sum(),
		}
		if _, err := os.Stat(ts.MkAbs("used")); err != nil && v.Removed {
			delete(reported, id)
		}
		_, _ = fmt.Fprintf(f, "%s:%s:", v.TemplateID, v.Tag)
		if v.Partial {
			_, _ = fmt.Fprint(f, " partial")
		}
		if v.Removed {
			_, _ = fmt.Fprint(f, " removed")
		}
		for _, found := range v.Vulnerabilities {
			_, _ = fmt.Fprint(f, " ", strings.Join([]string{
				found.ID, fmt.Sprint(found.Aliases), found.Package, found.Version, found.Fixed, found.Severity,
			}, " "))
		}
		_, _ = fmt.Fprintln(f)
		_, _ = w.Write([]byte(`{"status": "OK"}`))
	}))
	ts.Setenv("CONTROLLER", s.URL)
	ts.Defer(func() {
		s.Close()
		_ = f.Close()
	})
}
