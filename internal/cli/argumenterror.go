package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// argumentForm returns a command with its arguments as its help names them, such as "prog db build PATH...".
func argumentForm(cmd *cobra.Command) string {
	_, arguments, _ := strings.Cut(cmd.Use, " ")
	return strings.TrimSpace(cmd.CommandPath() + " " + arguments)
}

// nameArguments makes a check of the number of arguments report which arguments the command takes.
func nameArguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		if err == nil || !strings.Contains(err.Error(), " arg(s), ") {
			return err
		}
		return fmt.Errorf("found %s, want: %s", Plural(len(args), "argument"), argumentForm(cmd))
	}
}

// valueForms describes the values of flags by the type of the flag.
var valueForms = map[string]string{
	"bool": "true or false", "duration": "a duration such as 90s, 10m or 24h", "float32": "a number",
	"float64": "a number", "int": "a whole number", "int64": "a whole number", "uint": "a whole number from 0",
	"uint64": "a whole number from 0",
}

// nameValue replaces the error of a parser about the value of a flag by what the flag takes.
func nameValue(err error) error {
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	f := invalid.GetFlag()
	if form, known := valueForms[f.Value.Type()]; known {
		return fmt.Errorf("invalid --%s %q: want %s", f.Name, invalid.GetValue(), form)
	}
	return err
}

// exclusivePattern matches cobra's error about flags that exclude each other; its group has those that are set.
var exclusivePattern = regexp.MustCompile(`^if any flags in the group \[.*\] are set none of the others can be; ` +
	`\[(.*)\] were all set$`)

// requiredPattern matches cobra's error about flags of which one is required.
var requiredPattern = regexp.MustCompile(`^at least one of the flags in the group \[(.*)\] is required$`)

// nameFlagGroup replaces cobra's errors about flags that belong together.
func nameFlagGroup(err error) error {
	if m := exclusivePattern.FindStringSubmatch(err.Error()); m != nil {
		return errors.New(joinFlags(m[1], "and") + " are mutually exclusive")
	}
	if m := requiredPattern.FindStringSubmatch(err.Error()); m != nil {
		return errors.New("want " + joinFlags(m[1], "or"))
	}
	return err
}

// joinFlags joins the names of flags that are separated by spaces.
func joinFlags(names, word string) string {
	flags := strings.Fields(names)
	for i := range flags {
		flags[i] = "--" + flags[i]
	}
	last := len(flags) - 1
	if last == 0 {
		return flags[0]
	}
	return strings.Join(flags[:last], ", ") + " " + word + " " + flags[last]
}
