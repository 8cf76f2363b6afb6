package buildnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/agent/home"
	"github.com/buildyard/buildyard/internal/agent/journal"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/obs"
)

func runCommand(g *globals) *cobra.Command {
	o := NodeOptions{}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the node's agent",
		Long: `run serves the node's controller until it is told to stop: it pulls templates, starts
and ends VMs and reports on them. VMs outlive the agent; the next run finds them again.`,
		Example: `  buildnode run
  buildnode run --driver sim     # no hypervisor: simulated VMs, for trying things out`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Home, err = g.home(); err != nil {
				return err
			}
			if o.Logger, err = obs.Logger(cmd.ErrOrStderr(), g.logLevel, "node"); err != nil {
				return cli.Usage(err)
			}
			return runNode(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.Driver, "driver", DriverQEMU, "hypervisor driver: qemu or sim")
	_ = cmd.RegisterFlagCompletionFunc("driver", cobra.FixedCompletions([]string{DriverQEMU, DriverSim}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func runNode(ctx context.Context, o NodeOptions) (err error) {
	node, err := OpenNode(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.Close()) }()
	o.Logger.InfoContext(ctx, "agent runs", "driver", node.Host.Driver, "hypervisor", node.Host.Version, "accelerator", node.Host.Accelerator)
	return node.Run(ctx)
}

// Status is what the status command says.
type Status struct {
	Joined     bool             `json:"joined"`
	NodeID     string           `json:"node_id,omitempty"`
	Name       string           `json:"name,omitempty"`
	Controller string           `json:"controller,omitempty"`
	Registry   string           `json:"registry,omitempty"`
	Host       string           `json:"host,omitempty"`
	DataDir    string           `json:"data_dir"`
	AgentRuns  bool             `json:"agent_runs"`
	Instances  []StatusInstance `json:"instances"`
}

// StatusInstance is one instance in the node's journal.
type StatusInstance struct {
	ID       string `json:"id"`
	Phase    string `json:"phase"`
	Template string `json:"template,omitempty"`
	Tag      string `json:"tag,omitempty"`
	Ending   bool   `json:"ending,omitempty"`
	Message  string `json:"message,omitempty"`
}

func statusCommand(g *globals) *cobra.Command {
	output := ""
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show what the node is and holds",
		Example: `  buildnode status --output json`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := g.home()
			if err != nil {
				return err
			}
			status, err := readStatus(dir)
			if err != nil {
				return err
			}
			return status.print(cmd.OutOrStdout(), output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "form of the answer: table or json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func readStatus(dir home.Home) (Status, error) {
	s := Status{DataDir: dir.Dir(), Instances: []StatusInstance{}}
	if identity, err := dir.Identity(); err == nil {
		s.Joined, s.NodeID, s.Name, s.Host = true, identity.NodeID, identity.Name, identity.Host
		s.Controller, s.Registry = identity.Controller, identity.Registry
		lock, err := dir.Lock()
		if s.AgentRuns = err != nil; err == nil {
			lock.Release()
		}
	}
	entries, err := journal.Reader(dir.Instances())
	if err != nil {
		return s, err
	}
	for _, e := range entries {
		i := StatusInstance{ID: e.Order.InstanceID, Phase: string(e.State.Phase), Ending: e.State.Ending, Message: e.State.Message}
		if start := e.Order.Start; start != nil {
			i.Template, i.Tag = start.TemplateName, start.Tag
		}
		s.Instances = append(s.Instances, i)
	}
	return s, nil
}

func (s Status) print(w io.Writer, form string) error {
	switch form {
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(s)
	case "table":
		return s.table(w)
	default:
		return cli.Usage(fmt.Errorf("--output %s: must be table or json", form))
	}
}

func (s Status) table(w io.Writer) error {
	if !s.Joined {
		_, err := fmt.Fprintf(w, "not joined (data directory %s)\n", s.DataDir)
		return err
	}
	agent := "does not run"
	if s.AgentRuns {
		agent = "runs"
	}
	tab := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintf(tab, "node\t%s (%s)\ncontroller\t%s\nregistry\t%s\naddress\t%s\nagent\t%s\ndata\t%s\n",
		s.Name, s.NodeID, s.Controller, s.Registry, s.Host, agent, s.DataDir)
	if len(s.Instances) > 0 {
		_, _ = fmt.Fprint(tab, "\nINSTANCE\tPHASE\tTEMPLATE\tTAG\tMESSAGE\n")
	}
	for _, i := range s.Instances {
		phase := i.Phase
		if i.Ending {
			phase += ", ending"
		}
		_, _ = fmt.Fprintf(tab, "%s\t%s\t%s\t%s\t%s\n", i.ID, phase, i.Template, i.Tag, i.Message)
	}
	return tab.Flush()
}
