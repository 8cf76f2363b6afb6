package buildyard

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"go.yaml.in/yaml/v3"

	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/cli/buildnode"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/license"
	"github.com/buildyard/buildyard/internal/tools/referencetest"
)

// licensed makes a license and the settings of a controller that runs under it.
func licensed(t *testing.T, tier farm.Tier) map[string]string {
	t.Helper()
	dir := t.TempDir()
	secret, public, file := filepath.Join(dir, "a.key"), filepath.Join(dir, "a.pub"), filepath.Join(dir, "licence")
	if err := license.GenerateKeys(secret, public); err != nil {
		t.Fatal(err)
	}
	key, err := license.ReadSecret(secret)
	if err != nil {
		t.Fatal(err)
	}
	text, err := license.IssueKey(key,
		license.License{Product: license.Controller, Tier: tier, Expires: time.Now().Add(100 * 24 * time.Hour)})
	if err == nil {
		err = os.WriteFile(file, []byte(text+"\n"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{"license-file": file, "license-authority": public}
}

// runNode joins a node, in its own directory, and runs it until the test ends.
func runNode(t *testing.T, s *ControllerService, dir string, o buildnode.NodeOptions) *buildnode.Node {
	t.Helper()
	var err error
	if o.DataDir, err = datadir.At(dir); err != nil {
		t.Fatal(err)
	}
	_, err = buildnode.Join(t.Context(), buildnode.JoinOptions{
		DataDir: o.DataDir, ControllerURL: s.URL(), Token: s.JoinToken(), Host: "127.0.0.1", DiskReserve: "64MB",
		Capacity: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	o.Logger = slog.New(slog.DiscardHandler)
	node, err := buildnode.OpenNode(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- node.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		if err := node.Close(); err != nil {
			t.Error(err)
		}
	})
	return node
}

// allMetrics scrapes a controller, a registry and a node.
func allMetrics(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	settings := licensed(t, farm.TierEnterprise)
	maps.Copy(settings, metricsOn)
	settings["enable-central-logging"] = "true"
	s, stop := startController(t, t.TempDir(), true, settings)
	t.Cleanup(stop)
	node := runNode(t, s, t.TempDir(), buildnode.NodeOptions{
		Driver: buildnode.DriverSim, MetricsAddr: "127.0.0.1:0",
		Peers: buildnode.PeerOptions{ListenAddr: "127.0.0.1:0"},
	})
	get(t, s.URL()+"/livez")
	text := ""
	for deadline := time.Now().Add(time.Minute); !strings.Contains(text,
		"last_poll_age"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the node never polled")
		}
		_, text = get(t, node.MetricsURL())
	}
	wellMade(t, text)
	all := parseMetrics(t, text)
	_, text = get(t, s.MetricsURL())
	if !strings.Contains(text, `buildyard_license_info{tier="enterprise"} 1`) {
		t.Error("the licence is not in force")
	}
	maps.Copy(all, parseMetrics(t, text))
	maps.DeleteFunc(all, func(name string, _ *dto.MetricFamily) bool { return !strings.HasPrefix(name, "buildyard_") })
	return all
}

func labelsOf(f *dto.MetricFamily) []string {
	names := map[string]bool{}
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			names[l.GetName()] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// boundedLabels are the labels of our metrics. Their values are states, routes and the like, which
// the program knows beforehand: an id would make series without end.
var boundedLabels = []string{
	"code", "go_version", "kind", "result", "route", "service", "state", "status", "tier",
	"to", "version",
}

// metricSections are the headings of the page of the metrics, with the prefixes of their names. The longest
// prefix that fits counts.
var metricSections = []struct {
	prefixes      []string
	heading, text string
}{
	{[]string{"buildyard_node_"}, "Node agent", "At the address of `buildnode run --metrics-listen`."},
	{
		[]string{"buildyard_registry_"},
		"Registry",
		"At the port `SVC_METRICS_PORT` of a registry, or of a controller with a registry in its process.",
	},
	{
		[]string{"buildyard_", "buildyard_node_polls_"},
		"Controller",
		"At the port `SVC_METRICS_PORT` of a controller. A registry and a node export those of the build, " +
			"the uptime and the log, too, and a registry those of its HTTP requests.",
	},
}

// metricHeading returns the heading of a metric on that page.
func metricHeading(name string) (heading string) {
	longest := 0
	for _, s := range metricSections {
		for _, p := range s.prefixes {
			if strings.HasPrefix(name, p) && len(p) > longest {
				heading, longest = s.heading, len(p)
			}
		}
	}
	return heading
}

// TestReferenceOfMetrics: the page of the metrics has those of a controller, a registry and a node.
func TestReferenceOfMetrics(t *testing.T) {
	all := allMetrics(t)
	rows := map[string]string{} // heading -> rows
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f := all[name]
		labels := labelsOf(f)
		for _, l := range labels {
			if !slices.Contains(boundedLabels, l) {
				t.Errorf("%s has the label %s", name, l)
			}
		}
		rows[metricHeading(name)] += fmt.Sprintf("| `%s` | %s | %s | %s |\n",
			name, strings.ToLower(f.GetType().String()), strings.Join(labels, ", "), referencetest.Cell(f.GetHelp()))
	}
	for _, s := range metricSections {
		referencetest.Section(t, "metrics.md", s.heading,
			s.text+"\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n"+rows[s.heading])
	}
}

// dashboards are the dashboards of Grafana, with the number of expressions that each has at least.
var dashboards = map[string]int{"controller": 25, "registry": 10, "node": 8}

// TestDashboardsNameWhatExists: every expression of the dashboards names metrics, and labels of them, that exist.
func TestDashboardsNameWhatExists(t *testing.T) {
	all := allMetrics(t)
	for name, wantExprs := range dashboards {
		raw, err := os.ReadFile("../../../packaging/grafana/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var board struct {
			UID    string `json:"uid"`
			Panels []struct {
				ID      int    `json:"id"`
				Title   string `json:"title"`
				Type    string `json:"type"`
				Targets []struct {
					Expr string `json:"expr"`
				} `json:"targets"`
				GridPos struct{ H, W, X, Y int } `json:"gridPos"`
			} `json:"panels"`
		}
		if err := json.Unmarshal(raw, &board); err != nil {
			t.Fatal(err)
		}
		exprs, ids := 0, map[int]bool{}
		for _, p := range board.Panels {
			if p.Type != "row" && (p.Title == "" || len(p.Targets) == 0) || p.GridPos.X+p.GridPos.W > 24 || ids[p.ID] {
				t.Errorf("%s: panel %q shows nothing, is outside, or has the ID of another", name, p.Title)
			}
			ids[p.ID] = true
			for _, target := range p.Targets {
				exprs++
				checkExpression(t, all, p.Title, target.Expr)
			}
		}
		if exprs < wantExprs || board.UID != "buildyard-"+name {
			t.Errorf("%s: %d expressions, UID %q", name, exprs, board.UID)
		}
	}
}

var (
	metricName = regexp.MustCompile(`\bbuildyard_[a-z_]+`)
	labelList  = regexp.MustCompile(`(?:by \(([a-z_, ]*)\)|\{([^}]*)\})`)
	labelName  = regexp.MustCompile(`[a-z_]+(\s*(=|!|,|$))`)
)

// checkExpression checks that an expression of Prometheus names metrics, and labels of them, that
// exist.
func checkExpression(t *testing.T, all map[string]*dto.MetricFamily, title, expr string) {
	t.Helper()
	names := metricName.FindAllString(expr, -1)
	labels := []string{"le", "job", "instance"}
	for _, name := range names {
		f := all[name]
		for _, end := range []string{"_bucket", "_sum", "_count"} {
			if base, cut := strings.CutSuffix(name, end); f == nil && cut &&
				all[base].GetType() == dto.MetricType_HISTOGRAM {
				f = all[base]
			}
		}
		if f == nil {
			t.Errorf("%s: metric %s not found", title, name)
		}
		labels = append(labels, labelsOf(f)...)
	}
	if len(names) == 0 {
		t.Errorf("%s: %s names no metric of Buildyard", title, expr)
	}
	for _, m := range labelList.FindAllStringSubmatch(expr, -1) {
		for _, label := range labelName.FindAllString(m[1]+m[2], -1) {
			if label = strings.Trim(label, " =!,"); !slices.Contains(labels, label) {
				t.Errorf("%s: no metric in %s has the label %s", title, expr, label)
			}
		}
	}
}

// TestAlertRulesNameWhatExists: the alert rules name metrics, and labels of them, that exist; each has a severity, an
// action, a row in docs/monitoring.md and a case in the tests of promtool.
func TestAlertRulesNameWhatExists(t *testing.T) {
	page, err := os.ReadFile("../../../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	cases, err := os.ReadFile("../../../packaging/prometheus/buildyard.rules.test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile("../../../packaging/prometheus/buildyard.rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr         string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	all, rules := allMetrics(t), 0
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			rules++
			if r.Alert == "" || r.Labels["severity"] == "" || r.Annotations["summary"] == "" ||
				r.Annotations["action"] == "" {
				t.Errorf("rule %q (%s) lacks its name, severity, summary or action", r.Alert, r.Expr)
			}
			if !strings.Contains(string(page), "| `"+r.Alert+"` |") {
				t.Errorf("docs/monitoring.md has no row of %s", r.Alert)
			}
			if !regexp.MustCompile(`alertname: ` + r.Alert + `\n\s+exp_alerts:\n`).Match(cases) {
				t.Errorf("no test of promtool expects %s", r.Alert)
			}
			if !strings.HasPrefix(r.Expr, "up{") { // a metric of Prometheus
				checkExpression(t, all, r.Alert, r.Expr)
			}
		}
	}
	if rules < 15 {
		t.Errorf("%d rules", rules)
	}
}

// TestAlarmsAreDocumented: docs/monitoring.md has a row of each alarm.
func TestAlarmsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("../../../api/controller.go")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(?m)^\tAlarm\w+ += "(\w+)"`).FindAllSubmatch(source, -1)
	if len(names) < 9 {
		t.Fatalf("only %d names of alarms found", len(names))
	}
	for _, name := range names {
		if !strings.Contains(string(page), "| `"+string(name[1])+"` |") {
			t.Errorf("docs/monitoring.md has no row of the alarm %s", name[1])
		}
	}
}
