package obs

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/buildyard/buildyard/internal/metric"
)

func scrape(t *testing.T, h http.Handler) (map[string]*dto.MetricFamily, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	text := w.Body.String()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return families, text
}

func TestFamiliesAreServed(t *testing.T) {
	h, done := metric.NewHistogram([]float64{1, 10}), &metric.Results{}
	h.Observe(2 * time.Second)
	done.Observe(nil)
	done.Observe(http.ErrAbortHandler)
	done.Observe(nil)
	families := append(ProgramFamilies("test", time.Now().Add(-time.Hour)),
		metric.HistogramFamily("buildyard_x_seconds", "How long x takes", h),
		done.Family("buildyard_x_total", "How often x was done"),
		metric.Family{
			Name: "buildyard_nodes", Kind: metric.KindGauge, Help: "Nodes by state", Labels: []string{"state"},
			Read: func(s *metric.Series) { s.Value(3, `Inactive "x"`) },
		})
	handler, err := Metrics(families)
	if err != nil {
		t.Fatal(err)
	}
	got, text := scrape(t, handler)
	x := got["buildyard_x_seconds"]
	if x.GetType() != dto.MetricType_HISTOGRAM || x.GetHelp() != "How long x takes." ||
		x.GetMetric()[0].GetHistogram().GetSampleCount() != 1 {
		t.Errorf("%v", x)
	}
	for _, want := range []string{
		`buildyard_x_total{result="ok"} 2`, `buildyard_x_total{result="failed"} 1`, `# TYPE buildyard_x_total counter`,
		`buildyard_nodes{state="Inactive \"x\""} 3`, `buildyard_build_info{go_version="go`, `service="test"`,
		"# HELP buildyard_nodes Nodes by state.\n", "go_goroutines ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if up := got["buildyard_uptime_seconds"].GetMetric()[0].GetGauge().GetValue(); up < 3600 || up > 4000 {
		t.Errorf("uptime %v", up)
	}
}

func TestOneNameTwiceIsRefused(t *testing.T) {
	f := metric.GaugeFamily("buildyard_x", "X", func() float64 { return 0 })
	if _, err := Metrics([]metric.Family{f, f}); err == nil || !strings.Contains(err.Error(), "buildyard_x") {
		t.Errorf("error is %v", err)
	}
}

// TestWrongLabelsAreAnError: an error is reported, and the client gets no partial response.
func TestWrongLabelsAreAnError(t *testing.T) {
	handler, err := Metrics([]metric.Family{{
		Name: "buildyard_x", Kind: metric.KindGauge, Help: "X", Labels: []string{"a"},
		Read: func(s *metric.Series) { s.Value(1) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusInternalServerError {
		t.Errorf("status %d", w.Code)
	}
}
