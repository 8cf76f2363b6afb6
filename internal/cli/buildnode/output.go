package buildnode

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/farm"
)

// format is the value of --output.
type format string

func (f *format) add(cmd *cobra.Command) {
	cmd.Flags().StringVarP((*string)(f), "output", "o", "table", "table or json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
}

// write prints value as JSON, or lets table fill a table.
func (f format) write(w io.Writer, value any, table func(*grid)) error {
	switch f {
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(value)
	case "table":
		g := &grid{tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)}
		table(g)
		return g.w.Flush()
	default:
		return cli.Usage(farm.Invalid("output", "%q is neither table nor json", string(f)))
	}
}

// grid is a table being written.
type grid struct{ w *tabwriter.Writer }

// row adds a line.
func (g *grid) row(cells ...any) {
	text := make([]string, len(cells))
	for i, c := range cells {
		text[i] = plain(fmt.Sprint(c))
	}
	_, _ = fmt.Fprintln(g.w, strings.Join(text, "\t"))
}

// plain keeps a name that somebody else chose from steering the terminal or the table.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) {
			return '?'
		}
		return r
	}, s)
}
