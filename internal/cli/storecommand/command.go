package storecommand

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/obs"
	"github.com/buildyard/buildyard/internal/store/etcd"
	"github.com/buildyard/buildyard/internal/store/storeadmin"
)

// Command returns the command group. backup is the command that backs up the records.
func Command(streams cli.Streams, backup *cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Check, move, back up and restore the controller's records",
		Long: `store has the commands for all records of a controller as a whole. They are in an embedded store, in the
data directory of the controller, or in an etcd cluster (SVC_ETCD_ENDPOINTS).`,
		Example: `  buildyard store check --config /etc/buildyard/controller.env
  buildyard store migrate --to etcd --config /etc/buildyard/controller.env
  buildyard store backup cloud.backup`,
	}
	backup.GroupID = ""
	cmd.AddCommand(checkCommand(streams), migrateCommand(streams), backup, RestoreCommand(streams))
	return cmd
}

// storeSettings are those that the commands of a store show in their help; they read all of a
// controller, so that its settings file can be used.
var storeSettings = map[string]bool{
	config.DataDir: true, config.LogLevel: true, config.EtcdEndpoints: true, config.EtcdCACert: true,
	config.EtcdCert: true, config.EtcdKey: true, config.EtcdUsername: true, config.EtcdPassword: true,
}

// options are the common part of the commands.
type options struct {
	cli.Streams
	output  cli.Format
	values  *config.Values
	log     *slog.Logger
	command string // with the names of its parents
}

// addSettings puts the settings of a controller on a command, and runs do after reading them.
func (o *options) addSettings(cmd *cobra.Command, name string, do func(ctx context.Context, args []string) error) {
	cli.AddFlags(cmd.Flags(), config.ControllerTable)
	for _, s := range config.ControllerTable {
		if !storeSettings[s.Key] {
			_ = cmd.Flags().MarkHidden(s.Flag)
		}
	}
	o.output.Add(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.command = cmd.CommandPath()
		src := cli.Sources(cmd.Flags())
		src.Stdin = o.In
		if show, _ := cmd.Flags().GetBool("print-config"); show {
			return cli.PrintConfig(o.Out, config.ControllerTable, src)
		}
		var err error
		if o.values, err = config.Load(config.ControllerTable, src); err != nil {
			return cli.Usage(err)
		}
		if o.log, err = obs.Logger(o.Err, o.values.String(config.LogLevel), name); err != nil {
			return cli.Usage(err)
		}
		return do(cmd.Context(), args)
	}
}

func (o *options) embeddedDir() string { return EmbeddedDir(o.values.String(config.DataDir)) }

// checkOwner refuses another user than the owner of the embedded store.
func (o *options) checkOwner() error { return checkOwner(o.values.String(config.DataDir), o.command) }

// hasCluster reports whether the settings name a cluster.
func (o *options) hasCluster() bool { return len(o.values.List(config.EtcdEndpoints)) > 0 }

// openCluster connects to the cluster of the settings.
func (o *options) openCluster(ctx context.Context) (*etcd.Backend, storeadmin.Side, error) {
	opts, err := ClusterOptions(o.values, o.log)
	if err != nil {
		return nil, storeadmin.Side{}, cli.Usage(err)
	}
	if len(opts.Endpoints) == 0 {
		return nil, storeadmin.Side{}, cli.Usage(fmt.Errorf("%s is not set: it names the etcd cluster",
			config.EtcdEndpoints))
	}
	opts.TempDir = "" // the data directory of a controller may not exist here
	b, err := etcd.ConnectExternal(ctx, opts)
	if err != nil {
		return nil, storeadmin.Side{}, cli.Exit(cli.ExitUnreachable, err)
	}
	return b, storeadmin.Side{Backend: b, Name: clusterName(opts)}, nil
}

// openEmbedded starts the embedded store of the settings; no controller may run on it.
func (o *options) openEmbedded(ctx context.Context) (*etcd.Backend, storeadmin.Side, error) {
	if err := o.checkOwner(); err != nil {
		return nil, storeadmin.Side{}, cli.Usage(err)
	}
	dir := o.embeddedDir()
	b, err := etcd.StartEmbedded(ctx, etcd.EmbeddedOptions{Dir: dir, Logger: o.log})
	if err != nil {
		return nil, storeadmin.Side{}, err
	}
	return b, storeadmin.Side{Backend: b, Name: dir}, nil
}

// progressEvery is the interval between lines about a long copy.
const progressEvery = 5 * time.Second

// copyOptions are those of a copy that reports its progress.
func (o *options) copyOptions() storeadmin.Options {
	printAt := time.Now().Add(progressEvery)
	return storeadmin.Options{
		Logger: o.log,
		Progress: func(records int) {
			if now := time.Now(); now.After(printAt) {
				printAt = now.Add(progressEvery)
				_, _ = fmt.Fprintf(o.Err, "%d records written\n", records)
			}
		},
	}
}

// withHint adds what to do to the errors of a copy.
func withHint(err error, hint string) error {
	if errors.Is(err, storeadmin.ErrNotEmpty) {
		return fmt.Errorf("%w; %s", err, hint)
	}
	return err
}
