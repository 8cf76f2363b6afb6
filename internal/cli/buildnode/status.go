package buildnode

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/host"
	"github.com/buildyard/buildyard/internal/agent/journal"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/farm"
)

// StatusOptions are the options of status.
type StatusOptions struct {
	*globals
	Output cli.Format
}

func statusCommand(g *globals) *cobra.Command {
	o := StatusOptions{globals: g}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show node status",
		Long: `status prints the state of the node from its data directory. It does not call the controller; it calls the
agent only for its registry proxy.`,
		Example: `  buildnode status
  buildnode status --output json | jq .instances`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	o.Output.Add(cmd)
	return cmd
}

// nodeStatus is the JSON output of status.
type nodeStatus struct {
	Joined     bool               `json:"joined"`
	NodeID     string             `json:"node_id,omitempty"`
	Name       string             `json:"name,omitempty"`
	Controller string             `json:"controller,omitempty"`
	Registry   string             `json:"registry,omitempty"`
	Host       string             `json:"host,omitempty"`
	Groups     []string           `json:"groups,omitempty"`
	DataDir    string             `json:"data_dir"`
	AgentRuns  bool               `json:"agent_runs"`
	Trouble    string             `json:"trouble,omitempty"`        // why the agent stopped
	Proxy      string             `json:"registry_proxy,omitempty"` // socket of the agent's registry proxy
	KeyID      string             `json:"key_id,omitempty"`         // of the API key that it joined with
	DiskFree   int64              `json:"disk_free"`                // bytes
	Reserve    int64              `json:"reserve"`                  // bytes
	Templates  []api.NodeTemplate `json:"templates"`
	Instances  []nodeInstance     `json:"instances"`
}

type nodeInstance struct {
	ID       string    `json:"id"`
	Phase    api.Phase `json:"phase"`
	Ending   bool      `json:"ending,omitempty"`
	Template string    `json:"template,omitempty"`
	Tag      string    `json:"tag,omitempty"`
	IP       string    `json:"ip,omitempty"`
	Message  string    `json:"message,omitempty"`
}

func (o *StatusOptions) run(ctx context.Context) error {
	at, err := o.home()
	if err != nil {
		return err
	}
	s, err := readStatus(ctx, at)
	if err != nil {
		return err
	}
	return o.Output.Write(o.Out, s, s.table)
}

func readStatus(ctx context.Context, at datadir.Dir) (nodeStatus, error) {
	s := nodeStatus{DataDir: at.Dir(), Templates: []api.NodeTemplate{}, Instances: []nodeInstance{}}
	id, err := at.Identity()
	if farm.CodeOf(err) == farm.CodeNotFound {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	s.Joined, s.NodeID, s.Name, s.Groups, s.Host = true, id.NodeID, id.Name, id.Groups, hostOf(id)
	s.Controller, s.Registry, s.AgentRuns = id.Controller, id.Registry, at.Locked()
	if s.Trouble = at.LastError(); s.AgentRuns {
		s.Trouble = ""
	}
	if id.Key != nil {
		s.KeyID = id.Key.ID
	}
	if about, err := askProxy(ctx, at); err == nil && about.Registry != "" {
		s.Proxy = at.Sockets()
	}
	free, total, err := host.Disk(at.Dir())
	if err != nil {
		return s, err
	}
	s.DiskFree, s.Reserve = free, id.Reserve.Of(total)
	if s.Templates, err = cache.Inspect(at.Templates()); err != nil {
		return s, err
	}
	s.Instances, err = nodeInstances(at)
	return s, err
}

func nodeInstances(at datadir.Dir) ([]nodeInstance, error) {
	entries, err := journal.Reader(at.Instances())
	if err != nil {
		return nil, err
	}
	list := make([]nodeInstance, len(entries))
	for i, e := range entries {
		list[i] = nodeInstance{
			ID: e.Order.InstanceID, Phase: e.State.Phase, Ending: e.State.Ending,
			Message: e.State.Message,
		}
		if start := e.Order.Start; start != nil {
			list[i].Template, list[i].Tag = start.TemplateName, start.Tag
		}
		if e.State.VM != nil {
			list[i].IP = e.State.VM.IP
		}
	}
	return list, nil
}

func (s nodeStatus) table(g *cli.Grid) {
	if !s.Joined {
		g.Row("not joined (data directory " + s.DataDir + ")")
		return
	}
	agent := "not running"
	if s.AgentRuns {
		agent = "runs"
	}
	g.Row("node", s.Name+" ("+s.NodeID+")")
	g.Row("controller", s.Controller)
	g.Row("registry", s.Registry)
	g.Row("address", s.Host)
	g.Row("groups", strings.Join(s.Groups, ", "))
	g.Row("agent", agent)
	if s.Trouble != "" {
		g.Row("trouble", cli.Plain(s.Trouble))
	}
	if s.Proxy != "" {
		g.Row("registry proxy", "available at "+s.Proxy)
	}
	if s.KeyID != "" {
		g.Row("joined with", "API key "+cli.Plain(s.KeyID))
	}
	g.Row("data", s.DataDir)
	g.Row("disk", bytesize.Format(s.DiskFree)+" free, "+bytesize.Format(s.Reserve)+" reserved")
	for _, t := range s.Templates {
		g.Row("template", t.Name+" "+t.Tag+", "+bytesize.Format(t.Size))
	}
	for _, i := range s.Instances {
		phase := string(i.Phase)
		if i.Ending {
			phase += ", ending"
		}
		g.Row("instance", i.ID+" "+phase, i.Template+" "+i.Tag, i.IP, i.Message)
	}
}
