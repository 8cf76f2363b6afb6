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
		Short: "Scan the whole host or a folder once",
		Long: `full-scan has the service look at every file of the host, or of a folder, that may tell of a package,
and waits until it has. It takes up to some minutes. Ctrl-C ends the waiting alone: the scan goes on.

When something that may hold packages could not be read, for lack of permission or since it is damaged, what
was found counts, and the exit code is 7. Run the service as root to have everything seen.`,
		Example: `  hostscan full-scan
  hostscan full-scan --path ~/src --no-wait
  hostscan full-scan --real-time-scan`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	fs := cmd.Flags()
	fs.StringVarP(&o.path, "path", "d", "", "folder to scan (default: the whole host)")
	fs.BoolVarP(&o.noWait, "no-wait", "w", false, "do not wait: the scan runs in the background")
	fs.BoolVarP(&o.realTime, "real-time-scan", "b", false, "start real-time scanning when the scan is complete")
	_ = cmd.MarkFlagDirname("path")
	return cmd
}

func (o *fullScanOptions) run(ctx context.Context) error {
	a, err := o.asker()
	if err != nil {
		return err
	}
	q, err := folder(o.path)
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
	state, err := o.change(ctx, a, "/v1/full-scan", q)
	if err != nil {
		return left(ctx, err)
	}
	if o.noWait {
		return o.tellState(state)
	}
	after, err := o.wait(ctx, a)
	if err != nil {
		return left(ctx, err)
	}
	return o.tell(before, after)
}

// left is the error of a command that stopped waiting, also before the service confirmed the scan.
func left(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return cli.Exit(cli.ExitInterrupted, errors.New("interrupted: a scan that has begun goes on; \"hostscan status\" says how far it is, \"hostscan real-time-scan stop\" stops it"))
}

// Times between two status requests during a scan.
const (
	firstLook = 50 * time.Millisecond
	mostLook  = time.Second
)

// wait waits until no full scan runs.
func (o *fullScanOptions) wait(ctx context.Context, a *serviceClient) (api.HostStatus, error) {
	line := cli.NewLine(o.Err)
	defer line.Clear()
	looks := retry.New(firstLook, mostLook)
	for {
		s, err := a.status(ctx)
		if err != nil || s.State != api.HostRunningFull {
			return s, err
		}
		if p := s.Progress; p != nil {
			line.Show("%s", progress(*p))
		}
		_ = looks.Sleep(ctx) // the next request fails then
	}
}

// progress describes the progress of a scan.
func progress(p api.HostScan) string {
	switch {
	case p.Phase == "judging":
		return fmt.Sprintf("Analyzing %s", cli.Plural(p.Packages, "package"))
	case p.Wanted > 0:
		return fmt.Sprintf("Cataloging: %d of %s read, %s", p.Read, cli.Plural(p.Wanted, "file"), cli.Plural(p.Packages, "package"))
	}
	return fmt.Sprintf("Cataloging: %s seen, %s", cli.Plural(p.Files, "file"), cli.Plural(p.Packages, "package"))
}

// tell prints the result of a scan, and returns the error of a failed one.
func (o *fullScanOptions) tell(before, after api.HostStatus) error {
	l := after.LastScan
	if l == nil || before.LastScan != nil && l.Started.Equal(before.LastScan.Started) {
		return errors.New("the scan did not end: the service was started anew meanwhile, or somebody stopped it")
	}
	switch {
	case l.Error != "":
		return fmt.Errorf("the scan failed: %s", l.Error)
	case l.Cancelled:
		return errors.New("the scan was stopped before its end")
	}
	o.say("Cataloged packages: %d [%s seen, %s read, %.1f s]", l.Packages, cli.Plural(l.Files, "file"), cli.Plural(l.Read, "file"), l.Seconds)
	if after.Database.Built == nil {
		o.say("There is no vulnerability database at %s: nothing was analyzed", after.Database.Path)
	}
	if err := o.tellState(after.State); err != nil {
		return err
	}
	return partly(*l)
}

// partly returns the error of an incomplete scan; nil for a complete one.
func partly(l api.HostScanResult) error {
	n := l.Denied + l.Unread
	if n == 0 {
		return nil
	}
	what := fmt.Sprintf("%d files and folders", n)
	if n == 1 {
		what = "1 file or folder"
	}
	if l.Denied > 0 {
		what += fmt.Sprintf(", %d of them for lack of permission", l.Denied)
	}
	if len(l.FirstUnread) > 0 {
		what += "; the first is " + cli.Plain(l.FirstUnread[0])
	}
	return cli.Exit(cli.ExitPartly, fmt.Errorf("the scan is partial: what may hold packages could not be read: %s; \"hostscan status\" names more", what))
}

func realTimeCommand(g *globals) *cobra.Command {
	var path string
	start := &cobra.Command{
		Use:   "start",
		Short: "Start real-time scanning",
		Long: `start has the service notice packages as they are installed, changed and removed, on the whole host or
in a folder. With a folder it begins with a full scan of it.`,
		Example: `  hostscan real-time-scan start
  hostscan real-time-scan start --path /Users/ci`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := folder(path)
			if err != nil {
				return err
			}
			a, err := g.asker()
			if err != nil {
				return err
			}
			state, err := g.change(cmd.Context(), a, "/v1/real-time-scan/start", q)
			if err != nil {
				return err
			}
			return g.tellState(state)
		},
	}
	start.Flags().StringVarP(&path, "path", "d", "", "folder to watch (default: the whole host)")
	_ = start.MarkFlagDirname("path")
	stop := &cobra.Command{
		Use:   "stop",
		Short: "End real-time scanning, or cancel a full scan",
		Long: `stop ends what the service scans. It returns when everything that was noticed is in the report, which may
take long.`,
		Example: `  hostscan real-time-scan stop && hostscan report`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return g.stop(cmd.Context()) },
	}
	return cli.Family(&cobra.Command{
		Use:     "real-time-scan",
		Short:   "Start or stop noticing packages as they come",
		Example: `  hostscan real-time-scan start`,
	}, start, stop)
}

func (g *globals) stop(ctx context.Context) error {
	a, err := g.asker()
	if err != nil {
		return err
	}
	if _, err := g.change(ctx, a, "/v1/real-time-scan/stop", nil); err != nil {
		return err
	}
	s, err := a.status(ctx) // the response may have the old state
	if err != nil {
		return err
	}
	return g.tellState(s.State)
}
