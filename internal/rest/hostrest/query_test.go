package hostrest

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func FuzzQuery(f *testing.F) {
	for _, q := range []string{
		"", "path=/a/../b&real_time=1", "fromTime=2026-01-31T12:00:00+02:00&min_score=7.5", "min_score=.",
		"min_score=10.00000001", "min_score=0x5",
		"path=%00", "path=/a;b", "fromTime=2026-01-31t12:00:00.123456789z", "a=b&&&=", "min_score=9&min_score=9",
	} {
		f.Add(q, "", "")
		f.Add("", q, "application/x-www-form-urlencoded")
	}
	f.Add("", `{"path":"/a","min_score":7,"real_time":true,"fromTime":null}`, "")
	f.Add("", `{"path":{"a":[]},"min_score":"7"}`, "text/plain")
	f.Fuzz(func(t *testing.T, query, body, kind string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/full-scan", strings.NewReader(body))
		r.URL.RawQuery = query
		r.Header.Set("Content-Type", kind)
		q, err := readQuery(httptest.NewRecorder(), r)
		if err != nil {
			var e failure
			if !errors.As(err, &e) || e.status < 400 || e.status > 499 || e.message == "" || len(e.message) > 1000 {
				t.Fatalf("%v", err)
			}
			return
		}
		if q.Path != "" &&
			(!filepath.IsAbs(q.Path) || q.Path != filepath.Clean(q.Path) || strings.ContainsRune(q.Path, 0) ||
				len(q.Path) > maxPathBytes) {
			t.Errorf("path %q", q.Path)
		}
		if !(q.MinScore >= 0 && q.MinScore <= 10) { // a NaN is neither
			t.Errorf("score %v", q.MinScore)
		}
		if _, err := time.Parse(time.RFC3339Nano, q.Since.Format(time.RFC3339Nano)); err != nil {
			t.Errorf("time %v", q.Since)
		}
	})
}
