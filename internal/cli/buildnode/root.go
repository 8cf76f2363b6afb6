package buildnode

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/obs"
)

// Streams are the input and output of a command: the result goes to Out, the rest to Err.
type Streams = cli.Streams

// globals are the options and streams of every command.
type globals struct {
	Streams
	dataDir  string
	logLevel string
}

func (g *globals) openDataDir() (datadir.Dir, error) { return datadir.At(g.dataDir) }

// Main runs the program and returns its exit code.
func Main(ctx context.Context, args []string, streams Streams) int {
	return cli.Run(ctx, newCommand(streams), args)
}

// newCommand returns the program's command tree.
func newCommand(streams Streams) *cobra.Command {
	g := &globals{Streams: streams}
	root := &cobra.Command{
		Use:   "buildnode",
		Short: "Run a node of a build cloud",
		Long: `buildnode makes this machine a node of a build cloud and manages its templates.

  buildnode join http://controller:8090 --token-file token   join this machine as a node
  buildnode run                                              run the agent
  buildnode service install                                  run it as a service
  buildnode status                                           show the node and its cache

Templates are created from disk images and pushed to a registry:

  buildnode vm import debian.qcow2 --name debian
  buildnode registry add main http://registry:8089
  buildnode registry push debian -t v1

All data is in one data directory (--data-dir).

Exit codes: 0 success, 1 failure, 2 usage error.`,
		Version: obs.FullVersion(),
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	fs := root.PersistentFlags()
	fs.StringVar(&g.dataDir, "data-dir", datadir.DefaultPath(), "data directory of the node")
	fs.StringVar(&g.logLevel, "log-level", "info", "minimum log level: debug, info, warn or error")
	root.AddCommand(
		joinCommand(g), disjoinCommand(g), runCommand(g), statusCommand(g), doctorCommand(g),
		supportBundleCommand(g), simCommand(g), loadCommand(g), vmCommand(g), registryCommand(g), usbCommand(g),
		forwardCommand(g), FillCommand(&g.logLevel), serviceCommand(g),
		cli.VersionCommand("buildnode", g.Out),
	)
	cli.AcceptOldFlags(root, oldFlags)
	return root
}

// oldFlags are the names of flags in the specification, which stay accepted. The flags have the names of the
// program buildyard.
var oldFlags = map[string]string{
	"cacert": "ca-cert", "cert": "client-cert", "key": "client-key", "insecure": "skip-tls-verification",
}

// addTLS adds the options of a TLS client to a command; whose is the name of the server.
func addTLS(fs *pflag.FlagSet, o *datadir.TLSFiles, whose string) {
	fs.BoolVar(&o.SkipVerify, "skip-tls-verification", false,
		"skip verification of the "+whose+"'s certificate (testing only)")
	fs.StringVar(&o.CertFile, "client-cert", "", "client certificate (PEM)")
	fs.StringVar(&o.KeyFile, "client-key", "", "private key of the client certificate (PEM)")
	fs.StringVar(&o.CAFile, "ca-cert", "", "PEM file with the CAs to trust (default: system CAs)")
	cli.MarkGlobal(fs, "skip-tls-verification", "client-cert", "client-key", "ca-cert")
}
