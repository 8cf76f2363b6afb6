package buildnode

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/lazyfill"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/obs"
	"github.com/buildyard/buildyard/internal/selfexec"
)

// fillVerb is the command that the agent starts for each version that is pulled while VMs use it.
const fillVerb = "fill"

// FillCommand returns the hidden command that an agent starts. Every program that runs an agent has it. logLevel is
// read when the command runs.
func FillCommand(logLevel *string) *cobra.Command {
	return &cobra.Command{
		Use:    fillVerb + " <directory>",
		Short:  "Pull a version while VMs read its disks",
		Long:   `fill is started by the agent. It pulls a version, and serves its disks to VMs before all of it is here.`,
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			log, err := obs.Logger(cmd.ErrOrStderr(), *logLevel, "fill")
			if err != nil {
				return cli.Usage(err)
			}
			return lazyfill.Main(cmd.Context(), args[0], log)
		},
	}
}

// lazyModes are the values of --lazy-pull, the default first.
var lazyModes = []string{string(cache.LazyAuto), string(cache.LazyOn), string(cache.LazyOff)}

// addLazyPull adds the option of lazy pulls to a command.
func addLazyPull(cmd *cobra.Command, o *NodeOptions) {
	cmd.Flags().StringVar((*string)(&o.LazyPull), "lazy-pull", lazyModes[0],
		"when to start VMs before all of their template is on this node: auto (if the pull would take longer than "+
			"10 s), on, or off (QEMU only; a template may say otherwise)")
	_ = cmd.RegisterFlagCompletionFunc("lazy-pull",
		cobra.FixedCompletions(lazyModes, cobra.ShellCompDirectiveNoFileComp))
}

// maxSocketDir is the longest path of a directory of sockets: the address of a socket has at most 103 bytes, and names
// of sockets have 32.
const maxSocketDir = 103 - 32 - 1

// bootTime is how long what a guest does not read waits for its boot.
const bootTime = 2 * time.Minute

// LazyPulls returns the lazy pulls that run.
func (n *Node) LazyPulls() []cache.LazyState { return n.templates.LazyPulls() }

// lazyOptions returns the options of lazy pulls; nil where there are none.
func (n *Node) lazyOptions(o NodeOptions, identity datadir.Identity, source *cache.Registry) (*cache.LazyPulls, error) {
	mover, able := n.Driver.(hv.DiskMover)
	dir := o.DataDir.LazySocketDir()
	o.LazyPull = cmp.Or(o.LazyPull, cache.LazyOff)
	switch {
	case !slices.Contains(lazyModes, string(o.LazyPull)):
		return nil, cli.Usage(fmt.Errorf("invalid --lazy-pull %s: want one of %s", o.LazyPull,
			strings.Join(lazyModes, ", ")))
	case !able:
		return nil, nil
	case len(dir) > maxSocketDir:
		if o.LazyPull != cache.LazyOff {
			o.Logger.Warn("templates are pulled as a whole before VMs start: the path of the data directory is too "+
				"long for sockets", "path", dir, "max_bytes", maxSocketDir)
		}
		return nil, nil
	}
	_, group := mover.SocketUser("")
	if err := makeSocketDir(dir, group); err != nil {
		return nil, fmt.Errorf("directory of the sockets of disks: %w", err)
	}
	self, err := selfexec.Path()
	if err != nil {
		return nil, err
	}
	lazy := &cache.LazyPulls{
		Mode: o.LazyPull, SocketDir: dir, SocketGroup: group, BootTime: bootTime,
		Program: lazyfill.Program{Path: self, Args: []string{fillVerb}, Env: os.Environ()},
		Order: func(_ cache.Ref, order *lazyfill.Order) {
			order.Mirror, order.TLS, order.AnnouncedCA = o.RegistryMirror, identity.TLS, identity.Cloud.AnnouncedCA
			if n.peers != nil {
				order.NodeID, order.PeerFile = identity.NodeID, o.DataDir.PeerFile()
			}
		},
		Token: source.Authorization, Pulled: source.CountPull,
	}
	if n.peers != nil {
		lazy.Peers = n.peers.sources
	}
	return lazy, nil
}

// makeSocketDir makes the directory of the sockets: the group of VMs may connect to those that it knows, and neither
// list nor make any.
func makeSocketDir(dir string, group int) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if group >= 0 {
		if err := os.Chown(dir, -1, group); err != nil {
			return err
		}
	}
	return os.Chmod(dir, 0o710)
}
