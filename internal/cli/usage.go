package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/buildyard/buildyard/internal/config"
)

// globalFlag is the annotation of flags that many commands have: they are listed apart.
const globalFlag = "buildyard_global"

// MarkGlobal has the help of a command list flags under "Global flags".
func MarkGlobal(fs *pflag.FlagSet, names ...string) {
	for _, name := range names {
		_ = fs.SetAnnotation(name, globalFlag, []string{"true"}) // an unknown flag has nothing to list
	}
}

// markConnection marks the flags by which a command finds a service and authenticates.
func markConnection(fs *pflag.FlagSet, table config.Table) {
	for _, s := range table {
		if !config.ClientTable.Has(s.Key) {
			continue
		}
		MarkGlobal(fs, s.Flag)
		if s.FileFlag != "" {
			MarkGlobal(fs, s.FileFlag)
		}
	}
}

// flagsOf returns the flags that a command has alone, and the global ones: those that are marked
// and those that a parent passes on.
func flagsOf(cmd *cobra.Command) (own, global *pflag.FlagSet) {
	own, global = pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	passedOn := cmd.PersistentFlags()
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Annotations[globalFlag] != nil || passedOn.Lookup(f.Name) != nil {
			global.AddFlag(f)
		} else {
			own.AddFlag(f)
		}
	})
	global.AddFlagSet(cmd.InheritedFlags())
	return own, global
}

// printUsage prints how a command is used. It replaces cobra's text, which lists global flags among the
// command's own.
func printUsage(cmd *cobra.Command) error {
	var b strings.Builder
	b.WriteString("Usage:\n")
	if cmd.Runnable() && cmd.Annotations[familyCommand] == "" {
		fmt.Fprintf(&b, "  %s\n", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s [command]\n", cmd.CommandPath())
	}
	if len(cmd.Aliases) > 0 {
		fmt.Fprintf(&b, "\nAliases:\n  %s\n", cmd.NameAndAliases())
	}
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", strings.TrimRight(cmd.Example, "\n"))
	}
	listCommands(&b, cmd)

	own, global := flagsOf(cmd)
	listFlags(&b, "Flags:", own)
	listFlags(&b, "Global flags:", global)
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\nUse \"%s [command] --help\" for more information about a command.\n", cmd.CommandPath())
	}
	_, err := io.WriteString(cmd.OutOrStderr(), b.String())
	return err
}

// listCommands prints the commands below a command, by group.
func listCommands(b *strings.Builder, cmd *cobra.Command) {
	list := func(title, group string) {
		for _, child := range cmd.Commands() {
			if child.GroupID != group || !child.IsAvailableCommand() && child.Name() != "help" {
				continue
			}
			if title != "" {
				fmt.Fprintf(b, "\n%s\n", title)
				title = ""
			}
			fmt.Fprintf(b, "  %-*s %s\n", child.NamePadding(), child.Name(), child.Short)
		}
	}
	for _, group := range cmd.Groups() {
		list(group.Title, group.ID)
	}
	if len(cmd.Groups()) == 0 {
		list("Available commands:", "")
	} else {
		list("Additional commands:", "")
	}
}

func listFlags(b *strings.Builder, title string, fs *pflag.FlagSet) {
	if fs.HasAvailableFlags() {
		fmt.Fprintf(b, "\n%s\n%s\n", title, strings.TrimRight(fs.FlagUsages(), "\n"))
	}
}
