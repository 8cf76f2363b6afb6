package hostscan

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/cli"
)

func statusCommand(g *globals) *cobra.Command {
	var output cli.Format
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show service status",
		Example: `  hostscan status
  hostscan status --output json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := g.client()
			if err != nil {
				return err
			}
			s, err := a.status(cmd.Context())
			if cli.CodeOf(err) == cli.ExitUnreachable && output == cli.Table {
				_, _ = fmt.Fprintln(g.Out, "Service State: Inactive")
			}
			if err != nil {
				return err
			}
			if output != cli.Table {
				return output.Write(g.Out, s, nil)
			}
			return g.printStatus(s)
		},
	}
	output.AddLong(cmd)
	return cmd
}

// printStatus prints a status, one item a line.
func (g *globals) printStatus(s api.HostStatus) error {
	var failed error
	line := func(what, format string, args ...any) {
		if _, err := fmt.Fprintf(g.Out, "%s: %s\n", what, cli.EscapeName(fmt.Sprintf(format, args...))); err != nil {
			failed = err
		}
	}
	line("Service State", "Active")
	line("Scan State", "%s", s.State)
	if s.State == api.HostRealTime && s.Path != "" {
		line("Watching", "%s", s.Path)
	}
	if s.Progress != nil {
		line("Progress", "%s", formatProgress(*s.Progress))
	}
	if s.Since != nil {
		line("Last Start", "%s", formatLocalTime(*s.Since))
	}
	if s.LastScan != nil {
		line("Last Full Scan", "%s", formatLastScan(*s.LastScan))
		for _, what := range s.LastScan.FirstUnread {
			line("Not Read", "%s", what)
		}
	}
	line("Packages", "%d", s.Counts.Packages)
	line("Vulnerabilities", "%d", s.Counts.Vulnerabilities)
	if n := s.Counts.OwnerDecided; n > 0 {
		line("Left Out", "%s that the distribution's advisories decide", cli.Plural(n, "vulnerability"))
	}
	if s.Pending > 0 || s.Analyzing {
		line("In Progress", "%s", formatRunning(s))
	}
	line("Vulnerability Database", "%s", formatDatabase(s.Database))
	watched, left := formatMounts(s.Mounts)
	for _, m := range watched {
		line("Watched", "%s", m)
	}
	for _, m := range left {
		line("Not Watched", "%s", m)
	}
	if s.Push != nil {
		line("Controller", "%s", formatPush(*s.Push))
	}
	for _, w := range s.Warnings {
		line("Warning", "%s", w)
	}
	line("Version", "%s", s.Version)
	return failed
}

// formatPush describes the state of pushes of findings.
func formatPush(p api.HostPush) string {
	text := "nothing sent yet"
	if p.Sent != nil {
		text = "findings sent " + formatLocalTime(*p.Sent)
	}
	if p.Node != "" {
		text += fmt.Sprintf(" as the node %s to %s", p.Node, p.URL)
	}
	if p.Error != "" {
		text += "; last error: " + p.Error
	}
	return text
}

func formatLocalTime(t time.Time) string { return t.Local().Format(time.RFC3339) }

func formatLastScan(l api.HostScanResult) string {
	where := l.Path
	if where == "" {
		where = "the whole host"
	}
	text := fmt.Sprintf("%s of %s, %s in %.1f s", formatLocalTime(l.Started), where, cli.Plural(l.Packages, "package"),
		l.Seconds)
	switch {
	case l.Error != "":
		text += ", failed: " + l.Error
	case l.Cancelled:
		text += ", stopped before its end"
	}
	if l.Denied > 0 {
		text += fmt.Sprintf(", %d not permitted", l.Denied)
	}
	if l.Unread > 0 {
		text += fmt.Sprintf(", %d not readable", l.Unread)
	}
	return text
}

func formatRunning(s api.HostStatus) string {
	text := cli.Plural(s.Pending, "change") + " pending"
	if s.Analyzing {
		text += ", packages are being analyzed"
	}
	return text
}

func formatDatabase(d api.HostDatabase) string {
	text := "not found: " + d.Path
	if d.Built != nil {
		text = fmt.Sprintf("built %s (%s old)", d.Built.UTC().Format(time.DateOnly),
			cli.FormatAge(time.Since(*d.Built)))
	}
	if d.Checked != nil {
		text += fmt.Sprintf(", last checked for a newer one %s ago (%s)",
			cli.FormatAge(max(0, time.Since(*d.Checked))), d.Checked.UTC().Format("2006-01-02 15:04 UTC"))
	}
	if d.Error != "" {
		text += ", " + d.Error
	}
	return text
}

// formatMounts describes how file systems are watched, and why the others are not: many share one reason,
// which is printed once.
func formatMounts(list []api.HostMount) (watched, left []string) {
	const most = 2 // maximum names per reason
	paths := map[string][]string{}
	var reasons []string
	for _, m := range list {
		name := m.Path + " (" + m.Type + ")"
		switch {
		case m.Method == "":
			if paths[m.Why] == nil {
				reasons = append(reasons, m.Why)
			}
			paths[m.Why] = append(paths[m.Why], name)
		case m.Why == "":
			watched = append(watched, name+" by "+m.Method)
		default:
			watched = append(watched, name+" by "+m.Method+": "+m.Why)
		}
	}
	for _, why := range reasons {
		names, text := paths[why], ""
		if n := len(names) - most; n > 0 {
			names, text = names[:most], fmt.Sprintf(" and %d more", n)
		}
		text = strings.Join(names, ", ") + text
		if why != "" {
			text += ": " + why
		}
		left = append(left, text)
	}
	return watched, left
}
