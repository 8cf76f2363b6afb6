package diagnose

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"sync"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/host"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/cli/cloud"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/doctor"
)

// doctorOptions are the options of doctor.
type doctorOptions struct {
	cloud.Command
	dataDir string
}

func doctorCommand(s cli.Streams) *cobra.Command {
	o := &doctorOptions{Command: cloud.Command{Streams: s}}
	cmd := o.Add(&cobra.Command{
		Use: "doctor", Short: "Check the cloud and name remedies", Args: cobra.NoArgs, GroupID: cloud.CommandGroup,
		Long: `doctor checks controller, registry and nodes from this machine: addresses and ports, clocks, certificates,
versions, alarms, nodes and the queue; and on the controller's machine the disk of its data directory.
It prints one line for each check with its result (ok, warning or failed) and a remedy.

The exit code is 1 when a check failed; warnings are not failures.`,
		Example: `  buildyard doctor
  buildyard doctor -o json | jq '.checks[] | select(.outcome != "ok")'
  sudo buildyard doctor --data-dir /var/lib/buildyard/controller`,
	}, func(cmd *cobra.Command, _ []string) error {
		checks, err := o.checks(cmd.Context())
		if err != nil {
			return err
		}
		return cli.PrintChecks(o.Out, o.Output, checks)
	})
	cmd.Flags().StringVar(&o.dataDir, "data-dir", os.Getenv(config.DataDir),
		"data directory of a controller on this machine (default: no checks of its disk)")
	cmd.Flags().Lookup("data-dir").DefValue = ""
	return cmd
}

// checks carries out the checks.
func (o *doctorOptions) checks(ctx context.Context) ([]doctor.Result, error) {
	trust, err := o.Options.TLS.Config()
	if err != nil {
		return nil, cli.Usage(err)
	}
	controller := doctor.Service{
		Name: "controller", URL: o.API.Address(), Setting: "--controller or " + config.Controller, TLS: trust,
	}
	c := &cloudChecks{api: o.API, status: sync.OnceValues(func() (api.ControllerStatus, error) {
		return o.API.Status(ctx)
	})}
	list := []doctor.Check{
		doctor.Reachable(controller), doctor.Certificate(controller), doctor.Clock(controller),
		{Name: "api", Find: c.findAccess},
		{Name: "registry of the controller", Find: c.findRegistry},
	}
	list = append(list, registryChecks(c, controller, trust)...)
	list = append(list,
		doctor.Check{Name: "version", Find: c.findVersion}, doctor.Check{Name: "license", Find: c.findLicense},
		doctor.Check{Name: "nodes", Find: c.findNodes}, doctor.Check{Name: "agent versions", Find: c.findAgents},
		doctor.Check{Name: "node clocks", Find: c.findNodeClocks}, doctor.Check{Name: "queue", Find: c.findQueue})
	if file := o.Options.TLS.CertFile; file != "" {
		list = append(list, doctor.CertificateFile("client certificate", file, "--client-cert or "+config.ClientCert))
	}
	if o.dataDir != "" {
		list = append(list, doctor.DiskFree("data directory", o.dataDir, 0, host.DiskSpace),
			doctor.WriteLatency("store latency", o.dataDir))
	}
	results := doctor.Run(ctx, list)
	return append(results, alarmResults(c)...), nil
}

// registryChecks returns the checks of the registry from this machine; of the controller's port alone when the
// registry's address is not known.
func registryChecks(c *cloudChecks, controller doctor.Service, trust *tls.Config) []doctor.Check {
	st, err := c.status()
	if err != nil || st.RegistryAddress == "" {
		return []doctor.Check{doctor.Ports(controller)}
	}
	registry := doctor.Service{
		Name: "registry", URL: st.RegistryAddress, Setting: "SVC_REGISTRY of the controller", TLS: trust,
	}
	return []doctor.Check{doctor.Ports(controller, registry), doctor.Reachable(registry), doctor.Certificate(registry)}
}

// alarmResults returns the active alarms as failed checks.
func alarmResults(c *cloudChecks) []doctor.Result {
	st, err := c.status()
	if err != nil {
		return nil // the check of the API has failed
	}
	if len(st.ActiveAlarms) == 0 {
		return []doctor.Result{{Name: "alarms", Outcome: doctor.OK, Detail: "none"}}
	}
	results := make([]doctor.Result, len(st.ActiveAlarms))
	for i, a := range st.ActiveAlarms {
		results[i] = doctor.Result{
			Name: "alarm " + a.Name, Outcome: doctor.Failed, Detail: a.Message, Remedy: a.Action,
		}
		if a.Name == api.AlarmNoAuth {
			results[i].Outcome = doctor.Warning
		}
		if results[i].Remedy == "" {
			results[i].Remedy = fmt.Sprintf("docs/monitoring.md, alarm %s", a.Name)
		}
	}
	return results
}
