package storecommand

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/store/backup"
	"github.com/buildyard/buildyard/internal/store/etcd"
	"github.com/buildyard/buildyard/internal/store/storeadmin"
)

// restoreOptions are the options of buildyard restore.
type restoreOptions struct {
	options
	force bool
}

// restoreOutput is what restore prints.
type restoreOutput struct {
	Dir      string `json:"dir,omitempty"`
	Etcd     string `json:"etcd,omitempty"`
	Epoch    string `json:"epoch"`
	Revision int64  `json:"revision,omitempty"`
	Records  int    `json:"records,omitempty"`
	Aside    string `json:"aside,omitempty"`
}

// RestoreCommand returns the command that restores a backup into the store of a controller.
func RestoreCommand(streams cli.Streams) *cobra.Command {
	r := restoreOptions{options: options{Streams: streams}}
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Restore the controller's records from a backup",
		Long: `restore puts the records of a backup into the store of a controller: the embedded store of its data
directory, or the etcd cluster that SVC_ETCD_ENDPOINTS names. No controller may run. The checksum is
verified first. A store with records is refused, unless --force moves them aside: within the data
directory, or from an etcd cluster into a backup file in the data directory.

Changes after the backup are lost. When the controller starts again, instances that were terminated
since the backup are missing on their nodes and end; VMs that were started since the backup are
orphaned: they are removed after 30 reports, but if they are more than 20 % of the VMs they are kept
until "buildyard node adopt" decides. To inspect the cloud before anything is removed, run
"buildyard maintenance on" right after the start.

A restore that is interrupted leaves the embedded store as it was. An etcd cluster stays closed until
the same command has completed it.`,
		Example: `  buildyard restore cloud.backup --data-dir /var/lib/buildyard/controller
  buildyard restore cloud.backup --force
  buildyard store restore cloud.backup --config /etc/buildyard/controller.env`,
		Args: cobra.ExactArgs(1),
	}
	r.addSettings(cmd, "restore", func(ctx context.Context, args []string) error {
		if r.hasCluster() {
			return r.intoCluster(ctx, args[0])
		}
		return r.intoDirectory(ctx, args[0])
	})
	cmd.Flags().BoolVar(&r.force, "force", false, "move existing records aside")
	return cmd
}

func (r *restoreOptions) intoDirectory(ctx context.Context, file string) error {
	if err := r.checkOwner(); err != nil {
		return cli.Usage(err)
	}
	opts := etcd.RestoreOptions{BackupFile: file, Dir: r.embeddedDir(), Logger: r.log}
	if r.force {
		opts.Existing = etcd.MoveExistingAside
	}
	done, err := etcd.Restore(ctx, opts)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w; choose another --data-dir, or move those records aside with --force", err)
	}
	if err != nil {
		return err
	}
	return r.show(restoreOutput{Dir: opts.Dir, Epoch: done.Epoch, Revision: done.FirstRevision, Aside: done.MovedTo})
}

// intoCluster opens the backup as a store in a temporary directory, and copies its records.
func (r *restoreOptions) intoCluster(ctx context.Context, file string) (err error) {
	temp, err := os.MkdirTemp("", "buildyard-restore-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	opened, err := etcd.OpenBackup(ctx, file, temp, r.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	cluster, to, err := r.openCluster(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()

	opts, existing := r.copyOptions(), storeadmin.RefuseExisting
	if r.force {
		existing = storeadmin.ReplaceExisting
	}
	opts.Backup = func(ctx context.Context, _ storeadmin.Side) (string, error) { return r.keep(ctx, cluster) }
	source := storeadmin.Side{Backend: opened, Name: "backup " + file}
	done, err := storeadmin.Restore(ctx, source, to, existing, opts)
	if err != nil {
		return withHint(err, "move them into a backup with --force")
	}
	return r.show(restoreOutput{Etcd: to.Name, Epoch: done.Epoch, Records: done.Records, Aside: done.Replaced})
}

// keep stores a backup of the records that are replaced.
func (r *restoreOptions) keep(ctx context.Context, cluster *etcd.Backend) (string, error) {
	dir := r.values.String(config.DataDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	file := filepath.Join(dir, "before-restore-"+time.Now().UTC().Format("20060102T150405.000000000Z")+".backup")
	return file, storeadmin.WriteBackup(ctx, cluster, file, backup.KeepExisting)
}

func (r *restoreOptions) show(out restoreOutput) error {
	return r.output.Write(r.Out, out, func(g *cli.Grid) {
		if out.Dir != "" {
			g.Row("restored", out.Dir)
		} else {
			g.Row("restored", out.Etcd)
			g.Row("records", out.Records)
		}
		g.Row("epoch", out.Epoch)
		if out.Revision > 0 {
			g.Row("revision", out.Revision)
		}
		if out.Aside != "" {
			g.Row("moved aside", out.Aside)
		}
	})
}
