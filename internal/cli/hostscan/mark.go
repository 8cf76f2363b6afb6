package hostscan

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/cli"
)

func markCommand(g *globals) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "mark JOB",
		Short: "Mark the start of a CI job",
		Long: `mark records that a job begins, so that "report --since-job JOB" has what came since then. Jobs that run
at the same time do not disturb each other; with --path the report has only packages in that directory.
JOB is a name that is new for each run. A mark lasts seven days, also across restarts of the service, and
needs no token: it can be neither moved nor removed.`,
		Example: `  hostscan mark "$CI_JOB_ID"
  hostscan mark "$BUILD_TAG" --path "$WORKSPACE"`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return g.mark(cmd.Context(), args[0], path) },
	}
	cmd.Flags().StringVarP(&path, "path", "d", "", "directory of the job (default: the whole host)")
	_ = cmd.MarkFlagDirname("path")
	return cmd
}

func (g *globals) mark(ctx context.Context, job, path string) error {
	if job == "" {
		return cli.Usage(errors.New("JOB is empty: want a name that is new for each run"))
	}
	q, err := directoryQuery(path)
	if err != nil {
		return err
	}
	a, err := g.client()
	if err != nil {
		return err
	}
	q.Set("job", job)
	var m api.HostMark
	if err := a.post(ctx, "/v1/marks", q, &m); err != nil {
		return err
	}
	if m.Incomplete != "" {
		g.printMessage("Incomplete: %s", m.Incomplete)
	}
	return nil
}

// findMark returns the mark of a job.
func (a *serviceClient) findMark(ctx context.Context, job string) (m api.HostMark, err error) {
	var list []api.HostMark
	if err := a.get(ctx, "/v1/marks", url.Values{"job": {job}}, &list); err != nil {
		return m, err
	}
	if len(list) == 0 {
		return m, fmt.Errorf("job %q has no mark: run \"hostscan mark\" when it begins; marks last seven days", job)
	}
	return list[0], nil
}
