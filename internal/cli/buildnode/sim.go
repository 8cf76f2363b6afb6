package buildnode

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/agent/fleet"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/hv/sim"
	"github.com/buildyard/buildyard/internal/obs"
)

// SimOptions are the options of sim.
type SimOptions struct {
	*globals
	fleet.Options
	Dir  string // "": nothing is kept
	Boot time.Duration
	Exec time.Duration
	Fail float64
}

func simCommand(g *globals) *cobra.Command {
	o := SimOptions{globals: g}
	token := tokenOptions{}
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Run many simulated nodes in one process",
		Long: `sim joins and runs nodes whose VMs are only simulated: to load a controller, or to see a
cloud without a hypervisor. Nothing touches the disk unless --data-dir is given; with it,
nodes and VMs outlive the process, however it ends.`,
		Example: `  buildyard node token | buildnode sim --nodes 100 --controller http://127.0.0.1:8090 --token-file -
  buildnode sim --nodes 3 --boot 2s --pull 5s --data-dir ./sim --controller http://127.0.0.1:8090 --token-file token`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Token, err = token.read(g.In); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	fs := cmd.Flags()
	fs.IntVar(&o.Nodes, "nodes", 1, "number of nodes")
	fs.StringVar(&o.Controller, "controller", "", "URL of the controller")
	token.add(cmd)
	fs.StringVar(&o.Name, "name", "sim", "beginning of the nodes' names")
	fs.StringSliceVar(&o.Groups, "groups", nil, "node groups (names or ids)")
	fs.IntVar(&o.Capacity, "capacity", 0, "most VMs at a time on each node (default: the controller's)")
	fs.DurationVar(&o.Boot, "boot", 0, "how long a VM takes to boot")
	fs.DurationVar(&o.Exec, "exec", 0, "how long the way to the guest takes for a script")
	fs.Float64Var(&o.Fail, "boot-failure", 0, "share of starts that fail, 0 to 1")
	fs.DurationVar(&o.PullTime, "pull", 0, "how long a simulated pull takes")
	fs.BoolVar(&o.RealPull, "real-pull", false, "really pull templates (needs --data-dir)")
	fs.StringVar(&o.Dir, "data-dir", "", "directory in which nodes and VMs outlive this process (default: none)")
	_ = cmd.MarkFlagRequired("controller")
	return cmd
}

func (o *SimOptions) run(ctx context.Context) error {
	log, err := obs.Logger(o.Err, o.logLevel, "sim")
	if err != nil {
		return cli.Usage(err)
	}
	f := o.Options
	f.DataDir, f.Logger, f.Version = o.Dir, log, obs.FullVersion()
	f.Sim = sim.Options{
		Boot: sim.Range{Min: o.Boot}, Exec: sim.Range{Min: o.Exec}, BootFailure: o.Fail,
	}
	return fleet.Run(ctx, f)
}
