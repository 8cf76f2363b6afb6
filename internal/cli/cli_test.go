package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestExitCodes(t *testing.T) {
	for _, tc := range []struct {
		args string
		code int
		says string
	}{
		{"work", ExitOK, ""},
		{"fail", ExitFailed, "prog: it broke\n"},
		{"miss", ExitNotFound, "prog: nowhere\n"},
		{"misuse", ExitUsage, "prog: wrong\nSee: prog misuse --help\n"},
		{"work --colour", ExitUsage, "prog: unknown flag: --colour\nSee: prog work --help\n"},
		{"work much", ExitUsage, "unknown command"},
		{"play", ExitUsage, "unknown command"},
	} {
		root := &cobra.Command{Use: "prog"}
		for name, err := range map[string]error{"work": nil, "fail": errors.New("it broke"), "misuse": Usage(errors.New("wrong")), "miss": Exit(ExitNotFound, errors.New("nowhere"))} {
			root.AddCommand(&cobra.Command{Use: name, Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error { return err }})
		}
		var out bytes.Buffer
		root.SetErr(&out)
		root.SetArgs(strings.Fields(tc.args))
		if code := Run(context.Background(), root); code != tc.code || !strings.Contains(out.String(), tc.says) {
			t.Errorf("%s: exit %d, said %q; want %d, %q", tc.args, code, out.String(), tc.code, tc.says)
		}
	}
}

func TestNamesDoNotSteerTheTerminal(t *testing.T) {
	if got := Plain("a\x1b[2Jb\tc\n\u009b1m"); strings.ContainsAny(got, "\x1b\t\n\u009b") {
		t.Errorf("got %q", got)
	}
}
