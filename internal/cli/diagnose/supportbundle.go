package diagnose

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/cli/cloud"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/doctor"
	"github.com/buildyard/buildyard/internal/obs"
	"github.com/buildyard/buildyard/internal/supportbundle"
)

// bundleOptions are the options of support-bundle.
type bundleOptions struct {
	doctorOptions
	file       string
	metricsURL string
	settings   string
}

func supportBundleCommand(s cli.Streams) *cobra.Command {
	o := &bundleOptions{doctorOptions: doctorOptions{Command: cloud.Command{Streams: s}}}
	cmd := o.Add(&cobra.Command{
		Use: "support-bundle", Short: "Write an archive for support", Args: cobra.NoArgs, GroupID: cloud.CommandGroup,
		Long: `support-bundle writes a tar.gz with versions, the settings of a service on this machine, status and alarms,
the results of doctor, nodes, groups, instances without their metadata, the newest events, the ends of the
central logs, and metrics. Secrets are masked, and the size is bounded. What cannot be read is listed in
problems.txt. Look through the archive before you send it: it has names of nodes, templates and users.`,
		Example: `  buildyard support-bundle
  buildyard support-bundle --settings /etc/buildyard/controller.env --file bundle.tar.gz`,
	}, func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) })
	fs := cmd.Flags()
	fs.StringVar(&o.file, "file", "", "file to create (default: buildyard-support-TIME.tar.gz in this directory)")
	fs.StringVar(&o.metricsURL, "metrics-url", "",
		"URL of the controller's metrics (default: port 2112 of the controller)")
	fs.StringVar(&o.settings, "settings", "", "settings file of a service on this machine (default: the environment)")
	fs.StringVar(&o.dataDir, "data-dir", "", "data directory of a controller on this machine, to check its disk")
	return cmd
}

func (o *bundleOptions) run(ctx context.Context) (err error) {
	now := time.Now().UTC()
	name := "buildyard-support-" + now.Format("20060102-150405")
	if o.file == "" {
		o.file = name + ".tar.gz"
	}
	f, err := os.OpenFile(o.file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("create support bundle: %w", err)
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			_ = os.Remove(o.file)
		}
	}()

	settings, secrets := o.localSettings()
	b := supportbundle.New(f, supportbundle.Options{Dir: name, Time: now, Secrets: append(secrets, o.Secrets...)})
	b.Add("version.json", func() ([]byte, error) { return versionText(now) })
	b.Add("settings.txt", settings)
	o.addCloud(ctx, b)
	o.addLogs(ctx, b)
	b.Add("metrics.txt", func() ([]byte, error) { return o.readMetrics(ctx) })
	if err := b.Close(); err != nil {
		return err
	}
	for _, problem := range b.Problems() {
		_, _ = fmt.Fprintf(o.Err, "note: %s\n", cli.EscapeName(problem))
	}
	return o.Output.Write(o.Out, map[string]any{"file": o.file, "problems": b.Problems()},
		func(g *cli.Grid) { g.Row(o.file) })
}

// versionText describes this program and machine.
func versionText(now time.Time) ([]byte, error) {
	return indented(map[string]any{
		"program": "buildyard", "version": obs.FullVersion(), "go": runtime.Version(), "os": runtime.GOOS,
		"arch": runtime.GOARCH, "cpus": runtime.NumCPU(), "time": now,
	})
}

func indented(value any) ([]byte, error) { return json.MarshalIndent(value, "", "  ") }

// localSettings returns the settings of the controller that the environment or a file of this machine configures, with
// secrets masked, and these secrets.
func (o *bundleOptions) localSettings() (text func() ([]byte, error), secrets []string) {
	values, err := config.Load(config.ControllerTable, config.Sources{Env: os.LookupEnv, File: o.settings})
	if err != nil {
		return func() ([]byte, error) { return nil, err }, nil
	}
	return func() ([]byte, error) {
		var out bytes.Buffer
		err := values.Print(&out)
		return out.Bytes(), err
	}, values.Secrets()
}

// maxInstances bounds the instances in an archive.
const maxInstances = 1000

// addCloud adds what the API reports.
func (o *bundleOptions) addCloud(ctx context.Context, b *supportbundle.Bundle) {
	add := func(name string, find func() (any, error)) {
		b.Add(name, func() ([]byte, error) {
			value, err := find()
			if err != nil {
				return nil, err
			}
			return indented(value)
		})
	}
	add("status.json", func() (any, error) { return o.API.Status(ctx) })
	add("doctor.json", func() (any, error) {
		checks, err := o.checks(ctx)
		return cli.CheckList{Outcome: doctor.Worst(checks), Checks: checks}, err
	})
	add("stats.json", func() (any, error) { return o.API.Stats(ctx) })
	add("series.json", func() (any, error) { return o.API.Series(ctx, "6h") })
	add("nodes.json", func() (any, error) { return o.API.Nodes(ctx, client.ListOptions{}) })
	add("groups.json", func() (any, error) { return o.API.Groups(ctx, client.ListOptions{}) })
	add("templates.json", func() (any, error) { return o.API.Templates(ctx, client.ListOptions{}) })
	add("registry-disk.json", func() (any, error) { return o.API.RegistryDisk(ctx) })
	add("instances.json", func() (any, error) {
		list, err := o.API.Instances(ctx, client.ListOptions{Limit: maxInstances})
		for i := range list {
			// Metadata and the output of scripts have what clients put there.
			list[i].VM.Metadata, list[i].VM.StartupScript = nil, nil
		}
		return list, err
	})
	add("events.json", func() (any, error) {
		events, err := o.API.Events(ctx, client.EventQuery{Limit: 1000})
		all := make([]map[string]any, len(events))
		for i, e := range events {
			all[i] = e.All
		}
		return all, err
	})
}

const (
	logLines    = 5000 // of each service
	maxServices = 20
)

// addLogs adds the ends of the central logs.
func (o *bundleOptions) addLogs(ctx context.Context, b *supportbundle.Bundle) {
	services, err := o.API.Logs().Services(ctx)
	if err != nil {
		b.Add("logs", func() ([]byte, error) { return nil, err })
		return
	}
	for _, s := range services[:min(len(services), maxServices)] {
		b.Add("logs/"+url.PathEscape(s.Service)+".log", func() ([]byte, error) {
			from, err := o.API.Logs().View(ctx, client.LogView{Service: s.Service, Lines: logLines})
			if err != nil {
				return nil, err
			}
			defer func() { _ = from.Close() }()
			return io.ReadAll(io.LimitReader(from, 4*supportbundle.MaxEntryBytes))
		})
	}
}

// metricsTimeout bounds the call of the metrics.
const metricsTimeout = 10 * time.Second

// readMetrics returns the metrics of the controller.
func (o *bundleOptions) readMetrics(ctx context.Context) ([]byte, error) {
	address := o.metricsURL
	if address == "" {
		u, err := url.Parse(o.API.Address())
		if err != nil {
			return nil, err
		}
		address = "http://" + net.JoinHostPort(u.Hostname(), "2112") + "/metrics"
	}
	ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered HTTP %s", address, resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, supportbundle.MaxEntryBytes))
}
