package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/spf13/cobra"
)

// TestErrorsAsJSON: with -o json a failure is one JSON object on standard error, also when the arguments are wrong.
func TestErrorsAsJSON(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string // "": the error is text
	}{
		{
			[]string{"show", "-o", "json"},
			`{"error":{"code":"not_found","exit_code":3,"message":"node \"a\u001b[2J\" not found"}}` + "\n",
		},
		{
			[]string{"show", "--nmae", "x", "-o", "json"},
			`{"error":{"code":"usage","exit_code":2,"message":"unknown flag: --nmae","help":"prog show --help"}}` + "\n",
		},
		{
			[]string{"shwo", "--output=json"},
			`{"error":{"code":"usage","exit_code":2,"message":` +
				`"unknown command \"shwo\" for \"prog\"; did you mean \"show\"?","help":"prog --help"}}` + "\n",
		},
		{[]string{"show", "-o", "yaml"}, ""},
		{[]string{"show"}, ""},
		{[]string{"show", "--nmae", "--", "-o", "json"}, ""},
		{[]string{"write", "-o", "json"}, ""}, // its -o is a file
	} {
		root := &cobra.Command{Use: "prog"}
		show := &cobra.Command{Use: "show", RunE: func(*cobra.Command, []string) error {
			return Exit(ExitNotFound, errors.New("node \"a\x1b[2J\" not found"))
		}}
		new(Format).Add(show)
		write := &cobra.Command{
			Use: "write", RunE: func(*cobra.Command, []string) error { return errors.New("failed") },
		}
		write.Flags().StringP("output", "o", "", "file")
		root.AddCommand(show, write)
		var out bytes.Buffer
		root.SetErr(&out)

		code := Run(t.Context(), root, tc.args)

		var got errorDocument
		err := json.Unmarshal(out.Bytes(), &got)
		switch {
		case tc.want == "" && err == nil:
			t.Errorf("%v: got JSON: %s", tc.args, out.String())
		case tc.want != "" && err != nil:
			t.Errorf("%v: got %q, want JSON", tc.args, out.String())
		case tc.want != "" && (out.String() != tc.want || got.Error.ExitCode != code):
			t.Errorf("%v: exit %d, got\n%swant\n%s", tc.args, code, out.String(), tc.want)
		}
	}
}

func TestSimilarNames(t *testing.T) {
	names := []string{"list", "show", "start", "terminate", "delete", "rm", "restart", "wait"}
	for word, want := range map[string][]string{
		"strta": {"start"}, "lst": {"list"}, "termiante": {"terminate"}, "TERMINATE": {"terminate"}, "st": {"start"},
		"restrat": {"restart"}, "xyz": nil, "": nil, "wiat": {"wait"},
	} {
		if got := similarNames(word, names); len(got) != len(want) || len(got) > 0 && got[0] != want[0] {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
}

// FuzzEditDistance: the distance is symmetric and bounded, for words of any length.
func FuzzEditDistance(f *testing.F) {
	f.Add("strta", "start")
	f.Add("", "x")
	f.Fuzz(func(t *testing.T, a, b string) {
		d := editDistance(a, b)
		if d != editDistance(b, a) || d < 0 || d > max(maxEditBytes, len(a), len(b)) || d == 0 && a != b {
			t.Errorf("distance of %q and %q is %d", a, b, d)
		}
	})
}
