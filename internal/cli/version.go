package cli

import (
	"cmp"
	"io"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/obs"
)

// VersionCommand returns the command "version" of a program.
func VersionCommand(program string, out io.Writer) *cobra.Command {
	format := Table
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print version, commit and date of this program",
		Long: `version prints the version of this program, the commit that it was built from, with ".dirty" if the files
differed from it, and the time of that commit. X.Y.Z-HASH is a release; X.Y.Z-dev+HASH is a build
between releases, of which X.Y.Z is the next one.`,
		Example: "  " + program + " version -o json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b := obs.ThisBuild()
			return format.Write(out, b, func(g *Grid) {
				g.Row("version", b.Version)
				g.Row("commit", cmp.Or(b.Commit, "unknown"))
				g.Row("date", cmp.Or(b.Date, "unknown"))
				g.Row("go", b.Go)
				g.Row("platform", b.Platform)
			})
		},
	}
	format.Add(cmd)
	return cmd
}
