package cli

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/buildyard/buildyard/internal/config"
)

// Reference returns the reference page of a program in Markdown, the same on every machine. notice
// is a comment below the title.
func Reference(root *cobra.Command, notice string) []byte {
	d := reference{globalFlags: map[string]*globalUsage{}}
	eachCommand(root, d.collectGlobals)
	fmt.Fprintf(&d.buf, "# %s\n\n%s\n\n%s\n\n", root.Name(), notice, indent(root.Long))
	d.writeBody(root)

	if len(d.globalFlags) > 0 {
		d.buf.WriteString("## Global flags\n\nFlags of several commands. Each command names those that it accepts.\n\n")
		d.writeTable(d.globalRows())
	}
	for _, child := range root.Commands() {
		d.writeCommand(child)
	}
	return append(bytes.TrimRight(d.buf.Bytes(), "\n"), '\n')
}

type reference struct {
	buf         bytes.Buffer
	globalFlags map[string]*globalUsage // name -> flag
}

// globalUsage is a global flag, with the texts that it has at different commands.
type globalUsage struct {
	flag      *pflag.Flag
	helpTexts []string
}

// collectGlobals adds the global flags of a command.
func (d *reference) collectGlobals(cmd *cobra.Command) {
	if !isDocumented(cmd) {
		return
	}
	_, global := flagsOf(cmd)
	global.VisitAll(func(f *pflag.Flag) {
		g := d.globalFlags[f.Name]
		if g == nil {
			g = &globalUsage{flag: f}
			d.globalFlags[f.Name] = g
		}
		if !slices.Contains(g.helpTexts, f.Usage) {
			g.helpTexts = append(g.helpTexts, f.Usage)
		}
	})
}

func (d *reference) globalRows() (rows [][2]string) {
	for _, name := range d.globalNames() {
		g := d.globalFlags[name]
		texts := slices.Sorted(slices.Values(g.helpTexts))
		rows = append(rows, flagRow(g.flag, strings.Join(texts, "; or: ")))
	}
	return rows
}

func (d *reference) globalNames() []string {
	var names []string
	for name := range d.globalFlags {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// isDocumented reports whether the page has a command: cobra's own have no options of ours.
func isDocumented(cmd *cobra.Command) bool {
	return !cmd.Hidden &&
		(!cmd.HasParent() || cmd.IsAvailableCommand() && cmd.Name() != "help" && cmd.Name() != "completion")
}

func (d *reference) writeCommand(cmd *cobra.Command) {
	if !isDocumented(cmd) {
		return
	}
	level := strings.Repeat("#", min(4, 1+strings.Count(cmd.CommandPath(), " ")))
	fmt.Fprintf(&d.buf, "%s %s\n\n%s.\n\n", level, cmd.CommandPath(), strings.TrimSuffix(cmd.Short, "."))
	if len(cmd.Aliases) > 0 {
		fmt.Fprintf(&d.buf, "Aliases: `%s`.\n\n", strings.Join(cmd.Aliases, "`, `"))
	}
	if cmd.Long != "" {
		d.buf.WriteString(indent(cmd.Long) + "\n\n")
	}
	d.writeBody(cmd)
	for _, child := range cmd.Commands() {
		d.writeCommand(child)
	}
}

// writeBody writes the usage line, the flags and the examples of a command.
func (d *reference) writeBody(cmd *cobra.Command) {
	if cmd.Runnable() && !cmd.HasSubCommands() || cmd.Flags().HasFlags() {
		fmt.Fprintf(&d.buf, "    %s\n\n", cmd.UseLine())
	}
	own, global := flagsOf(cmd)
	service, own := withoutSettings(own)
	var rows [][2]string
	own.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && f.Name != "version" && !f.Hidden {
			rows = append(rows, flagRow(f, f.Usage))
		}
	})
	d.writeTable(rows)
	if service != "" {
		fmt.Fprintf(&d.buf, "Every [setting of the %s](settings.md#%s) is a flag too.\n\n", service, service)
	}
	if cmd.Runnable() && !cmd.HasSubCommands() || !cmd.HasParent() {
		d.addGlobals(global)
	}
	if cmd.Example != "" {
		fmt.Fprintf(&d.buf, "```sh\n%s\n```\n\n", unindent(cmd.Example))
	}
}

// addGlobals names the global flags of a command: those, or those that it lacks.
func (d *reference) addGlobals(fs *pflag.FlagSet) {
	var has, lacks []string
	for _, name := range d.globalNames() {
		if fs.Lookup(name) != nil {
			has = append(has, "`--"+name+"`")
		} else {
			lacks = append(lacks, "`--"+name+"`")
		}
	}
	const link = "[Global flags](#global-flags)"
	switch {
	case len(has) == 0:
	case len(lacks) == 0:
		fmt.Fprintf(&d.buf, "%s: all.\n\n", link)
	case len(lacks) < len(has):
		fmt.Fprintf(&d.buf, "%s: all but %s.\n\n", link, strings.Join(lacks, ", "))
	default:
		fmt.Fprintf(&d.buf, "%s: %s.\n\n", link, strings.Join(has, ", "))
	}
}

// serviceTables are the settings that settings.md lists, by the heading there.
var serviceTables = []struct {
	heading string
	table   config.Table
}{{"controller", config.ControllerTable}, {"registry", config.RegistryTable}}

// withoutSettings removes the settings of a service from the flags of a command that has all of
// them. service is "" for another command.
func withoutSettings(fs *pflag.FlagSet) (service string, rest *pflag.FlagSet) {
	for _, of := range serviceTables {
		settings := pflag.NewFlagSet("", pflag.ContinueOnError)
		of.table.AddFlags(settings)
		complete := true
		settings.VisitAll(func(f *pflag.Flag) {
			own := fs.Lookup(f.Name)
			complete = complete && own != nil && own.Usage == f.Usage
		})
		if !complete {
			continue
		}

		rest = pflag.NewFlagSet("", pflag.ContinueOnError)
		fs.VisitAll(func(f *pflag.Flag) {
			if settings.Lookup(f.Name) == nil {
				rest.AddFlag(f)
			}
		})
		return of.heading, rest
	}
	return "", fs
}

// flagRow returns the cells of a flag.
func flagRow(f *pflag.Flag, text string) [2]string {
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	if f.Value.Type() != "bool" {
		name += " " + f.Value.Type()
	}
	text = strings.ReplaceAll(text, "|", `\|`)
	if def := f.DefValue; showsDefault(def) {
		text += " (default " + def + ")"
	}
	return [2]string{"`" + name + "`", text}
}

// showsDefault reports whether a default is worth a note. A path that begins at the root is that of
// the machine on which the page is written.
func showsDefault(def string) bool {
	return !slices.Contains([]string{"", "false", "0", "0s", "[]"}, def) && !strings.HasPrefix(def, "/")
}

func (d *reference) writeTable(rows [][2]string) {
	if len(rows) == 0 {
		return
	}
	d.buf.WriteString("| flag | meaning |\n|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&d.buf, "| %s | %s |\n", r[0], r[1])
	}
	d.buf.WriteString("\n")
}

// indent converts a help text to Markdown; indented lines become code blocks.
func indent(text string) string {
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

// unindent removes the margin of examples.
func unindent(text string) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "  ")
	}
	return strings.Join(lines, "\n")
}
