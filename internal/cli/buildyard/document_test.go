package buildyard

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
)

var update = flag.Bool("update", false, "write docs/cli.md anew")

// page is where the commands are documented.
const page = "../../../docs/cli.md"

// TestCommandsAreDocumented: docs/cli.md is the help of the commands.
func TestCommandsAreDocumented(t *testing.T) {
	want := cli.Document(newCommand(Streams{}))
	if *update {
		if err := os.WriteFile(page, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/cli.md is not what the commands say; run go generate ./internal/cli/buildyard")
	}
}

// TestEveryCommandHelps: each command has a description and an example, and related commands have
// the same groups.
func TestEveryCommandHelps(t *testing.T) {
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
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
