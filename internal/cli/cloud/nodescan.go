package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/cli"
)

// scanSummaryView shows summaries of the findings on nodes.
var scanSummaryView = view[api.NodeScanSummary]{
	id: func(s api.NodeScanSummary) string { return s.NodeID },
	columns: []column[api.NodeScanSummary]{
		{head: "NODE", cell: func(s api.NodeScanSummary) any { return s.NodeID }},
		{head: "HOST", cell: func(s api.NodeScanSummary) any { return s.Host }},
		{head: "EXPLOITED", cell: func(s api.NodeScanSummary) any { return s.Counts.Exploited }},
		{head: "CRITICAL", cell: func(s api.NodeScanSummary) any { return s.Counts.Critical }},
		{head: "HIGH", cell: func(s api.NodeScanSummary) any { return s.Counts.High }},
		{head: "MEDIUM", cell: func(s api.NodeScanSummary) any { return s.Counts.Medium }},
		{head: "LOW", cell: func(s api.NodeScanSummary) any { return s.Counts.Low }},
		{head: "UNKNOWN", cell: func(s api.NodeScanSummary) any { return s.Counts.Unknown }},
		{head: "PACKAGES", cell: func(s api.NodeScanSummary) any { return s.Counts.Packages }},
		{head: "SCANNED", cell: func(s api.NodeScanSummary) any { return when(s.Scanned) }},
		{head: "DATABASE", cell: func(s api.NodeScanSummary) any { return when(s.Database) }, wide: true},
		{head: "SCANNER", cell: func(s api.NodeScanSummary) any { return s.Scanner + " " + s.Version }, wide: true},
	},
}

// findingView shows the findings on one node.
var findingView = view[api.HostVulnerability]{
	id: func(v api.HostVulnerability) string { return v.Vulnerability.ID },
	columns: []column[api.HostVulnerability]{
		{head: "VULNERABILITY", cell: func(v api.HostVulnerability) any { return v.Vulnerability.ID }},
		{head: "SEVERITY", cell: func(v api.HostVulnerability) any { return v.Vulnerability.Severity }},
		{head: "SCORE", cell: func(v api.HostVulnerability) any { return v.Vulnerability.Score }},
		{head: "EXPLOITED", cell: func(v api.HostVulnerability) any {
			return map[bool]string{true: "yes"}[v.Vulnerability.Exploited]
		}},
		{head: "PACKAGE", cell: func(v api.HostVulnerability) any { return v.Package.Name }},
		{head: "VERSION", cell: func(v api.HostVulnerability) any { return v.Package.Version }},
		{head: "TYPE", cell: func(v api.HostVulnerability) any { return v.Package.Type }},
		{head: "FIXED", cell: func(v api.HostVulnerability) any {
			return strings.Join(v.Vulnerability.FixedVersions, ",")
		}},
		{head: "LOCATION", cell: func(v api.HostVulnerability) any {
			return firstPlace(v.Package.Locations)
		}, wide: true},
	},
}

func firstPlace(list []api.ScanLocation) string {
	if len(list) == 0 {
		return ""
	}
	return list[0].Path
}

func nodeScan(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var o listing
	cmd := a.addAll(&cobra.Command{
		Use: "scan [NODE]", Short: "Show host scanner findings", Args: cobra.MaximumNArgs(1),
		Long: `scan shows the findings that the host scanner of a node reported last, the worst first, or without NODE
the number of findings on each node. With -o json it includes the packages. "hostscan serve" sends
findings when push-url is set in its configuration.`,
		Example: `  buildyard node scan
  buildyard node scan mac-03 -o wide
  buildyard node scan mac-03 -o json | jq '.packages[].name'`,
		ValidArgsFunction: nodes.complete(1),
	}, func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			look := func(ctx context.Context) ([]api.NodeScanSummary, error) {
				return a.API.NodeScans(ctx, o.ListOptions)
			}
			return show(cmd.Context(), &a, &o, scanSummaryView, look)
		}
		return a.showScan(cmd.Context(), args[0])
	})
	o.add(cmd, "limit", "after")
	return cmd
}

// showScan shows the findings on a node.
func (a *Command) showScan(ctx context.Context, name string) error {
	id, err := nodes.find(ctx, a.API, name)
	if err != nil {
		return err
	}
	got, err := ask(ctx, func(ctx context.Context) (api.NodeScan, error) { return a.API.NodeScan(ctx, id) })
	if errors.Is(err, client.ErrNotFound) {
		return fmt.Errorf("the host scanner of the node %s has not reported yet: %w", name, err)
	}
	if err != nil {
		return err
	}
	if a.Output == cli.JSON || a.Output == cli.YAML {
		return a.Output.Document(a.Out, got.raw)
	}
	scan := got.value
	slices.SortStableFunc(scan.Vulnerabilities, func(x, y api.HostVulnerability) int {
		return cmp.Or(cmp.Compare(y.Vulnerability.Score, x.Vulnerability.Score),
			strings.Compare(x.Package.Name, y.Package.Name))
	})
	a.printScan(scan)
	return list(a, answer[[]api.HostVulnerability]{value: scan.Vulnerabilities}, findingView)
}

// printScan prints the header of a list of findings, with its gaps.
func (a *Command) printScan(s api.NodeScan) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintln(a.Err, cli.Plain(fmt.Sprintf(format, args...))) }
	say("%s: %s, %s, %s", s.Host, when(s.Scanned), cli.Plural(s.Counts.Packages, "package"),
		cli.Plural(len(s.Vulnerabilities)+s.LeftOut.Vulnerabilities, "vulnerability"))
	if s.Database.IsZero() {
		say("No vulnerability database: packages were not matched")
	}
	if s.Partial {
		say("The last full scan is partial: some files could not be read")
	}
	if n := s.LeftOut.Vulnerabilities; n > 0 {
		say("%d findings of the lowest severity were not sent", n)
	}
}
