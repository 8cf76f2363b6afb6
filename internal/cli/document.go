package cli

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/buildyard/buildyard/internal/config"
)

// Document writes down a command tree as Markdown, the same on every machine.
func Document(root *cobra.Command) []byte {
	d := document{shared: sharedFlags()}
	fmt.Fprintf(&d.out, "# %s\n\nThis page is made from the program's own help.\n\n%s\n\n", root.Name(), indented(root.Long))
	d.out.WriteString("Every command that asks a cloud has these options too:\n\n")
	d.flags(d.shared)
	for _, child := range root.Commands() {
		d.command(child)
	}
	return d.out.Bytes()
}

type document struct {
	out    bytes.Buffer
	shared *pflag.FlagSet // flags that are documented once
}

// sharedFlags returns the flags of every command that calls a cloud.
func sharedFlags() *pflag.FlagSet {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	AddFlags(fs, config.ClientTable)
	return fs
}

func (d *document) command(cmd *cobra.Command) {
	if cmd.Hidden || !cmd.IsAvailableCommand() || cmd.Name() == "help" || cmd.Name() == "completion" {
		return
	}
	level := strings.Repeat("#", min(4, 1+strings.Count(cmd.CommandPath(), " ")))
	fmt.Fprintf(&d.out, "%s %s\n\n%s.\n\n", level, cmd.CommandPath(), strings.TrimSuffix(cmd.Short, "."))
	if cmd.Runnable() && !cmd.HasSubCommands() || cmd.Flags().HasFlags() {
		fmt.Fprintf(&d.out, "    %s\n\n", cmd.UseLine())
	}
	if len(cmd.Aliases) > 0 {
		fmt.Fprintf(&d.out, "Also called %s.\n\n", strings.Join(cmd.Aliases, ", "))
	}
	if cmd.Long != "" {
		d.out.WriteString(indented(cmd.Long) + "\n\n")
	}
	d.flags(d.own(cmd))
	if cmd.Example != "" {
		fmt.Fprintf(&d.out, "```sh\n%s\n```\n\n", unindented(cmd.Example))
	}
	for _, child := range cmd.Commands() {
		d.command(child)
	}
}

// own returns the flags of a command that are not documented for all of them.
func (d *document) own(cmd *cobra.Command) *pflag.FlagSet {
	asks := cmd.LocalFlags().Lookup("context") != nil
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && !f.Hidden && (!asks || d.shared.Lookup(f.Name) == nil) {
			fs.AddFlag(f)
		}
	})
	return fs
}

func (d *document) flags(fs *pflag.FlagSet) {
	if !fs.HasFlags() {
		return
	}
	d.out.WriteString("| option | meaning |\n|---|---|\n")
	fs.VisitAll(func(f *pflag.Flag) {
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if f.Value.Type() != "bool" {
			name += " " + f.Value.Type()
		}
		text := strings.ReplaceAll(f.Usage, "|", `\|`)
		// A path that begins at the root is of the machine that this is written on.
		if def := f.DefValue; def != "" && def != "false" && def != "0" && def != "0s" && def != "[]" && !strings.HasPrefix(def, "/") {
			text += " (default " + def + ")"
		}
		fmt.Fprintf(&d.out, "| `%s` | %s |\n", name, text)
	})
	d.out.WriteString("\n")
}

// indented makes a help text whose lines are aligned by hand a text of Markdown: what is
// indented there stays as it is.
func indented(text string) string {
	var out []string
	code := false
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		now := strings.HasPrefix(line, "  ") || (code && line == "")
		if now && !code {
			if len(out) > 0 && out[len(out)-1] != "" {
				out = append(out, "")
			}
		}
		if now && line != "" {
			line = "    " + strings.TrimPrefix(line, "  ")
		}
		if code && !now && line != "" && out[len(out)-1] != "" {
			out = append(out, "")
		}
		code = now
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

// unindented takes the margin of examples away.
func unindented(text string) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "  ")
	}
	return strings.Join(lines, "\n")
}
