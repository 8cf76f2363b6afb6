package hostrest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/metric"
	"github.com/buildyard/buildyard/internal/rest/hostrest/push"
	"github.com/buildyard/buildyard/internal/rest/hostrest/webhook"
	"github.com/buildyard/buildyard/internal/tools/referencetest"
)

// TestReferenceOfRoutes: the page of the permissions has the routes of the host scanner.
func TestReferenceOfRoutes(t *testing.T) {
	var b strings.Builder
	b.WriteString(
		"The service has no permissions but one token, which it requires unless it listens on a loopback address.\n\n")
	b.WriteString("| route | needs the token |\n|---|---|\n")
	for _, r := range (&Server{}).routes() {
		needs := "where there is one; with `require-token: changes` only at other than loopback addresses"
		switch {
		case r.public:
			needs = "never"
		case r.changesState:
			needs = "where there is one"
		}
		fmt.Fprintf(&b, "| `%s %s` | %s |\n", r.method, r.path, needs)
	}
	referencetest.Section(t, "permissions.md", "Routes of the host scanner", b.String())
}

// TestReferenceOfMetrics: the page of the metrics has those of the host scanner.
func TestReferenceOfMetrics(t *testing.T) {
	families := slices.Concat(newWorld(t, nil).rest.metricFamilies(), new(push.Sender).Families(),
		new(webhook.Hook).Families())
	slices.SortFunc(families, func(a, b metric.Family) int { return strings.Compare(a.Name, b.Name) })
	var b strings.Builder
	b.WriteString("At `/metrics` of the API of `hostscan serve`.\n\n| metric | type | meaning |\n|---|---|---|\n")
	for _, f := range families {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.Name, f.Kind, referencetest.Cell(f.Help))
	}
	referencetest.Section(t, "metrics.md", "Host scanner", b.String())
}
