package buildyard

import (
	"context"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/spf13/pflag"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/config"
)

// get reads a page.
func get(t testing.TB, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func parseMetrics(t testing.TB, text string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// wellMade holds the rules for names, units and help of our metrics.
func wellMade(t *testing.T, text string) {
	t.Helper()
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for name, f := range parseMetrics(t, text) {
		switch {
		case strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_"):
		case !strings.HasPrefix(name, "buildyard_"):
			t.Errorf("%s is not ours", name)
		case f.GetType() == dto.MetricType_UNTYPED || len(f.GetHelp()) < 10:
			t.Errorf("%s has no type or no help", name)
		}
	}
}

var metricsOn = map[string]string{"enable-metrics": "true", "metrics-port": "0"}

func TestMetricsOfAController(t *testing.T) {
	s, stop := startController(t, t.TempDir(), true, metricsOn)
	defer stop()
	for _, path := range []string{"/api/v1/vm", "/api/v1/vm", "/nothing", "/api/v1/vm?limit=junk"} {
		get(t, s.URL()+path)
	}
	get(t, s.RegistryURL()+"/registry/v2/vm")
	code, text := get(t, s.MetricsURL())
	if code != http.StatusOK || !strings.HasSuffix(s.MetricsURL(), "/metrics") {
		t.Fatalf("%s: %d", s.MetricsURL(), code)
	}
	wellMade(t, text)
	for _, want := range []string{
		`buildyard_http_requests_total{code="200",route="GET /api/v1/vm",service="controller"} 2`,
		`buildyard_http_requests_total{code="400",route="GET /api/v1/vm",service="controller"} 1`,
		`buildyard_http_requests_total{code="404",route="none",service="controller"} 1`,
		`buildyard_http_requests_total{code="200",route="GET /registry/v2/vm",service="registry"} 1`,
		`buildyard_instances{state="Started"} 0`, `buildyard_nodes{state="Drain Mode"} 0`,
		"buildyard_registry_templates 0",
		`buildyard_license_info{tier="enterprise plus"} 1`, `buildyard_build_info{`,
		"buildyard_store_commit_seconds_count ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
	if code, _ := get(t, strings.TrimSuffix(s.MetricsURL(), "/metrics")+"/api/v1/vm"); code != http.StatusNotFound {
		t.Errorf("the API is on the port of the metrics: %d", code)
	}
	if code, _ := get(t, s.URL()+"/metrics"); code != http.StatusNotFound {
		t.Errorf("the metrics are on the port of the API: %d", code)
	}
}

func TestMetricsOfARegistry(t *testing.T) {
	fs := pflag.NewFlagSet("registry", pflag.ContinueOnError)
	cli.AddFlags(fs, config.RegistryTable)
	settings := map[string]string{
		"listen-addr": "127.0.0.1:0", "base-path": t.TempDir(), "log-level": "error", "metrics-path": "/figures/of/it",
	}
	maps.Copy(settings, metricsOn)
	for flag, value := range settings {
		if err := fs.Set(flag, value); err != nil {
			t.Fatal(err)
		}
	}
	s := &RegistryService{Stderr: io.Discard}
	if err := s.ParseFlags(config.Sources{Flags: fs}); err != nil {
		t.Fatal(err)
	}
	stop := runService(t, s)
	defer stop()
	get(t, s.URL()+"/registry/status")
	code, text := get(t, s.MetricsURL())
	if code != http.StatusOK || !strings.HasSuffix(s.MetricsURL(), "/figures/of/it") {
		t.Fatalf("%s: %d", s.MetricsURL(), code)
	}
	wellMade(t, text)
	for _, want := range []string{
		`buildyard_http_requests_total{code="200",route="GET /registry/status",service="registry"} 1`,
		"buildyard_registry_disk_free_bytes ", `buildyard_build_info{go_version="go`, `service="registry"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
}

// runService opens and runs a service until stop is called.
func runService(t *testing.T, s service) (stop func()) {
	t.Helper()
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
}

func TestWithoutMetricsNothingListens(t *testing.T) {
	s, stop := startController(t, t.TempDir(), true, nil)
	defer stop()
	if s.MetricsURL() != "" || s.requestMeter != nil || s.registry.requestMeter != nil {
		t.Error("metrics are served that nobody asked for")
	}
}
