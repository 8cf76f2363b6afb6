package buildnode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/buildyard/buildyard/internal/agent"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/nodeapi"
	"github.com/buildyard/buildyard/internal/agent/update"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/license"
	"github.com/buildyard/buildyard/internal/obs"
	"github.com/buildyard/buildyard/internal/selfexec"
	"github.com/buildyard/buildyard/internal/transfer"
)

// runNode runs the agent of a node, and becomes the versions of it that updates bring.
func runNode(ctx context.Context, o NodeOptions) error {
	self, err := selfexec.Path()
	if err != nil {
		return fmt.Errorf("the file of this program: %w", err)
	}
	err = update.Boot(update.BootOptions{Home: o.Home, Version: obs.FullVersion(), Path: self, Become: selfexec.Exec, Logger: o.Logger})
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
			err = o.updater.Swap() // comes back only when it cannot be done
			o.Logger.ErrorContext(ctx, "the agent stays what it is", "error", err)
			_ = o.updater.Close()
			continue
		case err != nil && ctx.Err() == nil && o.updater.OnTrial() && farm.CodeOf(err) != farm.CodeConflict:
			err = errors.Join(err, o.updater.Rollback("the new agent ended: "+err.Error()))
		}
		return errors.Join(err, o.updater.Close())
	}
}

func newUpdater(o NodeOptions, self string) (*update.Updater, error) {
	identity, err := o.Home.Identity()
	if err != nil {
		return nil, err
	}
	config, err := transfer.TLSConfig(transfer.TLSOptions(identity.TLS))
	if err != nil {
		return nil, err
	}
	return update.New(update.Options{
		Home: o.Home, Identity: identity, Transport: nodeapi.Transport(config, 1), Version: obs.FullVersion(), Path: self,
		Keys: o.UpdateKeys, Logger: o.Logger, Ask: selfexec.Version, Become: selfexec.Exec, AllowDowngrade: o.AllowDowngrade,
	}), nil
}

// updaterOf keeps a nil pointer from becoming something.
func updaterOf(u *update.Updater) agent.Updater {
	if u == nil {
		return nil
	}
	return u
}

// updateKeys reads the public keys of a file; "" for none when there is no path.
func updateKeys(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("--update-key: %w", err)
	}
	if _, err := license.ParseTrust(raw); err != nil {
		return "", fmt.Errorf("--update-key %s: %w", path, err)
	}
	return string(raw), nil
}

// trustKeys keeps the keys that agent packages must be signed with: those that the owner of
// the node has given, or, when it has none, those that its controller gives. Later ones of
// a controller change nothing.
func trustKeys(at datadir.Dir, own, given string) error {
	keys := own
	if keys == "" {
		if _, err := os.Stat(at.UpdateKeys()); given == "" || !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if _, err := license.ParseTrust([]byte(given)); err != nil {
			return fmt.Errorf("the controller's keys of agent packages: %w", err)
		}
		keys = given
	}
	if err := at.Make(); err != nil {
		return err
	}
	return datadir.WriteFile(at.UpdateKeys(), []byte(keys+"\n"))
}

// adopt takes note of the end of VMs that this very process has started as an earlier
// version of itself: nobody else does, and until then they stay in the table of processes.
func (n *Node) adopt(ctx context.Context) {
	vms, err := n.Driver.List(ctx)
	if err != nil {
		return // the agent says so
	}
	for _, vm := range vms {
		if vm.PID <= 0 {
			continue
		}
		if p, err := os.FindProcess(vm.PID); err == nil {
			go func() { _, _ = p.Wait() }() // at once when it is no child of this process
		}
	}
}
