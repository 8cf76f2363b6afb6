package buildnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/journal"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/farm"
)

// lockWait is how long disjoin waits for a running agent to notice that its node was removed: a
// little longer than one long poll.
const lockWait = 30 * time.Second

// DisjoinOptions are the options of disjoin.
type DisjoinOptions struct {
	*globals
	NodeOptions
	Force bool
	Yes   cli.Confirmation
}

func disjoinCommand(g *globals) *cobra.Command {
	o := DisjoinOptions{globals: g}
	cmd := &cobra.Command{
		Use:   "disjoin",
		Short: "Remove this node from its cloud",
		Long: `disjoin removes this node from its cloud, waits for a running agent to stop, and deletes the VMs of the
cloud's instances from this host. Cached and local templates stay. While this host has instances, it
asks for confirmation.`,
		Example: `  buildnode disjoin
  buildnode disjoin --yes      # also while it has instances
  buildnode disjoin --force    # when the controller no longer exists`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	addDriver(cmd, &o.NodeOptions)
	cmd.Flags().BoolVar(&o.Force, "force", false, "continue if the controller cannot be reached")
	o.Yes.Add(cmd)
	return cmd
}

func (o *DisjoinOptions) run(ctx context.Context) error {
	at, err := o.openDataDir()
	if err != nil {
		return err
	}
	o.DataDir = at
	id, err := at.Identity()
	if err != nil {
		return err
	}
	n, err := instanceCount(at)
	if err != nil {
		return err
	}
	if n > 0 {
		err := o.Yes.Ask(ctx, o.Streams, "Leave %s and delete the VMs of %d instances on this host?",
			id.ControllerURL, n)
		if err != nil {
			return err
		}
	}
	client, err := controllerClient(id)
	if err != nil {
		return err
	}
	err = client.Disjoin(ctx, id.NodeID)
	gone := farm.CodeOf(err) == farm.CodeUnauthenticated // already removed there
	if err != nil && !gone && !o.Force {
		return fmt.Errorf("%w; use --force to disjoin without the controller", err)
	}
	lock, err := awaitLock(ctx, at)
	if err != nil {
		return err
	}
	defer lock.Release()
	if err := o.removeVMs(ctx, at); err != nil {
		return err
	}
	if err := at.ClearIdentity(); err != nil {
		return err
	}
	// The number of VMs is unknown: a running agent has removed its own VMs.
	_, err = fmt.Fprintf(o.Out, "left %s; all of its VMs on this host were deleted\n", id.ControllerURL)
	return err
}

// instanceCount returns how many instances the journal of a node has. Its agent may be running.
func instanceCount(at datadir.Dir) (int, error) {
	entries, err := os.ReadDir(at.JournalDir())
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the instances of this node: %w", err)
	}
	return len(slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return !e.IsDir() })), nil
}

// awaitLock waits for a running agent to end.
func awaitLock(ctx context.Context, at datadir.Dir) (*datadir.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	for {
		lock, err := at.Lock()
		if farm.CodeOf(err) != farm.CodeConflict {
			return lock, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// removeVMs removes every VM of this node and forgets their instances and saves.
func (o *DisjoinOptions) removeVMs(ctx context.Context, at datadir.Dir) error {
	driver, err := openDriver(ctx, o.NodeOptions, datadir.Identity{})
	if err != nil {
		return err
	}
	if c, ok := driver.(io.Closer); ok {
		defer c.Close()
	}
	vms, err := driver.List(ctx)
	if err != nil {
		return err
	}
	for _, vm := range vms {
		if err := driver.Delete(ctx, vm.ID); err != nil {
			return fmt.Errorf("remove VM %s: %w", vm.ID, err)
		}
	}
	records, err := journal.Open(at.JournalDir(), journal.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = records.Close() }()
	entries, err := records.Load()
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := records.Remove(e.Order.InstanceID); err != nil {
			return err
		}
	}
	return os.RemoveAll(at.SaveDir())
}
