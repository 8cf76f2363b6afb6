package cli

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/obs"
)

func TestManualPages(t *testing.T) {
	root := &cobra.Command{
		Use: "tool", Short: "Do things",
		Long: "tool does things:\n\n  tool run -x C:\\\n.not a request\n\nEnd.",
	}
	run := &cobra.Command{
		Use: "run NAME", Short: "Run a thing", Example: "  tool run a",
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	run.Flags().StringP("mode", "m", "fast", "mode of it")
	root.AddCommand(run, manualCommand())
	pages := ManualPages(root, obs.Build{Version: "1.2.3-abc", Date: "2027-01-02T03:04:05Z"})
	if got := slices.Sorted(maps.Keys(pages)); !slices.Equal(got, []string{"tool-run.1", "tool.1"}) {
		t.Fatalf("pages %v", got)
	}

	const want = `.TH "TOOL" 1 "2027-01-02" "Buildyard 1.2.3-abc" "Buildyard"
.SH NAME
tool \- Do things
.SH SYNOPSIS
tool
.SH DESCRIPTION
tool does things:
.PP
.PP
.nf
  tool run \-x C:\e
.fi
.PP
\&.not a request
.PP
End.
.SH COMMANDS
.TP
.BR tool\-run (1)
Run a thing
`
	if got := string(pages["tool.1"]); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, part := range []string{
		".SH SYNOPSIS\ntool run NAME [flags]\n",
		".SH OPTIONS\n.TP\n\\fB\\-m, \\-\\-mode\\fR \\fIstring\\fR\nmode of it (default fast)\n",
		".SH EXAMPLES\n.nf\ntool run a\n.fi\n", ".SH SEE ALSO\n.BR tool (1)\n",
	} {
		if !strings.Contains(string(pages["tool-run.1"]), part) {
			t.Errorf("%q is not in\n%s", part, pages["tool-run.1"])
		}
	}
}
