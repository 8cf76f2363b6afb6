package buildyard

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/cli/cloud"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/license"
	"github.com/buildyard/buildyard/internal/obs"
	"github.com/buildyard/buildyard/internal/release"
)

// packageKeyFile is the name of the file with the private key that signs agent packages.
const packageKeyFile = "packages.key"

// packagesDir returns the directory of the agent packages of a controller.
func packagesDir(v *config.Values) string {
	if dir := v.String(config.PackagesDir); dir != "" {
		return dir
	}
	return filepath.Join(v.String(config.DataDir), "pkg")
}

// packagesDirArg returns the directory that a command has as its argument, or the one of the controller's settings in
// the environment.
func packagesDirArg(args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	keys := []string{config.DataDir, config.PackagesDir}
	values, err := config.Load(tableOf(config.ControllerTable, keys...), config.Sources{Env: os.LookupEnv})
	if err != nil {
		return "", err
	}
	return packagesDir(values), nil
}

// tableOf returns the settings of a table with some keys.
func tableOf(table config.Table, keys ...string) config.Table {
	return slices.DeleteFunc(slices.Clone(table), func(s config.Setting) bool { return !slices.Contains(keys, s.Key) })
}

func packageCommand(io Streams) *cobra.Command {
	return cli.Family(&cobra.Command{
		Use:   "package",
		Short: "Manage agent packages",
		Long: `package creates a key pair, signs agent packages with its private key, and verifies a directory of
packages. A package is an archive buildnode-OS-ARCH.tar.gz with the program buildnode, for linux or
darwin on amd64 or arm64, in the controller's directory SVC_PACKAGES_DIR.

A node installs only packages that are signed with a trusted key. It gets the keys from the file
packages.pub of that directory when it joins, or with its first update if it has none, or from buildnode
join --update-key.

Nodes install a newer package automatically, a tenth of them at a time, unless the controller has
SVC_NO_NODE_UPGRADES=true or a rollout decides. DIR is by default the directory of the controller's
settings: SVC_PACKAGES_DIR, or pkg in SVC_DATA_DIR.`,
		Example: `  buildyard package keygen --out /secure/packages.key
  cp /secure/packages.pub buildnode-linux-amd64.tar.gz /var/lib/buildyard/controller/pkg/
  buildyard package sign --key /secure/packages.key /var/lib/buildyard/controller/pkg
  buildyard node update --wait`,
	}, packageKeygen(io), packageSign(io), packageList(io), cloud.RolloutCommand(io))
}

// defaultPackageKey is the default path of the private key.
func defaultPackageKey() string {
	return filepath.Join(filepath.Dir(defaultAuthorityKey()), packageKeyFile)
}

func packageKeygen(streams Streams) *cobra.Command {
	secret := ""
	cmd := &cobra.Command{
		Use:   "keygen",
		Short: "Create a signing key pair",
		Long: `keygen creates a key pair: the private key in the private file --out, and the public key next to it, in a
file that ends in .pub. It does not replace files.`,
		Example: `  buildyard package keygen --out /secure/packages.key`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			public, err := newPublicKeyPath(secret)
			if err != nil {
				return err
			}
			if err := license.GenerateKeys(secret, public); err != nil {
				return err
			}
			_, err = fmt.Fprintf(streams.Out,
				"secret: %s (keep it secret: it can install programs on nodes)\npublic: %s (copy it to %s in the "+
					"package directory)\n",
				secret, public, release.KeysFile)
			return err
		},
	}
	newKeyFlag(cmd, &secret, defaultPackageKey())
	return cmd
}

func addPackageKeyFlag(cmd *cobra.Command, secret *string) {
	cmd.Flags().StringVar(secret, "key", defaultPackageKey(), "file with the private key to sign with")
}

func packageSign(streams Streams) *cobra.Command {
	var secret, version string
	var output cli.Format
	cmd := &cobra.Command{
		Use:   "sign [DIR]",
		Short: "Sign the agent packages in a directory",
		Long: `sign signs every agent package in a directory and rewrites the file manifest. A controller with that
directory offers the packages within seconds. Packages of a release contain their version. For others
--version is the version that the program prints, by default that of this program.`,
		Example: `  buildyard package sign --key /secure/packages.key /var/lib/buildyard/controller/pkg
  buildyard package sign --key /secure/packages.key --version 1.2.0-3f2c1ab /srv/own-packages`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			dir, err := packagesDirArg(args)
			if err != nil {
				return err
			}
			if version != "" && !release.ValidVersion(version) {
				return cli.Usage(fmt.Errorf("invalid --version %q: want X.Y.Z-HASH, as the program prints it", version))
			}
			key, err := license.ReadSecret(secret)
			if err != nil {
				return err
			}
			list, err := release.SignDir(key, dir, version, obs.FullVersion())
			if err != nil {
				return err
			}
			return output.Write(streams.Out, list, packageRows(list))
		},
	}
	addPackageKeyFlag(cmd, &secret)
	cmd.Flags().StringVar(&version, "version", "",
		"version of the packages (default: the one in each package, else that of this program)")
	output.Add(cmd)
	return cmd
}

// packageRows shows packages as a table.
func packageRows(list []api.AgentPackage) func(*cli.Grid) {
	return func(g *cli.Grid) {
		g.Row("PACKAGE", "VERSION", "SIZE", "SHA256")
		for _, p := range list {
			g.Row(p.Name, p.Version, p.Size, p.SHA256)
		}
	}
}

func packageList(streams Streams) *cobra.Command {
	public := ""
	var output cli.Format
	cmd := &cobra.Command{
		Use:   "list [DIR]",
		Short: "Verify and list agent packages",
		Long: `list verifies the manifest of a directory and the packages in it. The trusted keys are those of --public,
else those in the directory. It calls no service.`,
		Example: `  buildyard package list /var/lib/buildyard/controller/pkg --public /secure/packages.pub`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			dir, err := packagesDirArg(args)
			if err != nil {
				return err
			}
			list, err := verifiedPackages(dir, public)
			if err != nil {
				return err
			}
			return output.Write(streams.Out, list, packageRows(list))
		},
	}
	cmd.Flags().StringVar(&public, "public",
		"", "file with the trusted public keys (default: packages.pub in the directory)")
	output.Add(cmd)
	return cmd
}

// verifiedPackages returns the packages of a directory if all of them match their signatures.
func verifiedPackages(dir, public string) ([]api.AgentPackage, error) {
	if public == "" {
		public = filepath.Join(dir, release.KeysFile)
	}
	raw, err := os.ReadFile(public)
	if err != nil {
		return nil, fmt.Errorf("read public keys: %w", err)
	}
	trust, err := license.ParseTrustedKeys(raw)
	if err != nil {
		return nil, fmt.Errorf("read public keys %s: %w", public, err)
	}
	list, err := release.ReadManifest(dir)
	if err != nil {
		return nil, err
	}
	for _, p := range list {
		if _, err := release.Verify(trust, p.Signed); err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		if err := release.CheckFile(filepath.Join(dir, p.Name), p); err != nil {
			return nil, err
		}
	}
	return list, nil
}
