package imagescan

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/license"
	"github.com/buildyard/buildyard/internal/scan/vulndb/update"
)

// checkEvery is the minimum time between two checks for a newer database by scans.
const checkEvery = time.Hour

// updateOptions converts settings to the options of an update.
func (g *globals) updateOptions(path string, s settings, l *cli.ProgressLine) (update.Options, error) {
	o := update.Options{Target: path, Listing: s.DBUpdateURL, Progress: func(done, total int64) {
		l.Show("Vulnerability database: %.1f of %.1f MB", float64(done)/1e6, float64(total)/1e6)
	}}
	if s.DBKey == "" {
		return o, nil
	}
	key, err := license.LoadKey(s.DBKey)
	if err != nil {
		return o, fmt.Errorf("db-key: %w", err)
	}
	o.Key = key
	return o, nil
}

// otherMost limits the wait of a scan for another process that updates the database.
const otherMost = 10 * time.Second

// autoUpdate updates the database before a scan. A failure, or a timeout, is reported and stops no
// scan.
func (g *globals) autoUpdate(ctx context.Context, path string, s settings) {
	if s.DBUpdateURL == "" {
		if st, err := update.Look(path); err == nil && st.Present {
			g.say("Vulnerability database: built %s; it is not updated, since no db-update-url is set", st.Info.Built.UTC().Format(time.DateOnly))
		}
		return
	}
	l := g.line()
	o, err := g.updateOptions(path, s, l)
	if err == nil {
		if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			o.Every = checkEvery
			o.Within, _ = s.updateWithin() // it was checked when the settings were read
			o.Wait = min(o.Within, otherMost)
			var st update.Status
			st, err = update.Update(ctx, o)
			l.Clear()
			if err == nil {
				g.say("Vulnerability database: %s, built %s", words[st.Outcome], st.Info.Built.UTC().Format(time.DateOnly))
			}
		}
	}
	if err != nil && ctx.Err() == nil {
		g.say("Vulnerability database: not updated: %s", strings.TrimPrefix(err.Error(), "update the vulnerability database: "))
	}
}

// words are the outcomes of an update in messages.
var words = map[update.Outcome]string{
	update.Updated: "updated", update.Current: "up to date", update.NotChecked: "up to date", update.Failed: "not updated",
}

func dbUpdateCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "update",
		Short: "Fetch a newer database, if there is one",
		Long: `update asks the listing at db-update-url of the configuration file whether there is a newer
database, fetches it, verifies it and puts it in place. A failure leaves the old one.`,
		Example: `  imagescan db update -c imagescan.yml`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, s, err := g.target()
			if err != nil {
				return err
			}
			if s.DBUpdateURL == "" {
				return cli.Usage(errors.New("there is no address to update from: set db-update-url in a configuration file and name it with -c"))
			}
			l := g.line()
			defer l.Clear()
			o, err := g.updateOptions(path, s, l)
			if err != nil {
				return cli.Usage(err)
			}
			st, err := update.Update(cmd.Context(), o)
			l.Clear()
			return g.tellDatabase(path, st, err)
		},
	}
}

// tellDatabase prints which database is in place now.
func (g *globals) tellDatabase(path string, st update.Status, err error) error {
	if err != nil || g.quiet {
		return err
	}
	_, err = fmt.Fprintf(g.Out, "%s: %s, built %s\n", cli.Plain(path), words[st.Outcome], st.Info.Built.UTC().Format(time.RFC3339))
	return err
}

func dbImportCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:     "import FILE",
		Short:   "Import an exported database",
		Long:    `import verifies a file that "imagescan db export" wrote, or a database, and puts it in place.`,
		Example: `  imagescan db import vuln.bundle`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, s, err := g.target()
			if err != nil {
				return err
			}
			l := g.line()
			defer l.Clear()
			o, err := g.updateOptions(path, s, l)
			if err != nil {
				return cli.Usage(err)
			}
			st, err := update.Import(cmd.Context(), args[0], o)
			l.Clear()
			return g.tellDatabase(path, st, err)
		},
	}
}

func dbExportCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:     "export FILE",
		Short:   "Write the database to a file for machines without a network",
		Example: `  imagescan db export vuln.bundle`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := g.settings()
			if err != nil {
				return cli.Usage(err)
			}
			path, err := g.database(s)
			if err != nil {
				return err
			}
			if err := spare(args[0], path); err != nil {
				return err
			}
			return writeBeside(args[0], func(w io.Writer) error {
				_, err := update.Export(cmd.Context(), path, w)
				return err
			})
		},
	}
}

func dbPublishCommand(g *globals) *cobra.Command {
	secret := ""
	cmd := &cobra.Command{
		Use:   "publish FOLDER",
		Short: "Put database and listing into a folder of a web server",
		Long: `publish copies the database into a folder and writes latest.json beside it: what db-update-url of
other machines names. With --key the listing is signed, for those that have the public key as db-key;
"buildyard license keygen --key FILE" makes such a pair.`,
		Example: `  imagescan db publish /srv/www/vulndb --key listing.key`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := g.settings()
			if err != nil {
				return cli.Usage(err)
			}
			path, err := g.database(s)
			if err != nil {
				return err
			}
			return g.publish(cmd.Context(), path, args[0], secret)
		},
	}
	cmd.Flags().StringVar(&secret, "key", "", "file with the secret to sign the listing with")
	return cmd
}

// publish writes a database into a directory under a unique name. It lists it last, so that a
// concurrent update finds every listed file.
func (g *globals) publish(ctx context.Context, path, folder, secret string) error {
	var key ed25519.PrivateKey
	var err error
	if secret != "" {
		if key, err = license.ReadSecret(secret); err != nil {
			return err
		}
	}
	st, err := update.Look(path)
	if err == nil && !st.Present {
		err = fmt.Errorf("vulnerability database %s not found", path)
	}
	if err != nil {
		return err
	}
	copied := filepath.Join(folder, "vuln-"+st.Info.Built.UTC().Format("20060102T150405Z")+".db")
	if err := writeBeside(copied, func(w io.Writer) error { return copyFile(w, path) }); err != nil {
		return err
	}
	listing := filepath.Join(folder, "latest.json")
	if _, err := update.WriteListing(ctx, update.ListingOptions{Database: copied, Target: listing, Key: key}); err != nil {
		return err
	}
	if g.quiet {
		return nil
	}
	_, err = fmt.Fprintf(g.Out, "%s names %s\n", cli.Plain(listing), cli.Plain(filepath.Base(copied)))
	return err
}

func copyFile(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}
