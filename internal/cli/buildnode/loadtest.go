package buildnode

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/clienttls"
	"github.com/buildyard/buildyard/internal/loadgen"
)

// LoadOptions are the options of load.
type LoadOptions struct {
	*globals
	loadgen.Options
	ControllerURL string // URL
	Profile       string
	Output        cli.Format
	TLS           datadir.TLSFiles
	Login         loginOptions
}

func loadCommand(g *globals) *cobra.Command {
	o := LoadOptions{globals: g}
	cmd := &cobra.Command{
		Use:   "load",
		Short: "Generate CI load",
		Long: `load creates instances at a controller like the plugin of a CI system: it creates them, polls until they
are Started, waits while they work, and terminates them. At the end it prints the latencies of the
calls and the errors. It terminates every instance that it started, also when it is interrupted, and
fails when one is left.

Profiles, each with the request pattern of one kind of plugin:

` + profileNames() + `
With --rate jobs start at that rate, whatever the controller does; without it each caller
starts a job when its last one has ended.`,
		Example: `  buildnode load --controller http://127.0.0.1:8090 --template ID --rate 50 --duration 1m
  buildnode load --controller http://127.0.0.1:8090 --template ID --profile github --callers 64 --hold 0s -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.ControllerURL, "controller", "", "URL of the controller")
	fs.StringVar(&o.Template, "template", "", "ID of the template to start")
	fs.StringVar(&o.Tag, "tag", "", "tag of the version (default: the latest)")
	fs.StringVar(&o.Group, "group-id", "", "ID of the node group to start on")
	fs.StringVar(&o.Profile, "profile", loadgen.Profiles[0].Name,
		"profile: "+strings.Join(loadgen.ProfileNames(), ", "))
	fs.Float64Var(&o.Rate, "rate", 0, "jobs started per second; 0: unlimited")
	fs.IntVar(&o.Callers, "callers", 64, "maximum concurrent calls")
	fs.DurationVar(&o.HoldTime, "hold", 10*time.Second, "average run time of an instance, varied by up to a half")
	fs.DurationVar(&o.Duration, "duration", time.Minute, "duration of the load: how long jobs are started")
	fs.Uint64Var(&o.Seed, "seed", 1, "seed of random values")
	addTLS(fs, &o.TLS, "controller")
	o.Login.add(fs)
	o.Output.Add(cmd)
	for _, name := range []string{"controller", "template"} {
		_ = cmd.MarkFlagRequired(name)
	}
	_ = cmd.RegisterFlagCompletionFunc("profile",
		cobra.FixedCompletions(loadgen.ProfileNames(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// profileNames lists the profiles for the help.
func profileNames() string {
	var b strings.Builder
	for _, p := range loadgen.Profiles {
		fmt.Fprintf(&b, "  %-9s %s\n", p.Name, p.Description)
	}
	return b.String()
}

func (o *LoadOptions) run(ctx context.Context) error {
	base := strings.TrimSuffix(o.ControllerURL, "/")
	if !strings.HasPrefix(base, "http://") && !strings.HasPrefix(base, "https://") {
		return cli.Usage(fmt.Errorf("invalid --controller %q: want a URL such as http://127.0.0.1:8090",
			o.ControllerURL))
	}
	profile, err := loadgen.FindProfile(o.Profile)
	if err != nil {
		return cli.Usage(err)
	}
	options := o.Options
	options.Profile, options.RunID = profile, rand.Text()
	options.Progress = func(r loadgen.Report) {
		fmt.Fprintf(o.Err, "%4.0fs %d jobs started, %d instances created (%.0f/s), %d terminated, %d errors\n",
			r.Seconds, r.Offered, r.Created, r.PerSecond, r.Terminated, sumValues(r.Errors))
	}
	access, err := o.clientAccess(base)
	if err != nil {
		return err
	}
	calls := loadgen.NewClientWithCredentials(base, o.Callers, access)
	defer calls.Close()
	report, failed := loadgen.Run(ctx, calls, options)
	if errors.Is(failed, loadgen.ErrInvalidOptions) {
		return cli.Usage(failed)
	}
	if err := o.Output.Write(o.Out, report, func(g *cli.Grid) { loadTable(g, report) }); err != nil {
		return errors.Join(err, failed)
	}
	if failed == nil && report.Created == 0 {
		return errors.New("no instance was created; see the errors above")
	}
	return failed
}

// clientAccess returns how the calls authenticate.
func (o *LoadOptions) clientAccess(controller string) (loadgen.Credentials, error) {
	var access loadgen.Credentials
	var err error
	if access.TLS, err = clienttls.Config(clienttls.Options(o.TLS)); err != nil {
		return access, err
	}
	creds, _, err := o.Login.credentials(o.In)
	if err != nil || creds == nil {
		return access, err
	}
	to, err := client.NewController(controller, clientOptions(creds, o.TLS))
	if err != nil {
		return access, err
	}
	access.Authorize, access.Renew = to.Authorize, to.Renew
	return access, nil
}

// loadTable fills the table of a report.
func loadTable(g *cli.Grid, r loadgen.Report) {
	g.Row("CALL", "COUNT", "P50 MS", "P90 MS", "P99 MS", "MAX MS")
	for _, op := range loadgen.Ops {
		if t, ok := r.Times[op]; ok {
			g.Row(op, t.Count, t.P50, t.P90, t.P99, t.Max)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(r.Errors)) {
		g.Row("error", r.Errors[kind], kind)
	}
	g.Row("created", r.Created, fmt.Sprintf("%.1f/s", r.PerSecond))
	g.Row("started", r.Started)
	g.Row("failed", r.Failed)
	g.Row("ended", r.Terminated)
	g.Row("late", r.Late)
	g.Row("left", r.Remaining)
}

func sumValues(m map[string]int64) (n int64) {
	for _, v := range m {
		n += v
	}
	return n
}
