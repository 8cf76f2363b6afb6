package imagescan_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/cli/buildyard"
	"github.com/buildyard/buildyard/internal/cli/imagescan"
)

// TestMain lets the scripts run this very binary as the programs.
func TestMain(m *testing.M) {
	as := func(run func(context.Context, []string, cli.Streams) int) func() {
		return func() {
			ctx, stop := cli.Signals(context.Background())
			code := run(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
			stop()
			os.Exit(code)
		}
	}
	testscript.Main(m, map[string]func(){"imagescan": as(imagescan.Main), "buildyard": as(buildyard.Main)})
}

// TestScripts runs what testdata tells of the commands. Scripts but for license.txtar have a
// licence and a database of the advisories in feed.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata", RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("XDG_CACHE_HOME", filepath.Join(env.WorkDir, "cache"))
			env.Setenv("XDG_CONFIG_HOME", filepath.Join(env.WorkDir, "config"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"licence": licence, "apfs": apfs, "template": template},
	})
}

// licence makes an authority that the user believes, and a licence of it in the current
// directory.
func licence(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: licence")
	}
	key := filepath.Join(ts.Getenv("XDG_CONFIG_HOME"), "buildyard", "authority.key")
	ts.Check(os.MkdirAll(filepath.Dir(key), 0o755))
	ts.Check(ts.Exec("buildyard", "license", "keygen", "--key", key))
	ts.Check(ts.Exec("buildyard", "license", "issue", "--product", "image-scanner", "--key", key))
	ts.Check(os.WriteFile(ts.MkAbs("scanner.lic"), []byte(ts.ReadFile("stdout")), 0o644))
}
