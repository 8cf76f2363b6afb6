package buildnode

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/tools/referencetest"
)

// TestReferenceOfCommands: the page of the program is the help of its commands.
func TestReferenceOfCommands(t *testing.T) {
	referencetest.Page(t, "cli-buildnode.md", cli.Reference(newCommand(Streams{}), referencetest.Notice))
}

// TestReferenceOfSettings: the page of the settings has those of the node agent.
func TestReferenceOfSettings(t *testing.T) {
	var b strings.Builder
	b.WriteString("The agent has no configuration file. `buildnode join` stores its settings in the data directory; " +
		"`buildnode run` takes its own at each start.\n\n")
	b.WriteString("| command | flag | type | default | meaning |\n|---|---|---|---|---|\n")
	root := newCommand(Streams{})
	for _, name := range []string{"join", "run"} {
		cmd, _, err := root.Find([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden {
				return
			}
			fmt.Fprintf(&b, "| `%s` | `--%s` | %s | %s | %s |\n", name, f.Name, f.Value.Type(), defaultOf(f),
				referencetest.Cell(f.Usage))
		})
	}
	referencetest.Section(t, "settings.md", "Node agent", b.String())
}

// defaultOf formats the default of a flag that is not empty.
func defaultOf(f *pflag.Flag) string {
	switch f.DefValue {
	case "", "0", "[]":
		return ""
	}
	return "`" + f.DefValue + "`"
}
