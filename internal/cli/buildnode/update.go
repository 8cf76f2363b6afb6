package buildnode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/buildyard/buildyard/internal/agent"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/update"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/license"
	"github.com/buildyard/buildyard/internal/obs"
	"github.com/buildyard/buildyard/internal/selfexec"
)

// runNode runs the agent of a node, and replaces this process when an update requests it.
func runNode(ctx context.Context, o NodeOptions) error {
	self, err := selfexec.Path()
	if err != nil {
		return fmt.Errorf("find the path of this program: %w", err)
	}
	err = update.Boot(update.BootOptions{
		DataDir: o.DataDir, Version: obs.FullVersion(), ProgramPath: self, ReplaceProcess: selfexec.Exec,
		Logger: o.Logger,
	})
	if err != nil {
		return err
	}
	for {
		if o.updater, err = newUpdater(o, self); err != nil {
			return err
		}
		err := serveNode(ctx, o)
		switch {
		case errors.Is(err, agent.ErrUpdate) && ctx.Err() == nil:
			err = o.updater.ReplaceProcess() // returns only on failure
			o.Logger.ErrorContext(ctx, "agent update failed", "error", err)
			_ = o.updater.Close()
			continue
		case err != nil && ctx.Err() == nil && o.updater.OnTrial() && farm.CodeOf(err) != farm.CodeConflict:
			err = errors.Join(err, o.updater.Rollback("the new agent stopped: "+err.Error()))
		}
		return errors.Join(err, o.updater.Close())
	}
}

func newUpdater(o NodeOptions, self string) (*update.Updater, error) {
	identity, err := o.DataDir.Identity()
	if err != nil {
		return nil, err
	}
	followed, err := o.controllersOf(identity)
	if err != nil {
		return nil, err
	}
	identity.ControllerURL = followed.BaseURL()
	return update.New(update.Options{
		DataDir: o.DataDir, Identity: identity, Transport: followed, Version: obs.FullVersion(),
		ProgramPath: self,
		KeysFile:    o.UpdateKeys, Logger: o.Logger, QueryVersion: selfexec.Version, ReplaceProcess: selfexec.Exec,
		AllowDowngrade: o.AllowDowngrade,
	}), nil
}

// updaterOf converts a nil pointer to a nil interface.
func updaterOf(u *update.Updater) agent.Updater {
	if u == nil {
		return nil
	}
	return u
}

// updateKeys reads the public keys of a file; "" when path is empty.
func updateKeys(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read --update-key: %w", err)
	}
	if _, err := license.ParseTrustedKeys(raw); err != nil {
		return "", fmt.Errorf("read --update-key %s: %w", path, err)
	}
	return string(raw), nil
}

// trustKeys stores the keys that agent packages must be signed with: those of the node's owner or,
// if the node has none yet, those of its controller. Later keys of a controller are ignored.
func trustKeys(at datadir.Dir, own, given string) error {
	keys := own
	if keys == "" {
		if _, err := os.Stat(at.UpdateKeysFile()); given == "" || !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if _, err := license.ParseTrustedKeys([]byte(given)); err != nil {
			return fmt.Errorf("invalid agent package keys from the controller: %w", err)
		}
		keys = given
	}
	if err := at.Create(); err != nil {
		return err
	}
	return datadir.WriteFile(at.UpdateKeysFile(), []byte(keys+"\n"))
}

// reapVMs waits for the VMs that this process started as an earlier version of itself: otherwise they
// would stay in the process table as zombies.
func (n *Node) reapVMs(ctx context.Context) {
	vms, err := n.Driver.List(ctx)
	if err != nil {
		return // the agent reports it
	}
	for _, vm := range vms {
		if vm.PID <= 0 {
			continue
		}
		if p, err := os.FindProcess(vm.PID); err == nil {
			go func() { _, _ = p.Wait() }() // returns immediately if it is not a child of this process
		}
	}
}
