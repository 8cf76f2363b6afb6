package buildyard

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/obs"
	"github.com/buildyard/buildyard/internal/store/etcd"
)

func restoreCommand(streams Streams) *cobra.Command {
	var output cli.Format
	force := false
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Restore a data directory from a backup",
		Long: `restore creates the data directory of a controller with an embedded store from a backup file. The
controller must not run. The checksum is verified first. A directory with records is refused, unless
--force moves them aside.

Changes after the backup are lost. When the controller starts again, instances that were terminated
since the backup are missing on their nodes and end; VMs that were started since the backup are
orphaned: they are removed after 30 reports, but if they are more than 20 % of the VMs they are kept
until "buildyard node adopt" decides. To inspect the cloud before anything is removed, run
"buildyard maintenance on" right after the start.

To move to an etcd cluster, restore the same file on each of its members with etcdutl instead; see
docs/high-availability.md.`,
		Example: `  buildyard restore cloud.backup --data-dir /var/lib/buildyard/controller
  buildyard restore cloud.backup --force`,
		Args: cobra.ExactArgs(1),
	}
	cli.AddFlags(cmd.Flags(), config.ControllerTable)
	for _, s := range config.ControllerTable {
		if s.Key != config.DataDir && s.Key != config.LogLevel {
			_ = cmd.Flags().MarkHidden(s.Flag)
		}
	}
	output.Add(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "move existing records aside, within the data directory")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if show, _ := cmd.Flags().GetBool("print-config"); show {
			return cli.PrintConfig(streams.Out, config.ControllerTable, cli.Sources(cmd.Flags()))
		}
		values, err := config.Load(config.ControllerTable, cli.Sources(cmd.Flags()))
		if err != nil {
			return cli.Usage(err)
		}
		if len(values.List(config.EtcdEndpoints)) > 0 {
			return cli.Usage(fmt.Errorf("%s is set, but restore requires an embedded store: unset it, "+
				"or restore the file on each member of the cluster with etcdutl (docs/high-availability.md)",
				config.EtcdEndpoints))
		}
		log, err := obs.Logger(streams.Err, values.String(config.LogLevel), "restore")
		if err != nil {
			return cli.Usage(err)
		}
		opts := etcd.RestoreOptions{BackupFile: args[0], Dir: storeDirIn(values.String(config.DataDir)), Logger: log}
		if force {
			opts.Existing = etcd.MoveExistingAside
		}
		done, err := etcd.Restore(cmd.Context(), opts)
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%w; choose another --data-dir, or move those records aside with --force", err)
		}
		if err != nil {
			return err
		}
		return showRestored(streams, output, opts.Dir, done)
	}
	return cmd
}

func showRestored(streams Streams, output cli.Format, dir string, done etcd.RestoreResult) error {
	out := struct {
		Dir      string `json:"dir"`
		Epoch    string `json:"epoch"`
		Revision int64  `json:"revision"`
		Aside    string `json:"aside,omitempty"`
	}{dir, done.Epoch, done.FirstRevision, done.MovedTo}
	return output.Write(streams.Out, out, func(g *cli.Grid) {
		g.Row("restored", out.Dir)
		g.Row("epoch", out.Epoch)
		g.Row("revision", out.Revision)
		if out.Aside != "" {
			g.Row("moved aside", out.Aside)
		}
	})
}
