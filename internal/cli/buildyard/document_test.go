package buildyard

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/tools/referencetest"
)

// TestReferenceOfCommands: the page of the program is the help of its commands.
func TestReferenceOfCommands(t *testing.T) {
	referencetest.Page(t, "cli-buildyard.md", cli.Reference(newCommand(Streams{}), referencetest.Notice))
}

// TestEveryCommandHelps: each command that is not hidden has a description and an example, and related commands have
// the same groups.
func TestEveryCommandHelps(t *testing.T) {
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		if cmd.Hidden {
			return
		}
		if cmd.Short == "" || cmd.Long == "" || cmd.Example == "" && cmd.HasParent() {
			t.Errorf("%s has no short text, no long one or no example", cmd.CommandPath())
		}
		for line := range strings.SplitSeq(cmd.Long+"\n"+cmd.Example, "\n") {
			if len(line) > 120 {
				t.Errorf("%s: a line of help with %d columns: %s", cmd.CommandPath(), len(line), line)
			}
		}
		for _, child := range cmd.Commands() {
			look(child)
		}
	}
	look(newCommand(Streams{}))
}
