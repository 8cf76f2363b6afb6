package registry

import (
	"context"
	"errors"

	"github.com/buildyard/buildyard/internal/layout"
	"github.com/buildyard/buildyard/internal/logs/central"
	"github.com/buildyard/buildyard/internal/registry/files"
)

// auxStorage is what the registry stores in addition to its templates. Templates have priority: on a full disk
// logs are dropped and files are refused.
type auxStorage struct {
	logs  *central.Logs
	files *files.Store
}

// openAuxStorage opens the central logs and the file server.
func (r *Registry) openAuxStorage() error {
	free := func() (int64, int64, error) { return r.store.Space(context.Background()) }
	root, err := r.dir.Root().OpenRoot(layout.CentralLogsDir)
	if err != nil {
		return err
	}
	r.aux.logs, err = central.Open(central.Options{
		Root: root, Retention: r.opts.LogRetention, MaxBytes: r.opts.MaxLogSize, Full: r.reserveReleased.Load,
		Free: free, Now: r.opts.Now,
		Log: r.log,
	})
	if err != nil {
		return errors.Join(err, root.Close())
	}
	if root, err = r.dir.Root().OpenRoot(layout.FilesDir); err != nil {
		return err
	}
	r.aux.files, err = files.Open(files.Options{
		Root: root, LogRetention: r.opts.LogRetention, MaxLogsBytes: r.opts.MaxLogSize, Full: r.reserveReleased.Load,
		Free: free, Now: r.opts.Now,
		Sync: r.opts.Hooks.Sync, Log: r.log,
	})
	if err != nil {
		return errors.Join(err, root.Close())
	}
	return nil
}

// Logs returns the central logs.
func (r *Registry) Logs() *central.Logs { return r.aux.logs }

// Files returns the file server.
func (r *Registry) Files() *files.Store { return r.aux.files }

// pruneLogs removes expired logs.
func (b *auxStorage) pruneLogs() {
	b.logs.Prune()
	b.files.PruneLogs()
}

func (b *auxStorage) close() error {
	var errs []error
	if b.logs != nil {
		errs = append(errs, b.logs.Close())
	}
	if b.files != nil {
		errs = append(errs, b.files.Close())
	}
	return errors.Join(errs...)
}
