package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestOldFlags: an old name sets the flag, and help, errors and completion have the name only.
func TestOldFlags(t *testing.T) {
	for _, tc := range []struct {
		args, out string
		code      int
	}{
		{"work --ca-cert a.pem", "a.pem", ExitOK},
		{"work --cacert a.pem", "a.pem", ExitOK},
		{"work --cacert=a.pem", "a.pem", ExitOK},
		{"work --help", "--ca-cert", ExitOK},
		{"work --ca-cert", "flag needs an argument: --ca-cert", ExitUsage},
		{"__complete work --ca", "--ca-cert", ExitOK},
	} {
		var out bytes.Buffer
		var file string
		root, work := &cobra.Command{Use: "prog"}, &cobra.Command{Use: "work"}
		work.RunE = func(*cobra.Command, []string) error {
			out.WriteString(file)
			return nil
		}
		work.Flags().StringVar(&file, "ca-cert", "", "file with the CAs")
		root.AddCommand(work)
		AcceptOldFlags(root, map[string]string{"cacert": "ca-cert"})
		root.SetErr(&out)
		root.SetOut(&out)
		code := Run(t.Context(), root, strings.Fields(tc.args))
		if code != tc.code || !strings.Contains(out.String(), tc.out) ||
			strings.Contains(out.String(), "cacert") {
			t.Errorf("%s: exit %d, %q; want %d, %q", tc.args, code, out.String(), tc.code, tc.out)
		}
	}
}
