package buildnode

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/hostcheck"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/clienttls"
	"github.com/buildyard/buildyard/internal/doctor"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/obs"
)

// DoctorOptions are the options of doctor.
type DoctorOptions struct {
	*globals
	Output cli.Format
}

func doctorCommand(g *globals) *cobra.Command {
	o := DoctorOptions{globals: g}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this node and name remedies",
		Long: `doctor checks this node and its way to the cloud: the agent, hypervisor and accelerator, disk, clock, the ports
of controller and registry, certificates and versions; on a Mac also what guests need of the session. It
prints one line for each check with its result (ok, warning or failed) and a remedy. Run it as the user of
the agent.

The exit code is 1 when a check failed; warnings are not failures.`,
		Example: `  sudo buildnode doctor
  buildnode doctor -o json | jq '.checks[] | select(.outcome != "ok")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			checks, err := o.checks(cmd.Context())
			if err != nil {
				return err
			}
			return cli.PrintChecks(o.Out, o.Output, checks)
		},
	}
	o.Output.Add(cmd)
	return cmd
}

// checks carries out the checks.
func (o *DoctorOptions) checks(ctx context.Context) ([]doctor.Result, error) {
	at, err := o.openDataDir()
	if err != nil {
		return nil, err
	}
	identity, err := at.Identity()
	if err != nil {
		f := doctor.Finding{Outcome: doctor.Failed, Detail: err.Error(), Remedy: "run this as the user of the agent"}
		if farm.CodeOf(err) == farm.CodeNotFound {
			f.Detail, f.Remedy = "this machine is not a node", "buildnode join URL --token-file FILE"
		}
		list := append([]doctor.Check{fixed("membership", f)}, machineChecks()...)
		return append(doctor.Run(ctx, list), o.hostResults(ctx)...), nil
	}

	list := []doctor.Check{
		fixed("membership", doctor.Finding{Outcome: doctor.OK, Detail: identity.Name + " (" + identity.NodeID + ")"}),
		{Name: "agent", Find: func(context.Context) doctor.Finding { return findAgent(at) }},
	}
	list = append(list, machineChecks()...)
	list = append(list, doctor.WriteLatency("store latency", at.Path()))
	list = append(list, cloudChecks(identity)...)
	return append(doctor.Run(ctx, list), o.hostResults(ctx)...), nil
}

// fixed returns a check whose finding is known.
func fixed(name string, f doctor.Finding) doctor.Check {
	return doctor.Check{Name: name, Find: func(context.Context) doctor.Finding { return f }}
}

// findAgent checks whether the agent runs.
func findAgent(at datadir.Dir) doctor.Finding {
	if at.IsLocked() {
		return doctor.Finding{Outcome: doctor.OK, Detail: "runs"}
	}
	return doctor.Finding{
		Outcome: doctor.Failed, Detail: cmp.Or(at.LastError(), "does not run"),
		Remedy: "start it: buildnode service install, or buildnode run; its log: buildnode service logs",
	}
}

// hypervisors are the programs of hypervisors on this machine, by its architecture.
var hypervisors = map[string][]string{
	"amd64": {"qemu-system-x86_64", "tart", "anka"}, "arm64": {"qemu-system-aarch64", "tart", "anka"},
}

// machineChecks returns the checks of the machine that need no cloud.
func machineChecks() []doctor.Check {
	return []doctor.Check{doctor.Hypervisor(hypervisors[runtime.GOARCH]...), doctor.Accelerator(runtime.GOOS)}
}

// cloudChecks returns the checks of the way from this node to its cloud.
func cloudChecks(identity datadir.Identity) []doctor.Check {
	trust, err := clienttls.Config(clienttls.Options(identity.TLS))
	if err != nil {
		return []doctor.Check{fixed("TLS", doctor.Finding{
			Outcome: doctor.Failed, Detail: err.Error(), Remedy: "correct the file, or join again with other files",
		})}
	}
	controller := doctor.Service{
		Name: "controller", URL: identity.ControllerURL, Setting: "the URL of buildnode join", TLS: trust,
	}
	services := []doctor.Service{controller}
	list := []doctor.Check{
		doctor.Reachable(controller), doctor.Certificate(controller), doctor.Clock(controller),
		{Name: "version", Find: func(ctx context.Context) doctor.Finding { return findVersion(ctx, controller) }},
	}
	if identity.RegistryAddress != "" {
		registry := doctor.Service{
			Name: "registry", URL: identity.RegistryAddress, Setting: "SVC_REGISTRY of the controller", TLS: trust,
		}
		services = append(services, registry)
		list = append(list, doctor.Reachable(registry), doctor.Certificate(registry))
	}
	if file := identity.TLS.CertFile; file != "" {
		list = append(list, doctor.CertificateFile("client certificate", file, "--client-cert of buildnode join"))
	}
	return append([]doctor.Check{doctor.Ports(services...)}, list...)
}

// findVersion compares this program with the controller. A controller with authentication names its version to
// clients only.
func findVersion(ctx context.Context, controller doctor.Service) doctor.Finding {
	own := obs.FullVersion()
	c, err := client.NewController(controller.URL, client.Options{
		UserAgent: "buildnode", Transport: newHTTPTransport(controller.TLS),
	})
	if err != nil {
		return doctor.Finding{Outcome: doctor.Failed, Detail: err.Error(), Remedy: "check " + controller.Setting}
	}
	st, err := c.Status(ctx)
	switch {
	case errors.Is(err, client.ErrUnauthenticated), errors.Is(err, client.ErrForbidden):
		return doctor.Finding{
			Outcome: doctor.OK, Detail: "this program is " + own + "; compare it by: buildyard node list -o wide",
		}
	case err != nil:
		return doctor.Finding{
			Outcome: doctor.Warning, Detail: "not compared: " + err.Error(), Remedy: "see the check of the controller",
		}
	case st.Version != own:
		return doctor.Finding{
			Outcome: doctor.Warning, Detail: "this program is " + own + ", the controller " + st.Version,
			Remedy: "update the agent, docs/upgrade.md; one release of difference works",
		}
	}
	return doctor.Finding{Outcome: doctor.OK, Detail: "this program and the controller are " + own}
}

// hostResults returns the results of the checks of the host.
func (o *DoctorOptions) hostResults(ctx context.Context) []doctor.Result {
	outcomes := map[hostcheck.Outcome]doctor.Outcome{
		hostcheck.OK: doctor.OK, hostcheck.Problem: doctor.Failed, hostcheck.Unknown: doctor.Warning,
	}
	var results []doctor.Result
	for _, r := range (&ServiceOptions{globals: o.globals}).checkHost(ctx) {
		results = append(results, doctor.Result{
			Name: r.Name, Outcome: outcomes[r.Outcome], Detail: r.Detail, Remedy: r.Remedy,
		})
	}
	return results
}

// newHTTPTransport returns the transport of one call.
func newHTTPTransport(trust *tls.Config) *http.Transport {
	return &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: trust.Clone(), DisableKeepAlives: true}
}
