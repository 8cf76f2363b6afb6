package cli

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/buildyard/buildyard/internal/obs"
)

// manualCommand returns the hidden command that writes the manual pages of its program. Packages are made with it.
func manualCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man-pages DIR",
		Short:  "Write the manual pages of this program",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			for name, page := range ManualPages(cmd.Root(), obs.ThisBuild()) {
				if err := os.WriteFile(filepath.Join(args[0], name), page, 0o644); err != nil {
					return fmt.Errorf("write manual page: %w", err)
				}
			}
			return nil
		},
	}
}

// ManualPages returns the manual pages of a program's commands by file name, the same on every machine. Their language
// is that of man(7).
func ManualPages(root *cobra.Command, build obs.Build) map[string][]byte {
	pages := map[string][]byte{}
	eachCommand(root, func(cmd *cobra.Command) {
		if isDocumented(cmd) {
			pages[manualName(cmd)+".1"] = manualPage(cmd, build)
		}
	})
	return pages
}

// manualName returns the name of a command's page: "buildyard-node-list".
func manualName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

func manualPage(cmd *cobra.Command, build obs.Build) []byte {
	var b bytes.Buffer
	day, _, _ := strings.Cut(build.Date, "T")
	fmt.Fprintf(&b, ".TH %q 1 %q %q \"Buildyard\"\n", strings.ToUpper(manualName(cmd)), day, "Buildyard "+build.Version)
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(manualName(cmd)), roff(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n%s\n", roff(cmd.UseLine()))
	b.WriteString(".SH DESCRIPTION\n")
	writeRoffText(&b, cmp.Or(cmd.Long, cmd.Short+"."))

	own, global := flagsOf(cmd)
	writeRoffFlags(&b, "OPTIONS", own)
	writeRoffFlags(&b, "GLOBAL OPTIONS", global)
	if cmd.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(unindent(cmd.Example)))
	}
	writeRoffChildren(&b, cmd)
	if cmd.HasParent() {
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", roff(manualName(cmd.Parent())))
	}
	return b.Bytes()
}

func writeRoffFlags(b *bytes.Buffer, heading string, fs *pflag.FlagSet) {
	first := true
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		if first {
			fmt.Fprintf(b, ".SH %s\n", heading)
			first = false
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		fmt.Fprintf(b, ".TP\n\\fB%s\\fR", roff(name))
		if f.Value.Type() != "bool" {
			fmt.Fprintf(b, " \\fI%s\\fR", roff(f.Value.Type()))
		}
		text := f.Usage
		if showsDefault(f.DefValue) {
			text += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(b, "\n%s\n", roff(text))
	})
}

func writeRoffChildren(b *bytes.Buffer, cmd *cobra.Command) {
	first := true
	for _, child := range cmd.Commands() {
		if !isDocumented(child) {
			continue
		}
		if first {
			b.WriteString(".SH COMMANDS\n")
			first = false
		}
		fmt.Fprintf(b, ".TP\n.BR %s (1)\n%s\n", roff(manualName(child)), roff(child.Short))
	}
}

// writeRoffText writes a help text: paragraphs, and indented lines as they are.
func writeRoffText(b *bytes.Buffer, text string) {
	literal := false
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		switch indented := strings.HasPrefix(line, "  "); {
		case indented && !literal:
			b.WriteString(".PP\n.nf\n")
		case !indented && literal:
			b.WriteString(".fi\n")
			fallthrough
		case line == "":
			b.WriteString(".PP\n")
		}
		literal = strings.HasPrefix(line, "  ")
		if line != "" {
			b.WriteString(roff(line) + "\n")
		}
	}
	if literal {
		b.WriteString(".fi\n")
	}
}

// roff escapes text for a manual page: a line that begins with "." or "'" would be a request.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(strings.TrimRight(text, "\n"))
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
