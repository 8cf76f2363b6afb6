package buildyard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/cli/cloud"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/layout"
	"github.com/buildyard/buildyard/internal/registry"
)

// jobPollInterval is the interval at which a running registry is polled for progress.
const jobPollInterval = 500 * time.Millisecond

// storageHelp is part of the help of every storage command.
const storageHelp = `
If no registry has the storage open, the command opens it and keeps registries out until it ends.
If a registry has it open, that registry does the work, concurrently with pushes and pulls, and the
command shows the progress; --registry calls a registry directly. A registry without authentication
accepts such calls only from its own machine.`

// storageCommand is the common part of the commands that manage a registry's storage.
type storageCommand struct {
	Streams
	Output cli.Format

	storageDir    string
	clientOptions client.Options   // of calls to a running registry
	client        *client.Registry // nil: the storage is opened first
}

// add adds the options and the work of a storage command to cmd.
func (k *storageCommand) add(cmd *cobra.Command, do func(ctx context.Context) error) *cobra.Command {
	cli.AddFlags(cmd.Flags(), config.StorageTable)
	k.Output.Add(cmd)
	short := cmd.Flags().Bool("json", false, "same as --output json")
	cmd.Args = cobra.NoArgs
	cmd.Long += "\n" + storageHelp
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if show, _ := cmd.Flags().GetBool("print-config"); show {
			return cli.PrintConfig(k.Out, config.StorageTable, cli.Sources(cmd.Flags()))
		}
		src := cli.Sources(cmd.Flags())
		src.Stdin = k.In
		values, err := config.Load(config.StorageTable, src)
		if err != nil {
			return cli.Usage(err)
		}
		var as cloud.Caller
		if k.clientOptions, as, err = cloud.ClientOptions(values); err != nil {
			return cli.Usage(err)
		}
		if *short {
			k.Output = "json"
		}
		k.storageDir = values.String(config.BasePath)
		if address := values.String(config.Registry); address != "" {
			if err := k.connectTo(address); err != nil {
				return cli.Usage(err)
			}
		}
		return cloud.WithAdvice(cmd.Context(), do(cmd.Context()),
			cloud.Target{Flag: "--registry", Setting: config.Registry, Caller: as})
	}
	return cmd
}

func (k *storageCommand) connectTo(address string) (err error) {
	k.client, err = client.NewRegistry(address, k.clientOptions)
	return err
}

// runOffline runs work on a storage that no process has open. If a registry has it open, here returns
// false and k calls that registry.
func (k *storageCommand) runOffline(work func() error) (bool, error) {
	if k.client != nil {
		return false, nil
	}
	dir, err := layout.Open(k.storageDir) // before any call that would create a storage
	if err != nil {
		return true, fmt.Errorf("%w; check the storage directory (--base-path or %s)", err, config.BasePath)
	}
	if err := dir.Close(); err != nil {
		return true, err
	}
	err = work()
	busy, ok := errors.AsType[*registry.StorageInUseError](err)
	switch {
	case !ok:
		return true, err
	case busy.Address == "":
		return true, fmt.Errorf("%w; wait for its end, or call a registry with --registry", busy)
	}
	return false, k.connectTo(busy.Address)
}

// withStorage opens the storage for work on it.
func (k *storageCommand) withStorage(ctx context.Context, work func(*registry.Registry) error) error {
	r, err := registry.Open(ctx, registry.Options{Base: k.storageDir})
	if err != nil {
		return err
	}
	return errors.Join(work(r), r.Close())
}

// runJob runs the work in a running registry and shows the progress. An interrupted command cancels
// it there too.
func (k *storageCommand) runJob(ctx context.Context, req api.StorageJobRequest) (api.StorageJob, error) {
	u, err := k.client.StartStorageJob(ctx, req)
	if err != nil {
		return u, err
	}
	shown := time.Now()
	for u.State == api.StorageJobRunning {
		select {
		case <-ctx.Done():
			_, err := k.client.CancelStorageJob(context.WithoutCancel(ctx))
			return u, errors.Join(context.Cause(ctx), err)
		case <-time.After(jobPollInterval):
		}
		if u, err = k.client.StorageJob(ctx); err != nil && ctx.Err() == nil {
			return u, err
		}
		if time.Since(shown) > progressEvery {
			shown = time.Now()
			k.printProgress(u.Progress)
		}
	}
	if u.State != api.StorageJobDone {
		return u, fmt.Errorf("registry job failed: %s", u.Problem)
	}
	return u, nil
}

// printProgress prints the progress of a deep check.
func (k *storageCommand) printProgress(p api.StorageJobProgress) {
	if p.Total == 0 {
		return
	}
	_, _ = fmt.Fprintf(k.Err, "%s of %s verified, %s/s, %s left\n",
		bytesize.Format(p.Done), bytesize.Format(p.Total), bytesize.Format(p.Rate), time.Duration(p.Left)*time.Second)
}

// throttledProgress calls show at most every progressEvery.
func (k *storageCommand) throttledProgress() func(api.StorageJobProgress) {
	next := time.Now().Add(progressEvery)
	return func(p api.StorageJobProgress) {
		if now := time.Now(); now.After(next) {
			next = now.Add(progressEvery)
			k.printProgress(p)
		}
	}
}
