package storecommand

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/store/etcd"
	"github.com/buildyard/buildyard/internal/store/storeadmin"
)

// The values of --to.
const (
	toEtcd     = "etcd"
	toEmbedded = "embedded"
)

// migrateOptions are the options of buildyard store migrate.
type migrateOptions struct {
	options
	to     string
	cancel bool
}

func migrateCommand(streams cli.Streams) *cobra.Command {
	m := migrateOptions{options: options{Streams: streams}}
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Move the records to an etcd cluster or back",
		Long: `migrate moves all records between the embedded store in the data directory and the etcd cluster that
SVC_ETCD_ENDPOINTS names. All controllers must be stopped. The target must have no records of a cloud.

Both stores are closed while it runs: a controller that is started refuses them with a sentence. An
interrupted migration is completed by the same command, or undone with --cancel. Afterwards the
source keeps its records and stays closed. Nodes and VMs are not affected: they find their controller
at the same address.`,
		Example: `  buildyard store migrate --to etcd --config /etc/buildyard/controller.env
  buildyard store migrate --to embedded --config /etc/buildyard/controller.env
  buildyard store migrate --to etcd --cancel --config /etc/buildyard/controller.env`,
		Args: cobra.NoArgs,
	}
	m.addSettings(cmd, "store", func(ctx context.Context, _ []string) error { return m.run(ctx) })
	cmd.Flags().StringVar(&m.to, "to", "", "target: etcd or embedded")
	cmd.Flags().BoolVar(&m.cancel, "cancel", false, "undo an incomplete migration")
	_ = cmd.RegisterFlagCompletionFunc("to",
		cobra.FixedCompletions([]string{toEtcd, toEmbedded}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (m *migrateOptions) run(ctx context.Context) (err error) {
	if m.to != toEtcd && m.to != toEmbedded {
		return cli.Usage(fmt.Errorf("invalid --to %q: want %s or %s", m.to, toEtcd, toEmbedded))
	}
	cluster, etcdSide, err := m.openCluster(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()

	if m.to == toEmbedded {
		return m.toDirectory(ctx, cluster, etcdSide)
	}
	return m.toCluster(ctx, etcdSide)
}

// toCluster moves the records of the embedded store to the cluster, or undoes that.
func (m *migrateOptions) toCluster(ctx context.Context, to storeadmin.Side) (err error) {
	if _, err := os.Stat(filepath.Join(m.embeddedDir(), etcd.MemberSubdir)); errors.Is(err, fs.ErrNotExist) {
		return cli.Usage(fmt.Errorf("no embedded store found in %s (%s)", m.values.String(config.DataDir),
			config.DataDir))
	}
	embedded, from, err := m.openEmbedded(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, embedded.Close()) }()
	opts := m.copyOptions()
	opts.Settle = func(context.Context) error { return nil } // the lock of the directory keeps controllers out
	if m.cancel {
		if err := storeadmin.Cancel(ctx, from, to, opts); err != nil {
			return err
		}
		return m.show(from.Name, storeadmin.Result{})
	}
	done, err := storeadmin.Migrate(ctx, from, to, opts)
	if err != nil {
		return withHint(err, "to replace them, use \"buildyard store restore\" with --force")
	}
	return m.show(to.Name, done)
}

// toDirectory moves the records of the cluster to the embedded store, or undoes that.
func (m *migrateOptions) toDirectory(ctx context.Context, cluster *etcd.Backend, from storeadmin.Side) error {
	if err := m.checkOwner(); err != nil {
		return cli.Usage(err)
	}
	dir := m.embeddedDir()
	if m.cancel {
		if err := storeadmin.CancelToDirectory(ctx, from, dir); err != nil {
			return err
		}
		return m.show(from.Name, storeadmin.Result{})
	}
	done, err := storeadmin.MigrateToDirectory(ctx, from, cluster, dir, m.copyOptions())
	if err != nil {
		return withHint(err, "choose another "+config.DataDir)
	}
	return m.show(dir, done)
}

func (m *migrateOptions) show(place string, done storeadmin.Result) error {
	out := struct {
		Store   string `json:"store"` // that has the records now
		Records int    `json:"records,omitempty"`
		Epoch   string `json:"epoch,omitempty"`
	}{place, done.Records, done.Epoch}
	return m.output.Write(m.Out, out, func(g *cli.Grid) {
		g.Row("store", out.Store)
		if out.Epoch != "" {
			g.Row("records", out.Records)
			g.Row("epoch", out.Epoch)
		}
	})
}
