package buildyard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/logs"
	"github.com/buildyard/buildyard/internal/logs/central"
	"github.com/buildyard/buildyard/internal/obs"
)

// logOutput is the destination of a process's log: stderr, and, where set, its own files and the
// central logs.
type logOutput struct {
	stderr          io.Writer
	runningShippers map[string]*logs.Shipper // running shippers, by destination

	shipper     *logs.Shipper // nil: disabled
	sendRows    func(ctx context.Context, rows []api.LogRow) (api.LogAppendResult, error)
	centralLogs *central.Logs // nil: disabled
}

// openLog opens the files named in the settings.
func openLog(stderr io.Writer, settings *config.Values) (*logOutput, error) {
	o := &logOutput{stderr: stderr, runningShippers: map[string]*logs.Shipper{}}
	machine, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("read the host name: %w", err)
	}
	who := logs.Options{MachineName: machine, MachineAddress: externalIP()}
	if dir := settings.String(config.LogDir); dir != "" {
		if o.centralLogs, err = openLogDir(dir, settings); err != nil {
			return nil, fmt.Errorf("%s: %w", config.LogDir, err)
		}
		who.Send = func(_ context.Context, _ string, rows []api.LogRow) (api.LogAppendResult, error) {
			return o.centralLogs.Append(rows)
		}
		files := logs.New(who)
		files.ShipTo(dir)
		o.runningShippers["directory"] = files
	}
	if settings.Bool(config.CentralLogging) {
		who.Send = func(ctx context.Context, _ string, rows []api.LogRow) (api.LogAppendResult, error) {
			return o.sendRows(ctx, rows)
		}
		o.shipper = logs.New(who)
		o.runningShippers["central"] = o.shipper
	}
	return o, nil
}

func openLogDir(dir string, settings *config.Values) (*central.Logs, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	out, err := central.Open(central.Options{
		Root: root, Retention: settings.Days(config.KeepLogs), MaxBytes: settings.Megabytes(config.MaxLogSize),
	})
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return out, nil
}

// logger makes the logger of a service of this process.
func (o *logOutput) logger(level, service string) (*slog.Logger, error) {
	w := o.stderr
	for _, s := range o.runningShippers {
		w = s.Tee(w, service)
	}
	return obs.Logger(w, level, service)
}

// writeLocal writes the lines to the central logs of the registry in this process.
func (o *logOutput) writeLocal(to *central.Logs) {
	if o.shipper == nil || o.sendRows != nil {
		return
	}
	o.sendRows = func(_ context.Context, rows []api.LogRow) (api.LogAppendResult, error) { return to.Append(rows) }
	o.shipper.ShipTo("this process")
}

// writeRemote sends the lines to a registry, unless they are written to one in this process.
func (o *logOutput) writeRemote(u *upstream) error {
	if o.shipper == nil || o.sendRows != nil {
		return nil
	}
	client, err := u.client()
	if err != nil {
		return err
	}
	o.sendRows = client.SendLogRows
	o.shipper.ShipTo(u.address)
	return nil
}

// start sends lines until stop is called, which sends the last ones.
func (o *logOutput) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var work sync.WaitGroup
	for _, s := range o.runningShippers {
		work.Go(func() { s.Run(ctx) })
	}
	return func() {
		cancel()
		work.Wait()
	}
}

func (o *logOutput) close() error {
	if o == nil || o.centralLogs == nil {
		return nil
	}
	return o.centralLogs.Close()
}
