package buildnode

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent"
	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/agent/controllers"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/nodeapi"
	"github.com/buildyard/buildyard/internal/agent/peers"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/transfer"
)

const (
	peersOff = "off"
	// defaultPeerRate is a quarter of 1 Gbit/s.
	defaultPeerRate = "32MiB"
)

// PeerOptions define whether this node and others read versions from each other.
type PeerOptions struct {
	ListenAddr string // host:port; "" or peersOff: they do not
	Rate       string // bytes a second that this node sends; "": the default; "0": no limit
}

// addPeers adds the options of peers to a command.
func addPeers(cmd *cobra.Command, o *PeerOptions) {
	cmd.Flags().StringVar(&o.ListenAddr, "peer-listen", peersOff,
		"off, or the listen address host:port at which nodes of the same groups read versions from this node; it "+
			"reads from them, too")
	cmd.Flags().StringVar(&o.Rate, "peer-rate", defaultPeerRate,
		"bytes a second that this node sends to other nodes; 0: no limit")
}

// peerNode is the part of a node that other nodes read from.
type peerNode struct {
	identity *peers.Identity
	excluded *peers.Exclusions
	server   *peers.Server
	listener net.Listener
	client   *nodeapi.Client
	nodeID   string
}

// openPeers opens the listener for other nodes; nil: versions come from the registry alone.
func (n *Node) openPeers(
	ctx context.Context, o NodeOptions, identity datadir.Identity, client *nodeapi.Client,
) (*peerNode, error) {
	if o.Peers.ListenAddr == "" || o.Peers.ListenAddr == peersOff {
		return nil, nil
	}
	if _, port, err := net.SplitHostPort(o.Peers.ListenAddr); err != nil || port == "" {
		return nil, cli.Usage(fmt.Errorf("invalid --peer-listen %s: want off or host:port", o.Peers.ListenAddr))
	}
	own, err := peers.LoadIdentity(o.DataDir.PeerFile())
	if err != nil {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", o.Peers.ListenAddr)
	if err != nil {
		return nil, fmt.Errorf("--peer-listen: %w", err)
	}
	n.closers = append(n.closers, closerFunc(func() error {
		_ = l.Close() // the server may have closed it
		return nil
	}))
	return &peerNode{
		identity: own, excluded: &peers.Exclusions{}, listener: l, client: client, nodeID: identity.NodeID,
	}, nil
}

// serve makes the versions of the cache readable for other nodes.
func (p *peerNode) serve(o NodeOptions, templates *cache.Cache, cloud *controllers.Controllers) error {
	rate, err := bytesize.ParseText(cmp.Or(o.Peers.Rate, defaultPeerRate), 1)
	if err != nil {
		return cli.Usage(fmt.Errorf("invalid --peer-rate: %w", err))
	}
	p.server = peers.NewServer(peers.ServerOptions{
		Identity: p.identity, Provider: templates, CloudKey: cloud.CloudKey, Rate: rate, Logger: o.Logger,
	})
	return nil
}

// sources returns the nodes that have, or pull, a version. The controller learns which peers have sent wrong bytes;
// excluded are those of another process of this node.
func (p *peerNode) sources(ctx context.Context, contentID string, excluded []string) ([]api.Peer, error) {
	p.excluded.Note(time.Now(), excluded...)
	return p.client.Peers(ctx, p.nodeID, contentID, p.excluded.List(time.Now()))
}

// readPeers is a cache.OpenPeers.
func (n *Node) readPeers(ctx context.Context, contentID string) (transfer.Peers, func()) {
	p := n.peers
	others := peers.OpenReader(ctx, peers.ReaderOptions{
		NodeID: p.nodeID, ContentID: contentID, Identity: p.identity, Excluded: p.excluded, Logger: n.log,
		Sources: func(ctx context.Context) ([]api.Peer, error) { return p.sources(ctx, contentID, nil) },
	})
	return others, others.Close
}

// info describes to the controller where other nodes read versions.
func (p *peerNode) info(source *cache.Registry) agent.PeerInfo {
	host, port, _ := net.SplitHostPort(p.listener.Addr().String())
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = ""
	}
	return agent.PeerInfo{
		Address: net.JoinHostPort(host, port), Key: p.identity.Key(),
		Bytes: func() (served, fetched int64) { return p.server.Served(), source.PeerBytes() },
	}
}

// servePeers answers other nodes. The agent continues when that fails: VMs are more important.
func (n *Node) servePeers(ctx context.Context) {
	n.log.InfoContext(ctx, "other nodes can read versions", "address", n.peers.listener.Addr().String())
	if err := n.peers.server.Serve(ctx, n.peers.listener); err != nil {
		n.log.ErrorContext(ctx, "the server for other nodes stopped", "error", err)
	}
}
