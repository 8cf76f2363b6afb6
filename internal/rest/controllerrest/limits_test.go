package controllerrest_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/controller"
	"github.com/buildyard/buildyard/internal/controller/admission"
	"github.com/buildyard/buildyard/internal/controller/events"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/controllerrest"
)

// TestLimitsOfCallers: a caller over a limit receives status 429, a retry delay, and the name of the setting.
func TestLimitsOfCallers(t *testing.T) {
	c := newCloudWith(t, controller.Options{
		Limits: admission.Limits{Waiting: 4, ScriptsSize: 16, IdempotencyKeys: 4},
		Events: events.Options{Machine: "host", Push: nobody{}},
	}, func(o *controllerrest.Options) {
		o.Watches = rest.NewConcurrencyLimit("watches", "SVC_MAX_WATCHES", 4)
		o.LogStreams = rest.NewConcurrencyLimit("log streams", "SVC_MAX_LOG_STREAMS", 0)
	})
	watch := get(t.Context(), t, c.url+"/api/v1/vm/watch") // the one that a caller may have
	if watch.StatusCode != http.StatusOK {
		t.Fatal(watch.Status)
	}
	const start = `{"vmid":"` + templateID + `"`
	c.call("POST", "/api/v1/vm", start+"}", "Idempotency-Key", "first")
	for _, tt := range []struct{ method, path, body, key, retry, want string }{
		{"POST", "/api/v1/vm", start +
			"}", "", "30", "one caller may have a quarter of the setting SVC_MAX_WAITING (4)"},
		{"POST", "/api/v1/vm", start + "}", "second", "30", "a quarter of the setting SVC_MAX_IDEMPOTENCY_KEYS (4)"},
		{"GET", "/api/v1/vm/watch", "", "", "5", "a quarter of the setting SVC_MAX_WATCHES (4)"},
		{"GET", "/api/v1/events?after=x&wait=1m", "", "", "5", "a quarter of the setting SVC_MAX_WATCHES (4)"},
		{"GET", "/api/v1/log/stream?service=node", "", "", "5", "reached (setting SVC_MAX_LOG_STREAMS)"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tt.method, c.url+tt.path, strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", tt.key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != tt.retry ||
			!strings.Contains(string(text), tt.want) {
			t.Errorf("%s %s: %s, Retry-After %q, %s", tt.method, tt.path, resp.Status, resp.Header.Get("Retry-After"),
				text)
		}
	}
	for _, path := range []string{"/api/v1/vm", "/api/v1/events"} {
		if a := c.call("GET", path, ""); a.code != http.StatusOK {
			t.Errorf("%s: %d", path, a.code)
		}
	}
}
