package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/sanitize"
)

// Format is the value of --output.
type Format string

// The formats. Commands that list items have all of them, the others lack Wide and Name.
const (
	Table Format = "table"
	Wide  Format = "wide" // a table with more columns
	JSON  Format = "json"
	YAML  Format = "yaml"
	Name  Format = "name" // the IDs only, one per line
)

// Formats of most commands, and of those that list items.
var (
	few  = []string{string(Table), string(JSON), string(YAML)}
	many = []string{string(Table), string(Wide), string(JSON), string(YAML), string(Name)}
)

// Add puts --output on a command.
func (f *Format) Add(cmd *cobra.Command) { f.add(cmd, few) }

// AddAll adds --output with all formats, and --wide, to a command that lists items.
func (f *Format) AddAll(cmd *cobra.Command) {
	f.add(cmd, many)
	wide := cmd.Flags().VarPF(&enumFlag{(*string)(f), []string{string(Wide)}}, "wide", "", "same as -o wide")
	wide.NoOptDefVal = string(Wide)
	cmd.MarkFlagsMutuallyExclusive("wide", "output")
}

// AddLong is Add for a program whose -o means something else.
func (f *Format) AddLong(cmd *cobra.Command) {
	*f = Table
	cmd.Flags().Var(&enumFlag{(*string)(f), few}, "output", "table, json or yaml")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(few, cobra.ShellCompDirectiveNoFileComp))
}

func (f *Format) add(cmd *cobra.Command, formats []string) {
	last := len(formats) - 1
	*f = Table
	cmd.Flags().VarP(&enumFlag{(*string)(f), formats}, "output", "o", strings.Join(formats[:last], ", ")+" or "+
		formats[last])
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// enumFlag is a flag with a few possible values.
type enumFlag struct {
	value   *string
	choices []string
}

// String implements pflag.Value.
func (c *enumFlag) String() string { return *c.value }

// Type implements pflag.Value.
func (c *enumFlag) Type() string { return "format" }

// Set implements pflag.Value.
func (c *enumFlag) Set(text string) error {
	if !slices.Contains(c.choices, text) {
		return farm.Invalid("output", "invalid format %q: want one of %s", text, strings.Join(c.choices, ", "))
	}
	*c.value = text
	return nil
}

// Write prints value as JSON or YAML, or lets table fill a table.
func (f Format) Write(w io.Writer, value any, table func(*Grid)) error {
	if f == JSON || f == YAML {
		raw, err := json.Marshal(value)
		if err != nil {
			return err
		}
		return f.WriteDocument(w, raw)
	}
	g := &Grid{tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)}
	table(g)
	return g.w.Flush()
}

// WriteDocument prints a JSON text as it is but for its white space and for characters that could
// steer a terminal, which are escaped, or the same as YAML.
func (f Format) WriteDocument(w io.Writer, raw json.RawMessage) error {
	if f == YAML {
		return writeYAML(w, raw)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "  "); err != nil {
		return fmt.Errorf("response is not JSON: %w", err)
	}
	out.WriteByte('\n')
	return sanitize.EscapeJSON(w, out.Bytes())
}

// Grid is a table being written.
type Grid struct{ w *tabwriter.Writer }

// Row adds a line.
func (g *Grid) Row(cells ...any) {
	text := make([]string, len(cells))
	for i, c := range cells {
		text[i] = EscapeName(fmt.Sprint(c))
	}
	_, _ = fmt.Fprintln(g.w, strings.Join(text, "\t"))
}

// CutLine cuts a line that is longer than a terminal's columns; its end is an ellipsis then. Without a
// terminal columns is 0.
func CutLine(line string, columns int) string {
	runes := []rune(line)
	if columns == 0 || len(runes) <= columns {
		return line
	}
	return strings.TrimRight(string(runes[:columns-1]), " ") + "…"
}

// EscapeName escapes an untrusted name so that it cannot control the terminal or the table.
func EscapeName(s string) string { return sanitize.EscapeText(s) }

// EscapeText is Plain for a text that may have several lines.
func EscapeText(s string) string {
	lines := strings.Split(strings.ReplaceAll(s, "\t", "    "), "\n")
	for i, line := range lines {
		lines[i] = EscapeName(line)
	}
	return strings.Join(lines, "\n")
}
