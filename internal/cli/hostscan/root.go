package hostscan

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/obs"
)

// Streams are the input and output of a command: the result goes to Out, the rest to Err.
type Streams = cli.Streams

// defaultPort is the default port of the service.
const defaultPort = 8081

// globals are the flags and streams of every command.
type globals struct {
	Streams
	port      int
	portGiven bool
	url       string // of the service; "": this machine at port
	tokenFile string
}

// printMessage prints a message to the user that is not part of the result.
func (g *globals) printMessage(format string, args ...any) {
	_, _ = fmt.Fprintln(g.Err, cli.EscapeName(fmt.Sprintf(format, args...)))
}

// Main runs the program and returns its exit code.
func Main(ctx context.Context, args []string, streams Streams) int {
	return cli.RunAs(ctx, newCommand(streams), args, "Error")
}

// newCommand creates the program's command tree.
func newCommand(streams Streams) *cobra.Command {
	g := &globals{Streams: streams}
	root := cli.Family(&cobra.Command{
		Use:   "hostscan",
		Short: "Scan a host for vulnerable packages",
		Long: `hostscan is a service that inventories the packages on this host and their known vulnerabilities, and the
commands that control it. It scans everything once, or in real time: each newly installed package
within seconds, at a low cost.

Recommended use: start the service, run a full scan, read the report, reset the report, and start
real-time scanning. CI jobs then check the report.

` + cli.ExitCodes + `
Exit code 8: --fail-on matched a finding.`,
		Example: `  sudo hostscan serve &
  hostscan full-scan
  hostscan report vulnerabilities --sort score
  hostscan report reset
  hostscan real-time-scan start
  hostscan mark job-17
  hostscan report --since-job job-17 --fail-on critical,kev`,
		Version: obs.FullVersion(),
	},
		serveCommand(g), fullScanCommand(g), realTimeCommand(g), statusCommand(g), markCommand(g), reportCommand(g),
		licenseCommand(g), cli.VersionCommand("hostscan", g.Out))
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	fs := root.PersistentFlags()
	fs.IntVarP(&g.port, "port", "p", defaultPort, "port of the service on this machine")
	fs.StringVar(&g.url, "url", "", "URL of a remote service, such as http://build-7:8081")
	fs.StringVar(&g.tokenFile, "token-file", "", "file with the token of the service")
	root.MarkFlagsMutuallyExclusive("port", "url")
	cli.AcceptOldFlags(root, map[string]string{"display-columns": "columns"}) // the name in the specification
	return root
}

// noLicense is the output of every license command.
const noLicense = "No license is needed: the host scanner works without one."

func licenseCommand(g *globals) *cobra.Command {
	tell := func(*cobra.Command, []string) error {
		_, err := fmt.Fprintln(g.Out, noLicense)
		return err
	}
	return cli.Family(&cobra.Command{
		Use:     "license",
		Short:   "Show that no license is needed",
		Example: `  hostscan license show`,
	},
		&cobra.Command{Use: "show", Short: "Show that no license is needed", Args: cobra.NoArgs, RunE: tell},
		&cobra.Command{
			Use: "activate [LICENSE-KEY]", Short: "Do nothing: no license is needed",
			Args: cobra.MaximumNArgs(1), RunE: tell,
		},
	)
}
