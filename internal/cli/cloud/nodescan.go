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
var scanSummaryView = tableView[api.NodeScanSummary]{
	itemID: func(s api.NodeScanSummary) string { return s.NodeID },
	columns: []column[api.NodeScanSummary]{
		{title: "NODE", value: func(s api.NodeScanSummary) any { return s.NodeID }},
		{title: "HOST", value: func(s api.NodeScanSummary) any { return s.Host }},
		{title: "EXPLOITED", value: func(s api.NodeScanSummary) any { return s.Counts.Exploited }},
		{title: "CRITICAL", value: func(s api.NodeScanSummary) any { return s.Counts.Critical }},
		{title: "HIGH", value: func(s api.NodeScanSummary) any { return s.Counts.High }},
		{title: "MEDIUM", value: func(s api.NodeScanSummary) any { return s.Counts.Medium }},
		{title: "LOW", value: func(s api.NodeScanSummary) any { return s.Counts.Low }},
		{title: "UNKNOWN", value: func(s api.NodeScanSummary) any { return s.Counts.Unknown }},
		{title: "PACKAGES", value: func(s api.NodeScanSummary) any { return s.Counts.Packages }},
		{title: "SCANNED", value: func(s api.NodeScanSummary) any { return timeText(s.Scanned) }},
		{title: "DATABASE", value: func(s api.NodeScanSummary) any { return timeText(s.Database) }, wideOnly: true},
		{title: "SCANNER", value: func(s api.NodeScanSummary) any {
			return s.Scanner + " " +
				s.Version
		}, wideOnly: true},
	},
}

// findingView shows the findings on one node.
var findingView = tableView[api.HostVulnerability]{
	itemID: func(v api.HostVulnerability) string { return v.Vulnerability.ID },
	columns: []column[api.HostVulnerability]{
		{title: "VULNERABILITY", value: func(v api.HostVulnerability) any { return v.Vulnerability.ID }},
		{title: "SEVERITY", value: func(v api.HostVulnerability) any { return v.Vulnerability.Severity }},
		{title: "SCORE", value: func(v api.HostVulnerability) any { return v.Vulnerability.Score }},
		{title: "EXPLOITED", value: func(v api.HostVulnerability) any {
			return map[bool]string{true: "yes"}[v.Vulnerability.Exploited]
		}},
		{title: "PACKAGE", value: func(v api.HostVulnerability) any { return v.Package.Name }},
		{title: "VERSION", value: func(v api.HostVulnerability) any { return v.Package.Version }},
		{title: "TYPE", value: func(v api.HostVulnerability) any { return v.Package.Type }},
		{title: "FIXED", value: func(v api.HostVulnerability) any {
			return strings.Join(v.Vulnerability.FixedVersions, ",")
		}},
		{title: "LOCATION", value: func(v api.HostVulnerability) any {
			return firstLocation(v.Package.Locations)
		}, wideOnly: true},
	},
}

func firstLocation(list []api.ScanLocation) string {
	if len(list) == 0 {
		return ""
	}
	return list[0].Path
}

// exposedView shows the instances that ran on a node while it had findings.
var exposedView = tableView[api.ExposedInstance]{
	itemID: func(i api.ExposedInstance) string { return i.InstanceID },
	columns: []column[api.ExposedInstance]{
		{title: "INSTANCE", value: func(i api.ExposedInstance) any { return i.InstanceID }},
		{title: "NAME", value: func(i api.ExposedInstance) any { return i.Name }},
		{title: "STATE", value: func(i api.ExposedInstance) any { return i.State }},
		{title: "EXPLOITED", value: func(i api.ExposedInstance) any { return i.Counts.Exploited }},
		{title: "CRITICAL", value: func(i api.ExposedInstance) any { return i.Counts.Critical }},
		{title: "HIGH", value: func(i api.ExposedInstance) any { return i.Counts.High }},
		{title: "MEDIUM", value: func(i api.ExposedInstance) any { return i.Counts.Medium }},
		{title: "LOW", value: func(i api.ExposedInstance) any { return i.Counts.Low }},
		{title: "UNKNOWN", value: func(i api.ExposedInstance) any { return i.Counts.Unknown }},
		{title: "PLACED", value: func(i api.ExposedInstance) any { return timeText(i.Placed) }},
		{title: "FINISHED", value: func(i api.ExposedInstance) any {
			if i.Finished == nil {
				return ""
			}
			return timeText(*i.Finished)
		}},
		{title: "EXTERNAL ID", value: func(i api.ExposedInstance) any { return i.ExternalID }, wideOnly: true},
	},
}

func nodeScan(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var o listOptions
	var exposed bool
	var ids []string
	cmd := a.addForItems(&cobra.Command{
		Use: "scan [NODE]", Short: "Show host scanner findings", Args: cobra.MaximumNArgs(1),
		Long: `scan shows the findings that the host scanner of a node reported last, the worst first, or without NODE
the number of findings on each node. With -o json it includes the packages. "hostscan serve" sends
findings when push-url is set in its configuration.

With --instances it shows the instances that ran on the node when findings were known of it, or later, and
how many; with --vulnerability those of some findings alone. Instances that ended are listed for a day.`,
		Example: `  buildyard node scan
  buildyard node scan mac-03 -o wide
  buildyard node scan mac-03 --instances --vulnerability CVE-2019-10744
  buildyard node scan mac-03 -o json | jq '.packages[].name'`,
		ValidArgsFunction: nodes.completeArgs(1),
	}, func(cmd *cobra.Command, args []string) error {
		switch {
		case len(ids) > 0 && !exposed:
			return cli.Usage(errors.New("--vulnerability needs --instances"))
		case exposed && len(args) == 0:
			return cli.Usage(errors.New("--instances needs a node"))
		case exposed:
			return a.showExposed(cmd.Context(), args[0], ids)
		case len(args) == 0:
			look := func(ctx context.Context) ([]api.NodeScanSummary, error) {
				return a.API.NodeScans(ctx, o.ListOptions)
			}
			return showItems(cmd.Context(), &a, &o, scanSummaryView, look)
		}
		return a.showScan(cmd.Context(), args[0])
	})
	o.add(cmd, "limit", "after")
	cmd.Flags().BoolVar(&exposed, "instances", false, "show the instances that ran there while findings were known")
	cmd.Flags().StringSliceVar(&ids, "vulnerability", nil, "IDs of the findings (default: all)")
	return cmd
}

// showExposed shows the instances that ran on a node while findings were known.
func (a *Command) showExposed(ctx context.Context, name string, ids []string) error {
	id, err := nodes.find(ctx, a.API, name)
	if err != nil {
		return err
	}
	got, err := callAPI(ctx, func(ctx context.Context) (api.NodeExposure, error) {
		return a.API.NodeExposure(ctx, id, ids...)
	})
	if err != nil {
		return noScanError(name, err)
	}
	if a.Output == cli.JSON || a.Output == cli.YAML {
		return a.Output.WriteDocument(a.Out, got.raw)
	}
	e := got.value
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(a.Err, format+"\n", args...) }
	say("%s, %s", cli.Plural(e.Findings, "finding"), cli.Plural(len(e.Instances)+e.LeftOut, "instance"))
	if e.LeftOut > 0 {
		say("%d older instances are not listed", e.LeftOut)
	}
	if e.Truncated {
		say("The node has more findings than it sent")
	}
	return printList(a, response[[]api.ExposedInstance]{value: e.Instances}, exposedView)
}

// noScanError explains the error of a request for the findings on a node.
func noScanError(node string, err error) error {
	if errors.Is(err, client.ErrNotFound) {
		return fmt.Errorf("the host scanner of the node %s has not reported yet: %w", node, err)
	}
	return err
}

// showScan shows the findings on a node.
func (a *Command) showScan(ctx context.Context, name string) error {
	id, err := nodes.find(ctx, a.API, name)
	if err != nil {
		return err
	}
	got, err := callAPI(ctx, func(ctx context.Context) (api.NodeScan, error) { return a.API.NodeScan(ctx, id) })
	if err != nil {
		return noScanError(name, err)
	}
	if a.Output == cli.JSON || a.Output == cli.YAML {
		return a.Output.WriteDocument(a.Out, got.raw)
	}
	scan := got.value
	slices.SortStableFunc(scan.Vulnerabilities, func(x, y api.HostVulnerability) int {
		return cmp.Or(cmp.Compare(y.Vulnerability.Score, x.Vulnerability.Score),
			strings.Compare(x.Package.Name, y.Package.Name))
	})
	a.printScan(scan)
	return printList(a, response[[]api.HostVulnerability]{value: scan.Vulnerabilities}, findingView)
}

// printScan prints the header of a list of findings, with its gaps.
func (a *Command) printScan(s api.NodeScan) {
	say := func(format string, args ...any) {
		_, _ = fmt.Fprintln(a.Err, cli.EscapeName(fmt.Sprintf(format, args...)))
	}
	say("%s: %s, %s, %s", s.Host, timeText(s.Scanned), cli.Plural(s.Counts.Packages, "package"),
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
