package buildnode

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/buildyard/buildyard/internal/agent/home"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/obs"
)

// Streams are where a command speaks: the answer goes to Out, the rest to Err.
type Streams struct {
	Out, Err io.Writer
}

// globals are the options of every command.
type globals struct {
	dataDir  string
	logLevel string
}

func (g *globals) home() (home.Home, error) { return home.At(g.dataDir) }

// Main runs the program and gives its exit code.
func Main(ctx context.Context, args []string, streams Streams) int {
	cmd := newCommand(streams)
	cmd.SetArgs(args)
	return cli.Run(ctx, cmd)
}

// newCommand makes the program's command tree.
func newCommand(streams Streams) *cobra.Command {
	g := &globals{}
	root := &cobra.Command{
		Use:   "buildnode",
		Short: "Make this machine a node of a build cloud and run its virtual machines",
		Long: `buildnode runs a build node.

  buildnode join http://controller:8090 --token ...   become a node
  buildnode run                                       run the agent
  buildnode status                                    what the node is and holds

Everything is kept in one data directory (--data-dir).

Exit codes: 0 done, 1 failed, 2 wrong usage.`,
		Version: obs.FullVersion(),
	}
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	fs := root.PersistentFlags()
	fs.StringVar(&g.dataDir, "data-dir", home.Default(), "directory of everything that the node keeps")
	fs.StringVar(&g.logLevel, "log-level", "info", "least level that is logged: debug, info, warn or error")
	root.AddCommand(joinCommand(g), disjoinCommand(g), runCommand(g), statusCommand(g))
	return root
}

// addTLS puts the options of a TLS client on a command.
func addTLS(fs *pflag.FlagSet, o *home.TLS) {
	fs.BoolVar(&o.Insecure, "insecure", false, "do not check the server's certificate")
	fs.StringVar(&o.Cert, "cert", "", "PEM file of a client certificate")
	fs.StringVar(&o.Key, "key", "", "PEM file of its key")
	fs.StringVar(&o.CA, "cacert", "", "PEM file of the authorities to trust")
}

// keyOptions are the options of a user key. Controllers and registries of this
// version have no user keys, so that giving one is refused and never ignored.
type keyOptions struct {
	id, text, file string
}

func (k *keyOptions) add(fs *pflag.FlagSet) {
	fs.StringVar(&k.id, "api-key-id", "", "id of a user key")
	fs.StringVar(&k.text, "api-key-string", "", "private key of that user key")
	fs.StringVar(&k.file, "api-key-file", "", "file with that private key")
}

func (k *keyOptions) refuse() error {
	if k.id == "" && k.text == "" && k.file == "" {
		return nil
	}
	return cli.Usage(errors.New("user keys are not offered by this version's controller: join with --token"))
}
