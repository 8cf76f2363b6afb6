package buildyard

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/registry"
)

// storageCommands are the commands beneath "buildyard registry".
func storageCommands(streams Streams) []*cobra.Command {
	return []*cobra.Command{checkCommand(streams), repairCommand(streams), gcCommand(streams), statsCommand(streams)}
}

// checkDepth is how thoroughly layers are checked.
type checkDepth struct {
	deep bool
	rate string
}

func (d *checkDepth) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&d.deep, "deep", false, "read and verify every frame of every layer")
	cmd.Flags().StringVar(&d.rate, "rate", "0B", "with --deep: how much to read in a second, for example 100MB; 0B: as fast as it goes")
}

func (d *checkDepth) bytes() (int64, error) {
	n, err := config.ParseSize(d.rate)
	if err != nil {
		return 0, cli.Usage(fmt.Errorf("--rate: %q is no size: give a number with its unit, for example 100MB", d.rate))
	}
	return n, nil
}

func checkCommand(streams Streams) *cobra.Command {
	k := storageCommand{Streams: streams}
	var d checkDepth
	cmd := k.add(&cobra.Command{
		Use:   "check",
		Short: "Check registry storage",
		Long: `check reads every template and looks at every layer that it names: is it there, has it its
size, its index and its place, do the layers of a chain fit, is the version's directory
complete. It changes nothing. With --deep it reads and verifies every frame too.

The exit code is 1 when something is lost that "repair" cannot bring back.`,
		Example: `  buildyard registry check
  buildyard registry check --deep --rate 100MB
  buildyard registry check --base-path /srv/templates --json | jq '.findings[]'`,
	}, func(ctx context.Context) error {
		rate, err := d.bytes()
		if err != nil {
			return err
		}
		var report api.RegistryCheck
		done, err := k.here(func() (err error) {
			report, err = registry.CheckStorage(ctx, k.base, registry.CheckOptions{Deep: d.deep, Rate: rate, Progress: k.often()})
			return err
		})
		if err == nil && !done {
			var u api.StorageJob
			if u, err = k.upkeep(ctx, api.StorageJobRequest{Do: api.UpkeepCheck, Deep: d.deep, Rate: rate}); err == nil {
				report = *u.Check
			}
		}
		if err != nil {
			return err
		}
		if err := k.Output.Write(k.Out, report, checkTable(report)); err != nil {
			return err
		}
		return lost(report.Lost)
	})
	d.add(cmd)
	return cmd
}

// lost returns the losses of a storage as the error of a command.
func lost(count int) error {
	if count == 0 {
		return nil
	}
	return fmt.Errorf("%d findings are losses: push the layers again, put their files back from a copy, or revert the versions", count)
}

func checkTable(c api.RegistryCheck) func(*cli.Grid) {
	return func(g *cli.Grid) {
		g.Row("templates", c.Templates)
		g.Row("versions", c.Versions)
		g.Row("layers", fmt.Sprintf("%d, %s", c.Layers, bytesText(c.Bytes)))
		if c.Verified > 0 {
			g.Row("verified", bytesText(c.Verified))
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
		Long: `repair finishes moves that were cut, writes the text files of versions again, takes layers
back from the trash that a version needs, takes in layer files that were copied into the
storage, and sets aside templates that cannot be read and layers that nothing needs and
nobody can read. It removes nothing that can be read: what a template set aside names is
kept as long as it lies in aside_dir. What is lost is listed and left alone.

The exit code is 1 when something is lost that it could not bring back.`,
		Example: `  buildyard registry repair
  cp /backup/images_dir/*.ank /srv/templates/images_dir/ && buildyard registry repair`,
	}, func(ctx context.Context) error {
		rate, err := d.bytes()
		if err != nil {
			return err
		}
		var report api.RegistryRepair
		done, err := k.here(func() (err error) {
			report, err = registry.RepairStorage(ctx, registry.Options{Base: k.base}, registry.CheckOptions{Deep: d.deep, Rate: rate, Progress: k.often()})
			return err
		})
		if err == nil && !done {
			var u api.StorageJob
			if u, err = k.upkeep(ctx, api.StorageJobRequest{Do: api.UpkeepRepair, Deep: d.deep, Rate: rate}); err == nil {
				report = *u.Repair
			}
		}
		if err != nil {
			return err
		}
		if err := k.Output.Write(k.Out, report, repairTable(report)); err != nil {
			return err
		}
		return lost(report.Lost)
	})
	d.add(cmd)
	return cmd
}

func repairTable(r api.RegistryRepair) func(*cli.Grid) {
	return func(g *cli.Grid) {
		g.Row("repaired", len(r.Repaired))
		findingRows(g, r.Repaired)
		g.Row("set aside", len(r.SetAside))
		for _, a := range r.SetAside {
			g.Row("aside", fmt.Sprintf("%s to %s: %s", a.What, a.Place, a.Problem))
		}
		g.Row("left", fmt.Sprintf("%d, %d of them losses", len(r.Left), r.Lost))
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
		Long: `gc moves every layer that no version, push or pull needs to the trash, without the hour of
grace that the registry gives by itself, and removes what has been in the trash for a day.
With --empty-trash it removes all of the trash: what was deleted cannot be taken back then.`,
		Example: `  buildyard registry gc --dry-run
  buildyard registry gc --empty-trash --yes`,
	}, func(ctx context.Context) error {
		if o.EmptyTrash && !o.DryRun {
			if err := yes.Ask(ctx, k.Streams, "Remove everything in the trash for good?"); err != nil {
				return err
			}
		}
		var report api.RegistryGC
		done, err := k.here(func() error {
			return k.open(ctx, func(r *registry.Registry) (err error) {
				report, err = r.GC(ctx, o)
				return err
			})
		})
		if err == nil && !done {
			var u api.StorageJob
			if u, err = k.upkeep(ctx, api.StorageJobRequest{Do: api.UpkeepGC, DryRun: o.DryRun, EmptyTrash: o.EmptyTrash}); err == nil {
				report = *u.GC
			}
		}
		if err != nil {
			return err
		}
		return k.Output.Write(k.Out, report, gcTable(report))
	})
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "only say what would be done")
	cmd.Flags().BoolVar(&o.EmptyTrash, "empty-trash", false, "remove everything in the trash for good, whatever its age; asks first")
	yes.Add(cmd)
	return cmd
}

func gcTable(r api.RegistryGC) func(*cli.Grid) {
	return func(g *cli.Grid) {
		g.Row("moved to the trash", fmt.Sprintf("%d layers, %s", r.Layers, bytesText(r.Bytes)))
		g.Row("kept for pulls", fmt.Sprintf("%d layers, %s", r.Waiting, bytesText(r.WaitBytes)))
		g.Row("removed for good", fmt.Sprintf("%d, %s", r.Purged, bytesText(r.PurgedSize)))
		g.Row("in the trash", bytesText(r.Trash))
		if r.DryRun {
			g.Row("nothing was done", "--dry-run")
		}
	}
}

func statsCommand(streams Streams) *cobra.Command {
	k := storageCommand{Streams: streams}
	return k.add(&cobra.Command{
		Use:     "stats",
		Short:   "Show storage usage",
		Long:    `stats shows how many templates, versions and layers there are and what takes the room.`,
		Example: `  buildyard registry stats --json | jq .reclaimable`,
	}, func(ctx context.Context) error {
		var stats api.RegistryStats
		done, err := k.here(func() error {
			return k.open(ctx, func(r *registry.Registry) (err error) {
				stats, err = r.Stats(ctx)
				return err
			})
		})
		if err == nil && !done {
			stats, err = k.api.Stats(ctx)
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
		g.Row("pushes going on", fmt.Sprintf("%d, %s here, up to %s to come", s.Sessions, bytesText(s.Uploads), bytesText(s.Reserved)))
		g.Row("disks", bytesText(s.Disks))
		g.Row("saved states", bytesText(s.States))
		g.Row("shared", fmt.Sprintf("%s of %s are stored once for several versions", bytesText(s.Shared), bytesText(s.Pulled)))
		g.Row("reclaimable", fmt.Sprintf("%s: unneeded layers %s, trash %s", bytesText(s.Reclaimable), bytesText(s.Loose), bytesText(s.Trash)))
		if s.Aside > 0 {
			g.Row("set aside", bytesText(s.Aside))
		}
		if s.Others > 0 {
			g.Row("files of others", bytesText(s.Others))
		}
		g.Row("free", fmt.Sprintf("%s of %s", bytesText(s.Free), bytesText(s.Total)))
		g.Row("scrub", fmt.Sprintf("%s of this round verified, %d layers damaged", bytesText(s.Scrub.Verified), s.Scrub.Damaged))
	}
}
