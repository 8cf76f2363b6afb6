package imagescan

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/license"
	"github.com/buildyard/buildyard/internal/scan/vulndb/build"
	"github.com/buildyard/buildyard/internal/scan/vulndb/update"
)

func dbPublishCommand(g *globals) *cobra.Command {
	secret := ""
	var from []string
	cmd := &cobra.Command{
		Use:   "publish DIRECTORY",
		Short: "Publish database and listing for updates",
		Long: `publish copies the database to a directory and writes latest.json next to it, the listing for the
db-update-url of other machines. With --from it builds the database from a mirror or advisory files
instead. With --key the listing is signed for machines that have the public key as db-key;
"buildyard license keygen --out FILE" creates a key pair. A newer published database is not replaced.
The last three databases stay.`,
		Example: `  imagescan db publish /srv/www/vulndb --key listing.key
  imagescan db publish /srv/www/vulndb --from mirror/ --key listing.key`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o := update.PublishOptions{Dir: args[0]}
			if secret != "" {
				key, err := license.ReadSecret(secret)
				if err != nil {
					return err
				}
				o.Key = ed25519.PrivateKey(key)
			}
			s, err := g.settings()
			if err != nil {
				return cli.Usage(err)
			}
			release, err := update.LockPublished(cmd.Context(), o.Dir)
			if err != nil {
				return err
			}
			defer release()
			if len(from) > 0 {
				return g.publishBuilt(cmd.Context(), o, from)
			}
			if o.Database, err = g.databasePath(s); err != nil {
				return err
			}
			return g.publish(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&secret, "key", "", "private key file to sign the listing with")
	cmd.Flags().StringArrayVar(&from, "from", nil, "mirror or advisory files to build the database from; may repeat")
	return cmd
}

// builtName is the name of a database in the directory of published ones until it is complete.
const builtName = ".build.db"

// publishBuilt builds a database and publishes it.
func (g *globals) publishBuilt(ctx context.Context, o update.PublishOptions, inputs []string) error {
	o.Database = filepath.Join(o.Dir, builtName)
	defer os.Remove(o.Database)
	if err := g.buildDatabase(ctx, build.Options{Inputs: inputs, Target: o.Database}, false); err != nil {
		return err
	}
	return g.publish(ctx, o)
}

func (g *globals) publish(ctx context.Context, o update.PublishOptions) error {
	st, err := update.CurrentStatus(o.Database)
	if err == nil && !st.Present {
		err = fmt.Errorf("vulnerability database %s not found", o.Database)
	}
	if err != nil {
		return err
	}
	l, err := update.Publish(ctx, o)
	if err != nil || g.quiet {
		return err
	}
	_, err = fmt.Fprintf(g.Out, "%s lists %s\n", cli.EscapeName(filepath.Join(o.Dir, update.ListingName)),
		cli.EscapeName(l.Path))
	return err
}
