// Package releases has the commands that are about the files of a release: they verify them, and sign them for the
// maintainers. It also has the check of a running service that containers use.
//
// It does not download or install anything.
//
// Invariant: no command prints a secret key or takes one as an argument.
package releases

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/obs"
	"github.com/buildyard/buildyard/internal/release/checksums"
)

// Commands returns the commands of the program buildyard.
func Commands(streams cli.Streams, controller ControllerAddress) []*cobra.Command {
	return []*cobra.Command{releaseCommand(streams), healthCommand(streams, controller)}
}

func releaseCommand(streams cli.Streams) *cobra.Command {
	return cli.Family(&cobra.Command{
		Use:   "release",
		Short: "Verify the files of a release",
		Long: `release verifies the files of a release before they are installed: SHA256SUMS lists them, and
SHA256SUMS.minisig is its signature, which the program minisign verifies too. keygen and sign are for
those who make releases.`,
		Example: `  buildyard release verify --key release.pub ./downloads
  minisign -V -p release.pub -m SHA256SUMS && sha256sum -c SHA256SUMS`,
	}, verifyCommand(streams), keygenCommand(streams), signCommand(streams))
}

func verifyCommand(streams cli.Streams) *cobra.Command {
	var key, oldest string
	var output cli.Format
	cmd := &cobra.Command{
		Use:   "verify DIR|FILE",
		Short: "Verify the files of a release",
		Long: `verify verifies a directory with all files of a release, or one of them next to SHA256SUMS and
SHA256SUMS.minisig. It fails if a file was changed, replaced, added or removed, if another key signed
the list, and if the list is of a release older than --at-least, by default the version of this
program: an attacker may offer an old release, whose signature is valid, as the new one.`,
		Example: `  buildyard release verify --key release.pub ./downloads
  buildyard release verify --key release.pub --at-least 1.2.0 buildyard_1.2.0_linux_amd64.tar.gz`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			v, err := checksums.Verify(args[0], key, oldest)
			if err != nil {
				return err
			}
			return output.Write(streams.Out, v, func(g *cli.Grid) {
				g.Row("version", v.Version)
				g.Row("verified", cli.Plural(len(v.Files), "file"))
			})
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "file with the public key of the maintainers")
	cmd.Flags().StringVar(&oldest, "at-least", obs.FullVersion(), `oldest accepted version; "" for any`)
	cmd.Flag("at-least").DefValue = "" // the version of the program differs from build to build
	_ = cmd.MarkFlagRequired("key")
	output.Add(cmd)
	return cmd
}

func keygenCommand(streams cli.Streams) *cobra.Command {
	var secret string
	cmd := &cobra.Command{
		Use:   "keygen",
		Short: "Create a key pair for signing releases",
		Long: `keygen creates a key pair: the secret key in the private file --out, not encrypted, and the public key next
to it, in a file that ends in .pub. It does not replace files.`,
		Example: `  buildyard release keygen --out /secure/release.key`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			public := strings.TrimSuffix(secret, ".key") + checksums.KeySuffix
			if err := checksums.GenerateKey(secret, public); err != nil {
				return err
			}
			_, err := fmt.Fprintf(streams.Out, "secret: %s (keep it secret: it signs releases)\npublic: %s\n", secret,
				public)
			return err
		},
	}
	cmd.Flags().StringVar(&secret, "out", "release.key", "new file for the secret key")
	return cmd
}

func signCommand(streams cli.Streams) *cobra.Command {
	var secret, version string
	cmd := &cobra.Command{
		Use:   "sign DIR",
		Short: "List and sign the files of a release",
		Long: `sign writes SHA256SUMS with all files of a directory, and SHA256SUMS.minisig, the signature with the version in
its trusted comment.`,
		Example: `  buildyard release sign --key /secure/release.key --version 1.2.0-3f2c1ab dist`,
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			names, err := checksums.Sign(args[0], secret, version)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(streams.Out, "signed %s as %s\n", cli.Plural(len(names), "file"), version)
			return err
		},
	}
	cmd.Flags().StringVar(&secret, "key", "release.key", "file with the secret key")
	cmd.Flags().StringVar(&version, "version", obs.FullVersion(), "version of the release")
	cmd.Flag("version").DefValue = ""
	return cmd
}
