package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/buildyard/buildyard/internal/sanitize"
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
		{"steer", ExitFailed, "prog: it ?[2J broke\n"},
		{"misuse", ExitUsage, "prog: wrong\nSee: prog misuse --help\n"},
		{"work --colour", ExitUsage, "prog: unknown flag: --colour\nSee: prog work --help\n"},
		{"work much", ExitUsage, "unknown command"},
		{"play", ExitUsage, "unknown command"},
		{"worc", ExitUsage, "prog: unknown command \"worc\" for \"prog\"; did you mean \"work\"?\nSee: prog --help\n"},
		{"group lsit --json", ExitUsage, "unknown command \"lsit\" for \"prog group\"; did you mean \"list\"?\n"},
		{"group li", ExitUsage, "did you mean \"list\"?\n"},
		{"group other", ExitUsage, "prog: unknown command \"other\" for \"prog group\"\nSee: prog group --help\n"},
		{"group list --ouptut json", ExitUsage, "prog: unknown flag: --ouptut; did you mean --output?\n"},
		{"group list -x", ExitUsage, "prog: unknown shorthand flag: 'x' in -x\n"},
		{"group list --count x", ExitUsage, "prog: invalid --count \"x\": want a whole number\nSee: prog group"},
		{"group list --age 5d", ExitUsage, "prog: invalid --age \"5d\": want a duration such as 90s, 10m or 24h\n"},
		{"group list --count 1 --age 1s", ExitUsage, "prog: --age and --count are mutually exclusive\nSee: "},
		{"group copy a b c", ExitUsage, "prog: found 3 arguments, want: prog group copy FILE [DIRECTORY]\nSee: "},
		{"group copy --all", ExitUsage, "prog: found 0 arguments, want: prog group copy FILE [DIRECTORY]\n"},
		{"group copy a", ExitUsage, "prog: want --all or --one\nSee: prog group copy --help\n"},
		{"group", ExitOK, ""},
		{"completion bash", ExitOK, ""},
		{
			"completion tcsh", ExitUsage,
			"prog: unknown command \"tcsh\" for \"prog completion\"\nSee: prog completion --help\n",
		},
	} {
		root := &cobra.Command{Use: "prog"}
		list := &cobra.Command{Use: "list", RunE: func(*cobra.Command, []string) error { return nil }}
		new(Format).Add(list)
		list.Flags().Int("count", 0, "")
		list.Flags().Duration("age", 0, "")
		list.MarkFlagsMutuallyExclusive("count", "age")
		duplicate := &cobra.Command{
			Use: "copy FILE [DIRECTORY]", Args: cobra.RangeArgs(1, 2),
			RunE: func(*cobra.Command, []string) error { return nil },
		}
		duplicate.Flags().Bool("all", false, "")
		duplicate.Flags().Bool("one", false, "")
		duplicate.MarkFlagsOneRequired("all", "one")
		group := &cobra.Command{Use: "group"}
		group.AddCommand(list, duplicate)
		root.AddCommand(group)
		for name, err := range map[string]error{
			"work": nil, "fail": errors.New("it broke"), "misuse": Usage(errors.New("wrong")),
			"miss": Exit(ExitNotFound, errors.New("nowhere")), "steer": errors.New("it \x1b[2J broke"),
		} {
			root.AddCommand(&cobra.Command{
				Use: name, Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error { return err },
			})
		}
		var out bytes.Buffer
		root.SetErr(&out)
		root.SetOut(io.Discard)
		code := Run(context.Background(), root, strings.Fields(tc.args))
		if code != tc.code || !strings.Contains(out.String(), tc.says) {
			t.Errorf("%s: exit %d, said %q; want %d, %q", tc.args, code, out.String(), tc.code, tc.says)
		}
	}
}

func TestNamesDoNotSteerTheTerminal(t *testing.T) {
	const evil = "\x1b\t\u009b\u202e\u2066\u2028\ufeff"
	if got := EscapeName("a\x1b[2Jb\tc\n\u009b1m\u202ed\u2066\u2028\ufeff é 日本"); strings.ContainsAny(got, evil+"\n") ||
		!strings.HasSuffix(got, " é 日本") {
		t.Errorf("got %q", got)
	}
	if got := EscapeText("a\tb\nc\x1bd\u202e"); got != "a    b\nc?d?" {
		t.Errorf("got %q", got)
	}
}

// TestSignals: a command that a signal ended reports that and exits as shells expect it; one that
// succeeded or failed otherwise exits as usual.
func TestSignals(t *testing.T) {
	for sig, code := range map[syscall.Signal]int{syscall.SIGINT: ExitInterrupted, syscall.SIGTERM: ExitTerminated} {
		ctx, stop := Signals(t.Context())
		if err := syscall.Kill(os.Getpid(), sig); err != nil {
			t.Fatal(err)
		}
		<-ctx.Done()
		stop()
		for _, tc := range []struct {
			err  error
			code int
			says string
		}{
			{nil, ExitOK, ""},
			{errors.New("it broke"), ExitFailed, "prog: it broke\n"},
			{Exit(ExitInterrupted, errors.New("interrupted: it goes on")), code, "prog: interrupted: it goes on\n"},
			{fmt.Errorf("read: %w", ctx.Err()), code, "prog: " + context.Cause(ctx).Error() + "\n"},
			{fmt.Errorf("read: %w", context.Cause(ctx)), code, "prog: " + context.Cause(ctx).Error() + "\n"},
		} {
			root := &cobra.Command{Use: "prog", RunE: func(*cobra.Command, []string) error { return tc.err }}
			var out bytes.Buffer
			root.SetErr(&out)
			if got := Run(ctx, root, []string{}); got != tc.code || out.String() != tc.says {
				t.Errorf("%v, %v: exit %d, said %q; want %d, %q", sig, tc.err, got, out.String(), tc.code, tc.says)
			}
		}
	}
}

// TestSecondInterrupt: a program that does not end at the first interrupt ends at the second.
func TestSecondInterrupt(t *testing.T) {
	const deaf = "BUILDYARD_TEST_DEAF"
	if os.Getenv(deaf) != "" {
		Main(func(ctx context.Context, _ []string, s Streams) int {
			_, _ = fmt.Fprintln(s.Out, "works")
			<-ctx.Done()
			_, _ = fmt.Fprintln(s.Out, "told")
			time.Sleep(time.Minute) // longer than the test waits
			return ExitOK
		})
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSecondInterrupt$")
	cmd.Env = append(os.Environ(), deaf+"=1")
	said, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(said); lines.Scan(); {
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
	}
	err = cmd.Wait()
	ended, ok := errors.AsType[*exec.ExitError](err)
	if !ok || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
		t.Errorf("it ended with %v", err)
	}
}

// TestDocumentsDoNotSteerTheTerminal: JSON and YAML mean the same with their names escaped.
func TestDocumentsDoNotSteerTheTerminal(t *testing.T) {
	const evil = "a\u0085\u009b1m\x7f\u202e\u2066\ufeff\U000e0041 é\n\tb"
	value := map[string]any{evil: []string{evil, "plain"}}
	for f, decode := range map[Format]func([]byte, any) error{JSON: json.Unmarshal, YAML: yaml.Unmarshal} {
		var out bytes.Buffer
		if err := f.Write(&out, value, nil); err != nil {
			t.Fatal(err)
		}
		var got map[string][]string
		if err := decode(out.Bytes(), &got); err != nil || got[evil][0] != evil || got[evil][1] != "plain" {
			t.Errorf("%s means %q, %v", f, got, err)
		}
		if !sanitize.IsClean(out.String()) {
			t.Errorf("%s is %q", f, out.String())
		}
	}
}
