package cli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// AcceptOldFlags has every command of a tree accept earlier names of its flags, given as old name ->
// name. Help, documents and completion show the name only.
func AcceptOldFlags(root *cobra.Command, names map[string]string) {
	root.SetGlobalNormalizationFunc(func(_ *pflag.FlagSet, given string) pflag.NormalizedName {
		if name, old := names[given]; old {
			return pflag.NormalizedName(name)
		}
		return pflag.NormalizedName(given)
	})
}
