package buildyard

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/registry"
)

// storageCommands are the subcommands of "buildyard registry".
func storageCommands(streams Streams) []*cobra.Command {
	return []*cobra.Command{
		checkCommand(streams), repairCommand(streams), gcCommand(streams), statsCommand(streams), copyCommand(streams),
	}
}

// checkDepth is how thoroughly layers are checked.
type checkDepth struct {
	deep bool
	rate string
}

func (d *checkDepth) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&d.deep, "deep", false, "read and verify every frame of every layer")
	cmd.Flags().StringVar(&d.rate, "rate", "0B",
		"bytes to read per second with --deep, for example 100MB; 0B: unlimited")
}

func (d *checkDepth) rateBytes() (int64, error) {
	n, err := config.ParseSize(d.rate)
	if err != nil {
		return 0, cli.Usage(fmt.Errorf("invalid --rate %q: want a number with its unit, for example 100MB", d.rate))
	}
	return n, nil
}

func checkCommand(streams Streams) *cobra.Command {
	k := storageCommand{Streams: streams}
	var d checkDepth
	cmd := k.add(&cobra.Command{
		Use:   "check",
		Short: "Check registry storage",
		Long: `check reads every template and verifies its layers: existence, size, index and position in the chain, and
the version directories. It changes nothing. With --deep it also reads and verifies every frame.

The exit code is 1 when data is lost that "repair" cannot restore.`,
		Example: `  buildyard registry check
  buildyard registry check --deep --rate 100MB
  buildyard registry check --base-path /srv/templates --json | jq '.findings[]'`,
	}, func(ctx context.Context) error {
		rate, err := d.rateBytes()
		if err != nil {
			return err
		}
		var report api.RegistryCheck
		done, err := k.runOffline(func() (err error) {
			report, err = registry.CheckStorage(ctx, k.storageDir,
				registry.CheckOptions{Deep: d.deep, Rate: rate, Progress: k.throttledProgress()})
			return err
		})
		if err == nil && !done {
			var u api.StorageJob
			if u, err = k.runJob(ctx,
				api.StorageJobRequest{Do: api.StorageJobCheck, Deep: d.deep, Rate: rate}); err == nil {
				report = *u.Check
			}
		}
		if err != nil {
			return err
		}
		if err := k.Output.Write(k.Out, report, checkTable(report)); err != nil {
			return err
		}
		return lossError(report.Lost)
	})
	d.add(cmd)
	return cmd
}

// lossError returns the losses of a storage as an error.
func lossError(count int) error {
	if count == 0 {
		return nil
	}
	return fmt.Errorf(
		"%d findings are losses of data: push the layers again, restore their files from a copy, or revert "+
			"the versions", count)
}

func checkTable(c api.RegistryCheck) func(*cli.Grid) {
	return func(g *cli.Grid) {
		g.Row("templates", c.Templates)
		g.Row("versions", c.Versions)
		g.Row("layers", fmt.Sprintf("%d, %s", c.Layers, bytesize.Format(c.Bytes)))
		if c.Verified > 0 {
			g.Row("verified", bytesize.Format(c.Verified))
		}
		g.Row("findings", fmt.Sprintf("%d, %d of them losses", len(c.Findings), c.Lost))
		findingRows(g, c.Findings)
	}
}

func findingRows(g *cli.Grid, findings []api.RegistryFinding) {
	for _, f := range findings {
		kind, where := "fault", f.Template
		if f.Loss {
			kind = "LOSS"
		}
		if f.Version != nil {
			where = fmt.Sprintf("%s version %d", f.Template, *f.Version)
		}
		problem := f.Problem
		if f.Layer != "" {
			problem += " (" + f.Layer + ")"
		}
		g.Row(kind, where+": "+problem)
	}
}

func repairCommand(streams Streams) *cobra.Command {
	k := storageCommand{Streams: streams}
	var d checkDepth
	cmd := k.add(&cobra.Command{
		Use:   "repair",
		Short: "Repair registry storage",
		Long: `repair finishes interrupted moves, rewrites the text files of versions, restores layers from the trash
that a version needs, imports layer files that were copied into the storage, and quarantines
unreadable templates and unreadable layers that no version needs. It removes no readable data: layers
of a quarantined template are kept as long as it is in aside_dir. Losses are listed and left alone.

The exit code is 1 when data is lost that it could not restore.`,
		Example: `  buildyard registry repair
  cp /backup/images_dir/*.ank /srv/templates/images_dir/ && buildyard registry repair`,
	}, func(ctx context.Context) error {
		rate, err := d.rateBytes()
		if err != nil {
			return err
		}
		var report api.RegistryRepair
		done, err := k.runOffline(func() (err error) {
			report, err = registry.RepairStorage(ctx, registry.Options{Base: k.storageDir},
				registry.CheckOptions{Deep: d.deep, Rate: rate, Progress: k.throttledProgress()})
			return err
		})
		if err == nil && !done {
			var u api.StorageJob
			if u, err = k.runJob(ctx,
				api.StorageJobRequest{Do: api.StorageJobRepair, Deep: d.deep, Rate: rate}); err == nil {
				report = *u.Repair
			}
		}
		if err != nil {
			return err
		}
		if err := k.Output.Write(k.Out, report, repairTable(report)); err != nil {
			return err
		}
		return lossError(report.Lost)
	})
	d.add(cmd)
	return cmd
}

func repairTable(r api.RegistryRepair) func(*cli.Grid) {
	return func(g *cli.Grid) {
		g.Row("repaired", len(r.Repaired))
		findingRows(g, r.Repaired)
		g.Row("quarantined", len(r.SetAside))
		for _, a := range r.SetAside {
			g.Row("quarantine", fmt.Sprintf("%s to %s: %s", a.What, a.Place, a.Problem))
		}
		g.Row("remaining", fmt.Sprintf("%d, %d of them losses", len(r.Left), r.Lost))
		findingRows(g, r.Left)
	}
}

func gcCommand(streams Streams) *cobra.Command {
	k := storageCommand{Streams: streams}
	var o registry.GCOptions
	var yes cli.Confirmation
	cmd := k.add(&cobra.Command{
		Use:   "gc",
		Short: "Run garbage collection",
		Long: `gc moves every layer that no version, push or pull needs to the trash, without the usual grace period of
an hour, and deletes layers that have been in the trash for a day. With --empty-trash it deletes the
whole trash: deleted layers cannot be restored.`,
		Example: `  buildyard registry gc --dry-run
  buildyard registry gc --empty-trash --yes`,
	}, func(ctx context.Context) error {
		if o.EmptyTrash && !o.DryRun {
			if err := yes.Ask(ctx, k.Streams, "Delete everything in the trash permanently?"); err != nil {
				return err
			}
		}
		var report api.RegistryGC
		done, err := k.runOffline(func() error {
			return k.withStorage(ctx, func(r *registry.Registry) (err error) {
				report, err = r.GC(ctx, o)
				return err
			})
		})
		if err == nil && !done {
			var u api.StorageJob
			if u, err = k.runJob(ctx,
				api.StorageJobRequest{Do: api.StorageJobGC, DryRun: o.DryRun, EmptyTrash: o.EmptyTrash}); err == nil {
				report = *u.GC
			}
		}
		if err != nil {
			return err
		}
		return k.Output.Write(k.Out, report, gcTable(report))
	})
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "show the result without making changes")
	cmd.Flags().BoolVar(&o.EmptyTrash, "empty-trash", false,
		"delete everything in the trash permanently, whatever its age; asks for confirmation")
	yes.Add(cmd)
	return cmd
}

func gcTable(r api.RegistryGC) func(*cli.Grid) {
	return func(g *cli.Grid) {
		g.Row("moved to the trash", fmt.Sprintf("%d layers, %s", r.Layers, bytesize.Format(r.Bytes)))
		g.Row("kept for pulls", fmt.Sprintf("%d layers, %s", r.Waiting, bytesize.Format(r.WaitBytes)))
		g.Row("deleted permanently", fmt.Sprintf("%d, %s", r.Purged, bytesize.Format(r.PurgedSize)))
		g.Row("in the trash", bytesize.Format(r.Trash))
		if r.DryRun {
			g.Row("no change", "--dry-run")
		}
	}
}

func statsCommand(streams Streams) *cobra.Command {
	k := storageCommand{Streams: streams}
	return k.add(&cobra.Command{
		Use:     "stats",
		Short:   "Show storage usage",
		Long:    `stats shows the numbers of templates, versions and layers, and the storage usage.`,
		Example: `  buildyard registry stats --json | jq .reclaimable`,
	}, func(ctx context.Context) error {
		var stats api.RegistryStats
		done, err := k.runOffline(func() error {
			return k.withStorage(ctx, func(r *registry.Registry) (err error) {
				stats, err = r.Stats(ctx)
				return err
			})
		})
		if err == nil && !done {
			stats, err = k.client.Stats(ctx)
		}
		if err != nil {
			return err
		}
		return k.Output.Write(k.Out, stats, statsTable(stats))
	})
}

func statsTable(s api.RegistryStats) func(*cli.Grid) {
	return func(g *cli.Grid) {
		g.Row("templates", fmt.Sprintf("%d, %d problems", s.Templates, s.Damaged))
		g.Row("versions", fmt.Sprintf("%d, the longest chain has %d layers", s.Versions, s.Longest))
		g.Row("layers", s.Layers)
		g.Row("push sessions", fmt.Sprintf("%d, %s received, up to %s to come", s.Sessions, bytesize.Format(s.Uploads),
			bytesize.Format(s.Reserved)))
		g.Row("disks", bytesize.Format(s.Disks))
		g.Row("saved states", bytesize.Format(s.States))
		g.Row("shared", fmt.Sprintf("%s of %s are stored once for several versions", bytesize.Format(s.Shared),
			bytesize.Format(s.Pulled)))
		g.Row("reclaimable", fmt.Sprintf("%s: unreferenced layers %s, trash %s", bytesize.Format(s.Reclaimable),
			bytesize.Format(s.Loose), bytesize.Format(s.Trash)))
		if s.Aside > 0 {
			g.Row("quarantined", bytesize.Format(s.Aside))
		}
		if s.Others > 0 {
			g.Row("other files", bytesize.Format(s.Others))
		}
		g.Row("free", fmt.Sprintf("%s of %s", bytesize.Format(s.Free), bytesize.Format(s.Total)))
		g.Row("scrub", fmt.Sprintf("%s of this round verified, %d layers damaged", bytesize.Format(s.Scrub.Verified),
			s.Scrub.Damaged))
	}
}
