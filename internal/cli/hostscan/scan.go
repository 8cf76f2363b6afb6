package hostscan

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/retry"
)

// fullScanOptions are the flags of full-scan.
type fullScanOptions struct {
	*globals
	path     string
	noWait   bool
	realTime bool
}

func fullScanCommand(g *globals) *cobra.Command {
	o := &fullScanOptions{globals: g}
	cmd := &cobra.Command{
		Use:   "full-scan",
		Short: "Scan the host or a directory once",
		Long: `full-scan scans every file of the host, or of a directory, that may contain a package, and waits for the
end of the scan, which takes up to some minutes. Ctrl-C ends the wait only: the scan continues.

If files that may contain packages could not be read, for lack of permission or because they are
damaged, the other results count, and the exit code is 7. Run the service as root to scan all files.`,
		Example: `  hostscan full-scan
  hostscan full-scan --path ~/src --no-wait
  hostscan full-scan --real-time-scan`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	fs := cmd.Flags()
	fs.StringVarP(&o.path, "path", "d", "", "directory to scan (default: the whole host)")
	fs.BoolVarP(&o.noWait, "no-wait", "w", false, "do not wait for the end of the scan")
	fs.BoolVarP(&o.realTime, "real-time-scan", "b", false, "start real-time scanning after the scan")
	_ = cmd.MarkFlagDirname("path")
	return cmd
}

func (o *fullScanOptions) run(ctx context.Context) error {
	a, err := o.client()
	if err != nil {
		return err
	}
	q, err := directoryQuery(o.path)
	if err != nil {
		return err
	}
	if o.realTime {
		q.Set("real_time", "true")
	}
	before, err := a.status(ctx)
	if err != nil {
		return err
	}
	state, err := o.postChange(ctx, a, "/v1/full-scan", q)
	if err != nil {
		return stoppedWaiting(ctx, err)
	}
	if o.noWait {
		return o.printState(state)
	}
	after, err := o.wait(ctx, a)
	if err != nil {
		return stoppedWaiting(ctx, err)
	}
	return o.printResult(before, after)
}

// stoppedWaiting is the error of a command that stopped waiting, also before the service confirmed the scan.
func stoppedWaiting(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return cli.Exit(cli.ExitInterrupted,
		errors.New(
			"interrupted: a running scan continues; see \"hostscan status\", stop it with \"hostscan real-time-scan "+
				"stop\""))
}

// Times between two status requests during a scan.
const (
	firstPollDelay = 50 * time.Millisecond
	maxPollDelay   = time.Second
)

// wait waits until no full scan runs.
func (o *fullScanOptions) wait(ctx context.Context, a *serviceClient) (api.HostStatus, error) {
	line := cli.NewProgressLine(o.Err)
	defer line.Clear()
	looks := retry.New(firstPollDelay, maxPollDelay)
	for {
		s, err := a.status(ctx)
		if err != nil || s.State != api.HostRunningFull {
			return s, err
		}
		if p := s.Progress; p != nil {
			line.Show("%s", formatProgress(*p))
		}
		_ = looks.Sleep(ctx) // the next request fails then
	}
}

// formatProgress describes the progress of a scan.
func formatProgress(p api.HostScan) string {
	switch {
	case p.Phase == "judging":
		return fmt.Sprintf("Analyzing %s", cli.Plural(p.Packages, "package"))
	case p.Wanted > 0:
		return fmt.Sprintf("Cataloging: %d of %s read, %s", p.Read, cli.Plural(p.Wanted, "file"),
			cli.Plural(p.Packages, "package"))
	}
	return fmt.Sprintf("Cataloging: %s seen, %s", cli.Plural(p.Files, "file"), cli.Plural(p.Packages, "package"))
}

// printResult prints the result of a scan, and returns the error of a failed one.
func (o *fullScanOptions) printResult(before, after api.HostStatus) error {
	l := after.LastScan
	if l == nil || before.LastScan != nil && l.Started.Equal(before.LastScan.Started) {
		return errors.New("the scan did not finish: the service was restarted, or the scan was stopped")
	}
	switch {
	case l.Error != "":
		return fmt.Errorf("scan failed: %s", l.Error)
	case l.Cancelled:
		return errors.New("scan stopped before its end")
	}
	o.printMessage("Cataloged packages: %d [%s seen, %s read, %.1f s]", l.Packages, cli.Plural(l.Files, "file"),
		cli.Plural(l.Read, "file"), l.Seconds)
	if after.Database.Built == nil {
		o.printMessage("Vulnerability database %s not found: packages were not matched", after.Database.Path)
	}
	if err := o.printState(after.State); err != nil {
		return err
	}
	return incompleteError(*l)
}

// incompleteError returns the error of an incomplete scan; nil for a complete one.
func incompleteError(l api.HostScanResult) error {
	n := l.Denied + l.Unread
	if n == 0 {
		return nil
	}
	what := fmt.Sprintf("%d files and directories", n)
	if n == 1 {
		what = "1 file or directory"
	}
	if l.Denied > 0 {
		what += fmt.Sprintf(", %d of them for lack of permission", l.Denied)
	}
	if len(l.FirstUnread) > 0 {
		what += "; the first is " + cli.EscapeName(l.FirstUnread[0])
	}
	return cli.Exit(cli.ExitPartly,
		fmt.Errorf("scan partial: files that may contain packages could not be read: %s; see \"hostscan status\"",
			what))
}

func realTimeCommand(g *globals) *cobra.Command {
	var path string
	start := &cobra.Command{
		Use:   "start",
		Short: "Start real-time scanning",
		Long: `start starts real-time scanning of the whole host or a directory: installed, changed and removed packages
are reported. With a directory it starts with a full scan of it.`,
		Example: `  hostscan real-time-scan start
  hostscan real-time-scan start --path /Users/ci`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := directoryQuery(path)
			if err != nil {
				return err
			}
			a, err := g.client()
			if err != nil {
				return err
			}
			state, err := g.postChange(cmd.Context(), a, "/v1/real-time-scan/start", q)
			if err != nil {
				return err
			}
			return g.printState(state)
		},
	}
	start.Flags().StringVarP(&path, "path", "d", "", "directory to watch (default: the whole host)")
	_ = start.MarkFlagDirname("path")
	stop := &cobra.Command{
		Use:   "stop",
		Short: "Stop scanning",
		Long: `stop stops the scans of the service. It returns when all pending changes are in the report, which may
take long.`,
		Example: `  hostscan real-time-scan stop && hostscan report`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return g.stop(cmd.Context()) },
	}
	return cli.Family(&cobra.Command{
		Use:     "real-time-scan",
		Short:   "Start or stop real-time scanning",
		Example: `  hostscan real-time-scan start`,
	}, start, stop)
}

func (g *globals) stop(ctx context.Context) error {
	a, err := g.client()
	if err != nil {
		return err
	}
	if _, err := g.postChange(ctx, a, "/v1/real-time-scan/stop", nil); err != nil {
		return err
	}
	s, err := a.status(ctx) // the response may have the old state
	if err != nil {
		return err
	}
	return g.printState(s.State)
}
