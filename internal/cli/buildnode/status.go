package buildnode

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/agent/connection"
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
agent only for its registry proxy.

For each URL of a controller it prints when the agent last had an answer, and the last error: when, what failed (dns,
dial, certificate, tls, timeout, interrupted, unauthorized, status, proof) and the remedy.`,
		Example: `  buildnode status
  buildnode status --output json | jq .instances
  buildnode status --output json | jq '.connections[].last_error'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	o.Output.Add(cmd)
	return cmd
}

// nodeStatus is the JSON output of status.
type nodeStatus struct {
	Joined      bool               `json:"joined"`
	NodeID      string             `json:"node_id,omitempty"`
	Name        string             `json:"name,omitempty"`
	Controller  string             `json:"controller,omitempty"`
	Registry    string             `json:"registry,omitempty"`
	Host        string             `json:"host,omitempty"`
	Groups      []string           `json:"groups,omitempty"`
	DataDir     string             `json:"data_dir"`
	AgentRuns   bool               `json:"agent_runs"`
	LastError   string             `json:"trouble,omitempty"`        // why the agent stopped
	ProxySocket string             `json:"registry_proxy,omitempty"` // socket of the agent's registry proxy
	KeyID       string             `json:"key_id,omitempty"`         // of the API key that it joined with
	DiskFree    int64              `json:"disk_free"`                // bytes
	DiskReserve int64              `json:"reserve"`                  // bytes
	Templates   []api.NodeTemplate `json:"templates"`
	Instances   []nodeInstance     `json:"instances"`

	RegistryMirror string                  `json:"registry_mirror,omitempty"` // URL for pulls; of the agent's last start
	Connections    []connection.Controller `json:"connections,omitempty"`     // by controller URL, the last used first
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
	at, err := o.openDataDir()
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
	s := nodeStatus{DataDir: at.Path(), Templates: []api.NodeTemplate{}, Instances: []nodeInstance{}}
	id, err := at.Identity()
	if farm.CodeOf(err) == farm.CodeNotFound {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	s.Joined, s.NodeID, s.Name, s.Groups, s.Host = true, id.NodeID, id.Name, id.Groups, joinHost(id)
	s.Controller, s.Registry, s.AgentRuns = id.ControllerURL, id.RegistryAddress, at.IsLocked()
	if s.LastError = at.LastError(); s.AgentRuns {
		s.LastError = ""
	}
	if id.APIKey != nil {
		s.KeyID = id.APIKey.KeyID
	}
	if about, err := askProxy(ctx, at); err == nil && about.RegistryAddress != "" {
		s.ProxySocket = at.SocketDir()
	}
	connections, err := connection.Read(at)
	if err != nil {
		return s, err
	}
	s.Connections, s.RegistryMirror = connections.Controllers, connections.RegistryMirror
	free, total, err := host.DiskSpace(at.Path())
	if err != nil {
		return s, err
	}
	s.DiskFree, s.DiskReserve = free, id.DiskReserve.Of(total)
	if s.Templates, err = cache.Inspect(at.TemplateDir()); err != nil {
		return s, err
	}
	s.Instances, err = nodeInstances(at)
	return s, err
}

func nodeInstances(at datadir.Dir) ([]nodeInstance, error) {
	entries, err := journal.ReadEntries(at.JournalDir())
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
	if s.RegistryMirror != "" {
		g.Row("registry mirror", cli.EscapeName(s.RegistryMirror))
	}
	for _, c := range s.Connections {
		connectionRows(g, c)
	}
	g.Row("address", s.Host)
	g.Row("groups", strings.Join(s.Groups, ", "))
	g.Row("agent", agent)
	if s.LastError != "" {
		g.Row("trouble", cli.EscapeName(s.LastError))
	}
	if s.ProxySocket != "" {
		g.Row("registry proxy", "available at "+s.ProxySocket)
	}
	if s.KeyID != "" {
		g.Row("joined with", "API key "+cli.EscapeName(s.KeyID))
	}
	g.Row("data", s.DataDir)
	g.Row("disk", bytesize.Format(s.DiskFree)+" free, "+bytesize.Format(s.DiskReserve)+" reserved")
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

// connectionRows prints the connection to one controller URL. An error that a success followed is shown as past.
func connectionRows(g *cli.Grid, c connection.Controller) {
	state := "works"
	if c.Failing() {
		state = "fails"
	}
	last := "never"
	if !c.LastSuccess.IsZero() {
		last = c.LastSuccess.Local().Format(time.RFC3339)
	}
	g.Row("connection", cli.EscapeName(c.URL)+" "+state+", last success: "+last)
	if e := c.LastError; e != nil {
		g.Row("last error", e.Time.Local().Format(time.RFC3339)+" "+string(e.Kind)+": "+cli.EscapeName(e.Text))
		if c.Failing() {
			g.Row("remedy", cli.EscapeName(e.Remedy))
		}
	}
}
