package storecommand

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/store/etcd"
	"github.com/buildyard/buildyard/internal/store/storeadmin"
)

func checkCommand(streams cli.Streams) *cobra.Command {
	o := options{Streams: streams}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the store of a controller",
		Long: `check opens the store that the settings of a controller name, and prints one line for each check: members
and their versions, records, write latency, and rights of the etcd user. A line that is not OK has a
remedy. It exits with 1 when a check fails.

An etcd cluster is checked while controllers run. An embedded store is checked while its controller
is stopped; "buildyard status" reports on a running one.`,
		Example: `  buildyard store check --config /etc/buildyard/controller.env
  buildyard store check --etcd-endpoints https://etcd-1:2379,https://etcd-2:2379,https://etcd-3:2379 -o json`,
		Args: cobra.NoArgs,
	}
	o.addSettings(cmd, "store", func(ctx context.Context, _ []string) error { return o.check(ctx) })
	return cmd
}

func (o *options) check(ctx context.Context) error {
	findings, err := o.findings(ctx)
	if err != nil {
		return err
	}
	err = o.output.Write(o.Out, findings, func(g *cli.Grid) {
		for _, f := range findings {
			detail := f.Detail
			if f.Remedy != "" {
				detail += "; " + f.Remedy
			}
			g.Row(f.Level, f.Check, detail)
		}
	})
	if err != nil {
		return err
	}
	var failed []string
	for _, f := range findings {
		if f.Level == storeadmin.LevelFail {
			failed = append(failed, f.Check)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("checks failed: %s", strings.Join(failed, ", "))
	}
	return nil
}

// findings checks the store of the settings. That it cannot be opened is a finding, too.
func (o *options) findings(ctx context.Context) (findings []storeadmin.Finding, err error) {
	open := o.openCluster
	if !o.hasCluster() {
		if _, err := os.Stat(filepath.Join(o.embeddedDir(), etcd.MemberSubdir)); errors.Is(err, fs.ErrNotExist) {
			return nil, cli.Usage(fmt.Errorf("no store found in %s: name the data directory of a controller, or set %s",
				o.values.String(config.DataDir), config.EtcdEndpoints))
		}
		open = o.openEmbedded
	}
	b, side, err := open(ctx)
	if cli.CodeOf(err) == cli.ExitUsage {
		return nil, err
	}
	if err != nil {
		return []storeadmin.Finding{{
			Check: "connection", Level: storeadmin.LevelFail, Detail: err.Error(),
			Remedy: "check addresses, certificates, user and password, and that a majority of the members runs",
		}}, nil
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	return storeadmin.Check(ctx, side, b), nil
}
