package anka

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

const forceTimeout = 30 * time.Second

// Stop ends a VM and keeps its disk.
func (d *Driver) Stop(ctx context.Context, id string, how hv.StopMode) error {
	if !hv.ValidID(id) {
		return notFoundError(id)
	}
	m := d.machine(id)
	m.busy.Lock()
	defer m.busy.Unlock()
	vm, err := m.describe(ctx)
	if err != nil || vm.Status != hv.Running {
		return err
	}
	if err := m.end(ctx, how); err != nil {
		return fmt.Errorf("anka: stop VM %s: %w", id, err)
	}
	_, err = m.describe(ctx) // records the end
	return err
}

func (m *machine) end(ctx context.Context, how hv.StopMode) error {
	if err := m.updateRecord(func(r *record) { r.StopRequested = true }); err != nil {
		return err
	}
	if how == hv.StopOrderly {
		err := m.cli.ask(ctx, call{timeout: m.driver.orderlyTimeout, args: []string{"stop", m.name()}}, nil)
		if err == nil || ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		m.driver.log.WarnContext(ctx, "the guest did not shut down and is ended by force", "vm", m.id, "error", err)
	}
	return m.force(ctx)
}

// force ends the VM immediately, and the failed state of one that does not run.
func (m *machine) force(ctx context.Context) error {
	err := m.cli.ask(ctx, call{timeout: forceTimeout, args: []string{"stop", "--force", m.name()}}, nil)
	if err == nil || hasCode(err, codeNotFound) {
		return nil
	}
	if shown, showErr := m.cli.show(ctx, m.name()); showErr == nil && shown.Status != statusRunning &&
		shown.Status != statusFailed {
		return nil // it had ended before
	}
	return err
}

// Delete ends a VM by force and removes it. Commands of an earlier agent that make it are awaited.
func (d *Driver) Delete(ctx context.Context, id string) error {
	if !hv.ValidID(id) {
		return nil
	}
	m := d.machine(id)
	m.busy.Lock()
	defer m.busy.Unlock()
	if _, err := os.Lstat(m.file(recordSuffix)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := m.remove(ctx); err != nil {
		return fmt.Errorf("anka: delete VM %s: %w", id, err)
	}
	d.forget(id)
	return nil
}

func (m *machine) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cloneTimeout+time.Minute)
	defer cancel()
	lock, err := lockFile(ctx, m.file(lockSuffix))
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := m.cli.remove(ctx, m.name()); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return errors.Join(removeFile(m.file(recordSuffix)), removeFile(m.file(lockSuffix)))
}
