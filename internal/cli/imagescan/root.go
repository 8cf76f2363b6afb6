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

// Streams are the input and output of a command: the report goes to Out, the rest to Err.
type Streams = cli.Streams

// globals are the flags and streams of every command.
type globals struct {
	Streams
	configPath    string
	licenseFile   string // of the flag; "": not set
	authorityFile string
	dbPath        string // of the flag
	quiet         bool

	readSettingsOnce func() (settings, error) // once
}

// settings returns the settings in the configuration file.
func (g *globals) settings() (settings, error) { return g.readSettingsOnce() }

// printMessage prints a message that is not part of a report, in one line: line breaks in names are
// escaped.
func (g *globals) printMessage(format string, args ...any) {
	if !g.quiet {
		_, _ = fmt.Fprintln(g.Err, cli.EscapeName(fmt.Sprintf(format, args...)))
	}
}

// gcLimitBytes is the size in bytes from which the program collects more often: most allocations by
// readers of hostile files are garbage. GOMEMLIMIT overrides it.
const gcLimitBytes = 2 << 30

// Main runs the program and returns its exit code.
func Main(ctx context.Context, args []string, streams Streams) int {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(gcLimitBytes)
	}
	return cli.RunAs(ctx, newCommand(streams), args, "Error")
}

// newCommand creates the program's command tree.
func newCommand(streams Streams) *cobra.Command {
	g := &globals{Streams: streams}
	root := scanCommand(g)
	g.readSettingsOnce = sync.OnceValues(func() (settings, error) { return readSettings(root.Context(), g.configPath) })
	root.Version = obs.FullVersion()
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	fs := root.PersistentFlags()
	fs.StringVarP(&g.configPath, "config", "c", "", "configuration file")
	fs.StringVarP(&g.licenseFile, "license-file", "l", "", "license file (default scanner.lic)")
	fs.BoolVarP(&g.quiet, "quiet", "q", false,
		"suppress messages and tables; only machine-readable reports are written")
	fs.StringVar(&g.authorityFile, "license-authority", "",
		"file with the trusted public keys (default: authority.pub in /etc/buildyard and in the user's configuration "+
			"directory)")
	fs.StringVar(&g.dbPath, "db-path",
		"", "path of the vulnerability database (default: in the user's cache directory)")
	root.AddCommand(licenseCommand(g), cli.VersionCommand("imagescan", g.Out), dbCommand(g), explainCommand(g),
		diffCommand(g))
	return root
}
