package imagescan

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"sync"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/obs"
)

// Streams are where a command listens and speaks: the report goes to Out, the rest to Err.
type Streams = cli.Streams

// globals are what every command gets.
type globals struct {
	Streams
	config      string
	licenseFile string // of the flag; "" when it was not given
	authority   string
	dbPath      string // of the flag
	quiet       bool

	read func() (settings, error) // once
}

// settings returns what the configuration file says.
func (g *globals) settings() (settings, error) { return g.read() }

// say tells the user something that is no part of a report, in one line: a name with line ends
// must not make lines of its own.
func (g *globals) say(format string, args ...any) {
	if !g.quiet {
		_, _ = fmt.Fprintln(g.Err, cli.Plain(fmt.Sprintf(format, args...)))
	}
}

// memory is from when on the program collects more often, in bytes: what hostile files make
// their readers allocate is mostly garbage. GOMEMLIMIT says it otherwise.
const memory = 2 << 30

// Main runs the program and gives its exit code.
func Main(ctx context.Context, args []string, streams Streams) int {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memory)
	}
	cmd := newCommand(streams)
	cmd.SetArgs(args)
	return cli.RunAs(ctx, cmd, "Error")
}

// newCommand makes the program's command tree.
func newCommand(streams Streams) *cobra.Command {
	g := &globals{Streams: streams}
	root := scanCommand(g)
	g.read = sync.OnceValues(func() (settings, error) { return readSettings(root.Context(), g.config) })
	root.Version = obs.FullVersion()
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	fs := root.PersistentFlags()
	fs.StringVarP(&g.config, "config", "c", "", "config file")
	fs.StringVarP(&g.licenseFile, "license-file", "l", "", "license file path (default scanner.lic)")
	fs.BoolVarP(&g.quiet, "quiet", "q", false, "suppress all console output but a report in JSON or another format for programs")
	fs.StringVar(&g.authority, "license-authority", "", "file with the public keys to believe (default: authority.pub in /etc/buildyard and in the user's configuration folder)")
	fs.StringVar(&g.dbPath, "db-path", "", "vulnerability database (default: in the user's cache folder)")
	root.AddCommand(licenseCommand(g), cli.VersionCommand(g.Out, obs.FullVersion()), dbCommand(g), explainCommand(g), diffCommand(g))
	return root
}
