package imagescan_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/buildyard/buildyard/api"
)

// controller runs a controller until the script ends, whose URL is in $CONTROLLER. It appends a line for each report
// to a file: controller FILE.
func controller(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: controller FILE")
	}
	f, err := os.Create(ts.MkAbs(args[0]))
	ts.Check(err)
	var mu sync.Mutex
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		var v api.VersionFindings
		w.Header().Set("Content-Type", "application/json")
		if r.Method != http.MethodPut || r.URL.Path != api.PathVersionFindings ||
			json.NewDecoder(r.Body).Decode(&v) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_, _ = fmt.Fprintf(f, "%s:%s:", v.TemplateID, v.Tag)
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
