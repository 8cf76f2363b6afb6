package imagescan

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/buildyard/buildyard/internal/scan/vulndb/mirror"
)

// commandsIn returns the commands of the program in all texts of a YAML document.
func commandsIn(n *yaml.Node) []string {
	var out []string
	for line := range strings.Lines(n.Value) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "imagescan "); ok && n.Kind == yaml.ScalarNode {
			rest, _, _ = strings.Cut(rest, "||")
			out = append(out, strings.ReplaceAll(rest, `"`, ""))
		}
	}
	for _, c := range n.Content {
		out = append(out, commandsIn(c)...)
	}
	return out
}

// TestWorkflows: the workflow files are YAML, and the program has their commands and flags.
func TestWorkflows(t *testing.T) {
	for _, name := range []string{"github-actions.yml", "gitlab-ci.yml"} {
		b, err := os.ReadFile(filepath.Join("../../../packaging/vulndb", name))
		if err != nil {
			t.Fatal(err)
		}
		var doc yaml.Node
		if err := yaml.Unmarshal(b, &doc); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		commands := commandsIn(&doc)
		if len(commands) != 2 {
			t.Errorf("%s has the commands %q", name, commands)
		}
		for _, c := range commands {
			args := strings.Fields(c)
			cmd, rest, err := newCommand(Streams{Out: io.Discard, Err: io.Discard}).Find(args)
			if err != nil || !cmd.HasParent() || cmd.Name() != args[1] {
				t.Errorf("%s: %q is not a command: %v", name, c, err)
				continue
			}
			if err := cmd.ParseFlags(rest); err != nil {
				t.Errorf("%s: %q: %v", name, c, err)
			} else if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
				t.Errorf("%s: %q: %v", name, c, err)
			}
		}
	}
}

// TestSourcesInHelp: the help and the manual name every source.
func TestSourcesInHelp(t *testing.T) {
	manual, err := os.ReadFile("../../../docs/vulnerability-database.md")
	if err != nil {
		t.Fatal(err)
	}
	help := dbSyncCommand(&globals{}).Long
	for _, s := range mirror.Sources() {
		name, _, _ := strings.Cut(s.Name, "/")
		if !strings.Contains(help, name) {
			t.Errorf("the help lacks %s", name)
		}
		row := "| `" + s.Name + "` | `" + s.URL + "` |"
		if s.Form != mirror.OSV && !strings.Contains(string(manual), row) {
			t.Errorf("the manual lacks %s", row)
		}
	}
}
