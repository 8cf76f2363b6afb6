package imagescan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/license"
	"github.com/buildyard/buildyard/internal/scan/vulndb/update"
)

// minCheckInterval is the minimum time between two checks for a newer database by scans.
const minCheckInterval = time.Hour

// updateOptions converts settings to the options of an update.
func (g *globals) updateOptions(path string, s settings, l *cli.ProgressLine) (update.Options, error) {
	o := update.Options{Target: path, Listing: s.DBUpdateURL, Progress: func(done, total int64) {
		l.Show("Vulnerability database: %s of %s", bytesize.Format(done), bytesize.Format(total))
	}}
	if s.DBKey == "" {
		return o, nil
	}
	key, err := license.LoadPublicKey(s.DBKey)
	if err != nil {
		return o, fmt.Errorf("db-key: %w", err)
	}
	o.Key = key
	return o, nil
}

// lockTimeout limits the wait of a scan for another process that updates the database.
const lockTimeout = 10 * time.Second

// autoUpdate updates the database before a scan. A failure, or a timeout, is reported and stops no
// scan.
func (g *globals) autoUpdate(ctx context.Context, path string, s settings) {
	if s.DBUpdateURL == "" {
		if st, err := update.CurrentStatus(path); err == nil && st.Present {
			g.printMessage("Vulnerability database: built %s; not updated, db-update-url is not set",
				st.Info.Built.UTC().Format(time.DateOnly))
		}
		return
	}
	l := g.newProgressLine()
	o, err := g.updateOptions(path, s, l)
	if err == nil {
		if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			o.CheckInterval = minCheckInterval
			o.Timeout, _ = s.updateTimeout() // already checked
			o.LockTimeout = min(o.Timeout, lockTimeout)
			var st update.Status
			st, err = update.Update(ctx, o)
			l.Clear()
			if err == nil {
				g.printMessage("Vulnerability database: %s, built %s", describeOutcome(st, time.Now()),
					st.Info.Built.UTC().Format(time.DateOnly))
			}
		}
	}
	if err != nil && ctx.Err() == nil {
		g.printMessage("Vulnerability database: not updated: %s",
			strings.TrimPrefix(err.Error(), "update the vulnerability database: "))
	}
}

// describeOutcome describes the outcome of an update. That a database is up to date is only known of the time of the
// last check, after which the server may have a newer one, or be out of reach.
func describeOutcome(st update.Status, now time.Time) string {
	switch st.Outcome {
	case update.Updated:
		return "updated"
	case update.Current, update.NotChecked:
		return "up to date when checked " + describeCheck(st.CheckedAt, now)
	default:
		return "not updated"
	}
}

// describeCheck formats the time of a check: "2 h ago (2026-11-30 07:00 UTC)".
func describeCheck(at, now time.Time) string {
	return fmt.Sprintf("%s ago (%s)", cli.FormatAge(max(0, now.Sub(at))), at.UTC().Format("2006-01-02 15:04 UTC"))
}

func dbUpdateCommand(g *globals) *cobra.Command {
	var rematch rematchOptions
	return rematch.add(&cobra.Command{
		Use:   "update",
		Short: "Update the database",
		Long: `update reads the listing at db-update-url of the configuration file. If there is a newer database, it
downloads, verifies and installs it. On failure the old database stays.` + rematchHelp,
		Example: `  imagescan db update -c imagescan.yml
  imagescan db update -c imagescan.yml --controller http://controller.example:8090`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, s, err := g.databaseTarget()
			if err != nil {
				return err
			}
			if s.DBUpdateURL == "" {
				return cli.Usage(
					errors.New("db-update-url is not set; set it in a configuration file and pass the file with -c"))
			}
			if err := rematch.open(g); err != nil {
				return err
			}
			l := g.newProgressLine()
			defer l.Clear()
			o, err := g.updateOptions(path, s, l)
			if err != nil {
				return cli.Usage(err)
			}
			st, err := update.Update(cmd.Context(), o)
			l.Clear()
			if err := g.printDatabase(path, st, err); err != nil {
				return err
			}
			return rematch.run(cmd.Context(), g, s)
		},
	})
}

// printDatabase prints the current database.
func (g *globals) printDatabase(path string, st update.Status, err error) error {
	if err != nil || g.quiet {
		return err
	}
	_, err = fmt.Fprintf(g.Out, "%s: %s, built %s\n", cli.EscapeName(path), describeOutcome(st, time.Now()),
		st.Info.Built.UTC().Format(time.RFC3339))
	return err
}

func dbImportCommand(g *globals) *cobra.Command {
	var rematch rematchOptions
	return rematch.add(&cobra.Command{
		Use:     "import FILE",
		Short:   "Import an exported database",
		Long:    `import verifies and installs a file of "imagescan db export", or a database.` + rematchHelp,
		Example: `  imagescan db import vuln.bundle`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, s, err := g.databaseTarget()
			if err != nil {
				return err
			}
			if err := rematch.open(g); err != nil {
				return err
			}
			l := g.newProgressLine()
			defer l.Clear()
			o, err := g.updateOptions(path, s, l)
			if err != nil {
				return cli.Usage(err)
			}
			st, err := update.Import(cmd.Context(), args[0], o)
			l.Clear()
			if err := g.printDatabase(path, st, err); err != nil {
				return err
			}
			return rematch.run(cmd.Context(), g, s)
		},
	})
}

func dbExportCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:     "export FILE",
		Short:   "Export the database for offline machines",
		Example: `  imagescan db export vuln.bundle`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := g.settings()
			if err != nil {
				return cli.Usage(err)
			}
			path, err := g.databasePath(s)
			if err != nil {
				return err
			}
			if err := checkNotInput(args[0], path); err != nil {
				return err
			}
			return writeAtomic(args[0], func(w io.Writer) error {
				_, err := update.Export(cmd.Context(), path, w)
				return err
			})
		},
	}
}
