package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/sanitize"
)

// errorDocument is what a program writes to standard error when it fails with -o json. Its form is stable.
type errorDocument struct {
	Error errorDetail `json:"error"`
}

// errorDetail describes a failure.
type errorDetail struct {
	Code     string `json:"code"`           // the exit code as a word, see codeWords
	ExitCode int    `json:"exit_code"`      // of the program
	Message  string `json:"message"`        // the text without -o json
	Help     string `json:"help,omitempty"` // the command that explains the usage, after a usage error
}

// codeWords are the values of "code". They never change.
var codeWords = map[int]string{
	ExitFailed: "failed", ExitUsage: "usage", ExitNotFound: "not_found", ExitTimeout: "timeout",
	ExitUnreachable: "unreachable", ExitDenied: "denied", ExitPartly: "partial_failure", ExitFound: "findings",
	ExitInterrupted: "interrupted", ExitTerminated: "terminated",
}

// failure is an error that ends a program.
type failure struct {
	err    error
	prefix string // of the error as text
	code   int    // exit code
	cmd    *cobra.Command
}

// print writes the error: one line, which is a JSON object when the command's output would be JSON.
func (f failure) print(w io.Writer, asJSON bool) {
	help := ""
	if f.code == ExitUsage {
		help = f.cmd.CommandPath() + " --help"
	}
	if asJSON {
		f.printJSON(w, help)
		return
	}
	_, _ = fmt.Fprintf(w, "%s: %s\n", f.prefix, EscapeText(f.err.Error()))
	if help != "" {
		_, _ = fmt.Fprintf(w, "See: %s\n", help)
	}
}

func (f failure) printJSON(w io.Writer, help string) {
	word := codeWords[f.code]
	if word == "" {
		word = codeWords[ExitFailed]
	}
	raw, err := json.Marshal(errorDocument{errorDetail{word, f.code, f.err.Error(), help}})
	if err != nil {
		return // strings and numbers always have a JSON form
	}
	_ = sanitize.EscapeJSON(w, append(raw, '\n'))
}

// wantsJSON reports whether the output of a command is JSON. args are the program's arguments: when they are wrong,
// the flag may not have been read.
func wantsJSON(cmd *cobra.Command, args []string) bool {
	if f := cmd.Flags().Lookup("output"); f != nil {
		format, ok := f.Value.(*enumFlag)
		if !ok || f.Changed {
			return ok && *format.value == string(JSON)
		}
	}
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	for i, arg := range args {
		switch arg {
		case "-ojson", "-o=json", "--output=json":
			return true
		case "-o", "--output":
			if i+1 < len(args) && args[i+1] == string(JSON) {
				return true
			}
		}
	}
	return false
}
