package imagescan

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/scan/vulndb"
	"github.com/buildyard/buildyard/internal/scan/vulndb/build"
	"github.com/buildyard/buildyard/internal/scan/vulndb/update"
)

func dbCommand(g *globals) *cobra.Command {
	return cli.Family(&cobra.Command{
		Use:   "db",
		Short: "Manage the vulnerability database",
		Long: `db manages the vulnerability database: one file, built from public advisories. Its path is --db-path, or
db-path of the configuration file, or a file in the user's cache directory.`,
		Example: `  imagescan db build advisories/
  imagescan db status`,
	}, dbBuildCommand(g), dbUpdateCommand(g), dbStatusCommand(g), dbImportCommand(g), dbExportCommand(g),
		dbSyncCommand(g), dbPublishCommand(g))
}

// databasePath returns the path of the database.
func (g *globals) databasePath(s settings) (string, error) {
	if path := firstNonEmpty(g.dbPath, s.DBPath); path != "" {
		return path, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("path of the vulnerability database not found: %w; set --db-path", err)
	}
	return filepath.Join(cache, "buildyard", "vuln.db"), nil
}

// databaseTarget returns the path of the database for writing: its directory is created.
func (g *globals) databaseTarget() (path string, s settings, err error) {
	if s, err = g.settings(); err != nil {
		return "", s, cli.Usage(err)
	}
	if path, err = g.databasePath(s); err != nil {
		return "", s, err
	}
	return path, s, os.MkdirAll(filepath.Dir(path), 0o755)
}

func dbBuildCommand(g *globals) *cobra.Command {
	var temp string
	var rejected bool
	var rematch rematchOptions
	cmd := rematch.add(&cobra.Command{
		Use:   "build PATH...",
		Short: "Build the database from advisory files",
		Long: `build builds a new database from feeds in directories and archives (.zip, .tar.gz, .tar.zst, .json.gz):
Go, RustSec, RubySec, PyPA, GHSA and Homebrew advisories, OSV archives (also those of Debian, Ubuntu,
Alpine, Red Hat and SUSE), the JSON of Debian's security tracker, NVD 2.0 feeds and records, CVE
5.1 records, the catalog of known exploited vulnerabilities, and EPSS. Formats are detected by
content. A directory of "db sync" is read by its manifest, and its checksums are verified. Invalid
records are counted and listed, and do not affect the others.` + rematchHelp,
		Example: `  imagescan db build advisories/
  imagescan db build npm.zip PyPI.zip nvdcve-2.0-2026.json.gz epss_scores.csv.gz --db-path vuln.db`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, s, err := g.databaseTarget()
			if err != nil {
				return err
			}
			if err := rematch.open(g); err != nil {
				return err
			}
			o := build.Options{Inputs: args, Target: path, Temp: temp}
			if err := g.buildDatabase(cmd.Context(), o, rejected); err != nil {
				return err
			}
			if !g.quiet {
				if _, err := fmt.Fprintf(g.Out, "Written to %s\n", cli.EscapeName(path)); err != nil {
					return err
				}
			}
			return rematch.run(cmd.Context(), g, s)
		},
	})
	cmd.Flags().StringVar(&temp, "temp-dir", "", "directory for temporary files (default: that of the database)")
	cmd.Flags().BoolVar(&rejected, "show-rejected", false, "list rejected records with reasons")
	return cmd
}

func (g *globals) buildDatabase(ctx context.Context, o build.Options, rejected bool) error {
	release, err := g.openMirrors(ctx, &o)
	if err != nil {
		return err
	}
	defer release()
	l := g.newProgressLine()
	defer l.Clear()
	o.Progress = func(p build.Progress) {
		l.Show("%s: %d records, %d rejected: %s", p.Stage, p.Records, p.Rejected, p.Input)
	}
	rep, err := build.Build(ctx, o)
	l.Clear()
	if err != nil {
		return err
	}
	if g.quiet {
		return nil
	}
	if rejected {
		for _, s := range rep.Sources {
			for _, r := range s.Rejections {
				g.printMessage("rejected: %s: %s: %s", s.Name, r.Record, r.Reason)
			}
		}
	}
	return rep.Print(g.Out)
}

func dbStatusCommand(g *globals) *cobra.Command {
	var output cli.Format
	cmd := &cobra.Command{
		Use:   "status [MIRROR]",
		Short: "Show database contents and age",
		Long:  `status shows the sources, dates and counts of the database, or those of a directory of "db sync".`,
		Example: `  imagescan db status --output json
  imagescan db status mirror/`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return g.mirrorStatus(cmd.Context(), args[0], output)
			}
			s, err := g.settings()
			if err != nil {
				return cli.Usage(err)
			}
			path, err := g.databasePath(s)
			if err != nil {
				return err
			}
			db, err := vulndb.Open(path)
			if errors.Is(err, os.ErrNotExist) {
				return cli.Exit(cli.ExitNotFound, fmt.Errorf("vulnerability database %s not found", path))
			}
			if err != nil {
				return err
			}
			defer func() { _ = db.Close() }()
			st := toDBStatus(path, db.Info(), time.Now())
			if checked, err := update.CurrentStatus(path); err == nil && !checked.CheckedAt.IsZero() {
				st.Checked = &checked.CheckedAt
			}
			return output.Write(g.Out, st, st.fillTable)
		},
	}
	output.AddLong(cmd)
	return cmd
}

// dbStatus is the JSON output of status.
type dbStatus struct {
	Path            string                   `json:"path"`
	Size            int64                    `json:"size"`
	Schema          int                      `json:"schema"`
	Built           time.Time                `json:"built"`
	AgeHours        int                      `json:"age-hours"`
	Checked         *time.Time               `json:"checked,omitempty"` // last successful check for a newer one
	Advisories      int64                    `json:"advisories"`
	Vulnerabilities int64                    `json:"vulnerabilities"`
	Applicabilities int64                    `json:"applicabilities"`
	Sources         []api.ScanDatabaseSource `json:"sources"`
}

func toDBStatus(path string, i vulndb.Info, now time.Time) dbStatus {
	return dbStatus{
		Path: path, Size: i.Size, Schema: int(i.Schema), Built: i.Built, AgeHours: int(now.Sub(i.Built).Hours()),
		Advisories: int64(i.Advisories), Vulnerabilities: int64(i.Vulnerabilities),
		Applicabilities: int64(i.Applicabilities),
		Sources:         toScanDatabase(i).Sources,
	}
}

func (s dbStatus) fillTable(t *cli.Grid) {
	t.Row("database", s.Path)
	t.Row("built", fmt.Sprintf("%s (%d days old)", s.Built.UTC().Format(time.RFC3339), s.AgeHours/24))
	checked := "never, for a newer one"
	if s.Checked != nil {
		checked = describeCheck(*s.Checked, time.Now())
	}
	t.Row("checked", checked)
	t.Row("size", bytesize.Format(s.Size))
	t.Row("advisories", s.Advisories)
	t.Row("vulnerabilities", s.Vulnerabilities)
	t.Row("products", s.Applicabilities)
	for _, src := range s.Sources {
		date := "-"
		if !src.Date.IsZero() {
			date = src.Date.UTC().Format(time.DateOnly)
		}
		t.Row("source", fmt.Sprintf("%s, newest record %s, %d records", src.Name, date, src.Records))
	}
}
