package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// maxSuggestions bounds the names that an error proposes.
const maxSuggestions = 3

// suggestNames makes every command of a program name the commands and flags that a misspelled one resembles.
// args are the arguments of the program.
func suggestNames(root *cobra.Command, args []string) {
	eachCommand(root, func(cmd *cobra.Command) {
		switch {
		case !cmd.HasSubCommands() && cmd.Args != nil:
			cmd.Args = nameArguments(cmd.Args)
		case !cmd.HasSubCommands():
		case !cmd.Runnable():
			Family(cmd)
		case cmd.Args != nil:
			cmd.Args = nameSubcommands(cmd.Args)
		}
	})
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		found, rest, _ := root.Find(args)
		if found == cmd && cmd.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
			// The flags are those of the subcommand that was meant.
			if unknown := cmd.ValidateArgs(rest[:1]); unknown != nil {
				return unknown
			}
		}
		return nameFlags(cmd, nameValue(err))
	})
}

// nameSubcommands makes a check of the arguments of a command with subcommands report an unknown subcommand.
func nameSubcommands(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		if err == nil || len(args) == 0 {
			return err
		}
		return unknownCommand(cmd, args[0])
	}
}

// noSubcommand is the check of the arguments of a command that only has subcommands.
func noSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return unknownCommand(cmd, args[0])
}

// RefuseMisspelledCommand is the check of the arguments of a command that has subcommands and also takes arguments:
// the first one must not resemble a subcommand.
func RefuseMisspelledCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 || len(similarCommands(cmd, args[0])) == 0 {
		return nil
	}
	return unknownCommand(cmd, args[0])
}

func unknownCommand(cmd *cobra.Command, word string) error {
	similar := didYouMean(similarCommands(cmd, word), "")
	return fmt.Errorf("unknown command %q for %q%s", word, cmd.CommandPath(), similar)
}

// similarCommands returns the subcommands that a word resembles.
func similarCommands(cmd *cobra.Command, word string) []string {
	var names []string
	for _, child := range cmd.Commands() {
		if child.IsAvailableCommand() {
			names = append(append(names, child.Name()), child.Aliases...)
		}
	}
	return similarNames(word, names)
}

// nameFlags adds the flags that an unknown one resembles to the error about it.
func nameFlags(cmd *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return fmt.Errorf("%w%s", err, didYouMean(similarNames(unknown.GetSpecifiedName(), names), "--"))
}

// DidYouMean returns the end of an error about a misspelled word that proposes the names that it resembles; "" if it
// resembles none.
func DidYouMean(word string, names []string) string { return didYouMean(similarNames(word, names), "") }

// didYouMean returns the end of an error that proposes names; "" without names.
func didYouMean(names []string, prefix string) string {
	if len(names) == 0 {
		return ""
	}
	quoted := make([]string, len(names))
	for i, name := range names {
		if quoted[i] = prefix + name; prefix == "" {
			quoted[i] = `"` + name + `"`
		}
	}
	return "; did you mean " + strings.Join(quoted, " or ") + "?"
}

// similarNames returns the names that a misspelled word resembles or begins, the most similar first.
func similarNames(word string, names []string) []string {
	const minPrefix = 2 // letters that can begin a name
	word = strings.ToLower(word)
	distances := map[string]int{}
	var found []string
	for _, name := range names {
		d := editDistance(word, name)
		if len(word) >= minPrefix && strings.HasPrefix(name, word) {
			d = 0
		}
		if _, known := distances[name]; !known && d <= 1+len(word)/5 {
			distances[name] = d
			found = append(found, name)
		}
	}
	slices.SortStableFunc(found, func(a, b string) int { return distances[a] - distances[b] })
	for i, name := range found {
		if i == maxSuggestions || distances[name] > distances[found[0]] {
			return found[:i]
		}
	}
	return found
}

// maxEditBytes bounds the words that are compared, in bytes.
const maxEditBytes = 64

// editDistance returns how many letters must be inserted, removed, replaced or exchanged with the next one to turn
// a into b. Words above maxEditBytes are never similar.
func editDistance(a, b string) int {
	if max(len(a), len(b)) > maxEditBytes {
		return maxEditBytes
	}
	// rows[i][j] is the distance of the first i bytes of a and the first j of b.
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}

	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replaced := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			d := min(replaced, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
