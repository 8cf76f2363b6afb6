package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/farm"
)

// Format is the value of --output.
type Format string

// Add puts --output on a command.
func (f *Format) Add(cmd *cobra.Command) {
	cmd.Flags().StringVarP((*string)(f), "output", "o", "table", "table or json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
}

// Write prints value as JSON, or lets table fill a table.
func (f Format) Write(w io.Writer, value any, table func(*Grid)) error {
	switch f {
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(value)
	case "table":
		g := &Grid{tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)}
		table(g)
		return g.w.Flush()
	default:
		return Usage(farm.Invalid("output", "%q is neither table nor json", string(f)))
	}
}

// Grid is a table being written.
type Grid struct{ w *tabwriter.Writer }

// Row adds a line.
func (g *Grid) Row(cells ...any) {
	text := make([]string, len(cells))
	for i, c := range cells {
		text[i] = Plain(fmt.Sprint(c))
	}
	_, _ = fmt.Fprintln(g.w, strings.Join(text, "\t"))
}

// Plain keeps a name that somebody else chose from steering the terminal or the table.
func Plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) {
			return '?'
		}
		return r
	}, s)
}
